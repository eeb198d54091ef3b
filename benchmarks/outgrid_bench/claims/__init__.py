"""The numbers that the papers print, a file for each paper, and what counts as the same."""

from outgrid_bench.claims.bus import BUS
from outgrid_bench.claims.cluster import CLUSTER
from outgrid_bench.claims.dlm import DLM
from outgrid_bench.claims.flash import FLASH
from outgrid_bench.claims.model import Claim, Paper, Reason, indexed
from outgrid_bench.claims.own import OWN
from outgrid_bench.claims.slides import SLIDES

__all__ = ["CLAIMS", "OWN", "PAPERS", "Claim", "Paper", "Reason"]

PAPERS = (FLASH, SLIDES, BUS, CLUSTER, DLM)
CLAIMS = indexed((*PAPERS, OWN))
