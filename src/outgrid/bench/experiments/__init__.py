"""The experiments of the papers, made again: each beside a reference and what was claimed."""

from outgrid.bench.experiments.applications import HIMENO, MASK
from outgrid.bench.experiments.blocking import BLOCKING
from outgrid.bench.experiments.cluster import CLUSTER
from outgrid.bench.experiments.getput import GETPUT
from outgrid.bench.experiments.gpu import GPU
from outgrid.bench.experiments.ladder import LADDER
from outgrid.bench.experiments.matvec import MATVEC
from outgrid.bench.experiments.methods import METHODS
from outgrid.bench.experiments.outcome import Experiment, Outcome, Settings, outcome_table
from outgrid.bench.experiments.ranks import RANKS
from outgrid.bench.experiments.requests import REQUESTS
from outgrid.bench.experiments.scaling import SCALING
from outgrid.bench.experiments.stream import STREAM

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Settings", "outcome_table"]

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        LADDER,
        REQUESTS,
        BLOCKING,
        METHODS,
        SCALING,
        STREAM,
        MASK,
        HIMENO,
        MATVEC,
        GPU,
        CLUSTER,
        GETPUT,
        RANKS,
    )
}
