"""Oura, Midorikawa and Kai: memory of other nodes by get and put, against paging."""

from outgrid_bench.claims.model import Claim, Paper, Reason, at_least, at_most

DLM = Paper(
    "get and put for remote memory",
    "Oura, Midorikawa and Kai, against paging from other nodes",
    "dlm",
    (
        Claim(
            "sum.15",
            "getput",
            "figure 2",
            "vector sum, time by get and put over copies that page, local memory 15 % of the data "
            "as table 2 has it",
            *at_most(0.30, 1.1),
        ),
        Claim(
            "sum.30",
            "getput",
            "figure 2",
            "the same with 30 %, which is 117 of 384 GiB",
            *at_most(0.30, 1.1),
        ),
        Claim(
            "heat7.45",
            "getput",
            "figure 3",
            "7-point stencil in blocks of space and time, rate by get and put over direct access "
            "to pages, local memory 45 % of the data",
            *at_least(1.3),
            Reason(
                "hardware",
                "remote memory is the memory of this host: a page comes in a tenth of the time "
                "that it takes from another node",
            ),
        ),
    ),
)
