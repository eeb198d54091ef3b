"""Oura, Midorikawa and Kai: memory of other nodes by get and put, against paging."""

from outgrid_bench.claims.model import Paper

DLM = Paper(
    "get and put for remote memory",
    "Oura, Midorikawa and Kai, against paging from other nodes",
    "dlm",
    (),  # the experiment judges both of its numbers itself
)
