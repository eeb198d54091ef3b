"""The experiments of the papers, made again: each beside a reference and what was claimed."""

from outgrid_bench.experiments.applications import HIMENO, MASK
from outgrid_bench.experiments.blocking import BLOCKING
from outgrid_bench.experiments.cluster import CLUSTER
from outgrid_bench.experiments.counted import COUNTED
from outgrid_bench.experiments.devices import DEVICES
from outgrid_bench.experiments.getput import GETPUT
from outgrid_bench.experiments.gpu import GPU
from outgrid_bench.experiments.ladder import LADDER
from outgrid_bench.experiments.matvec import MATVEC
from outgrid_bench.experiments.methods import METHODS
from outgrid_bench.experiments.nodes import NODES
from outgrid_bench.experiments.outcome import Experiment, Outcome, Settings, outcome_table
from outgrid_bench.experiments.ranks import RANKS
from outgrid_bench.experiments.requests import REQUESTS
from outgrid_bench.experiments.scaling import SCALING
from outgrid_bench.experiments.stream import STREAM

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Settings", "outcome_table"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        COUNTED,
        LADDER,
        DEVICES,
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
        NODES,
        GETPUT,
        RANKS,
    )
}
