"""Oura, Midorikawa and Kai: memory of other nodes by get and put, against paging."""

from outgrid_bench.claims.model import Claim, Paper, between, near

DLM = Paper(
    "get and put for remote memory",
    "Oura, Midorikawa and Kai, against paging from other nodes",
    "dlm",
    (
        Claim(
            "sum",
            "getput",
            "figure 2",
            "vector sum by get and put, share of the time by copies that page",
            *between(0.2, 0.4),
        ),
        Claim(
            "stencil",
            "getput",
            "stencil",
            "7-point stencil in blocks by get and put, times as fast at 45 % of local memory",
            *near(1.3, 0.2),
        ),
    ),
)
