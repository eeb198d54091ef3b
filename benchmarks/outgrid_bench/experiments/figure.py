"""Outcomes as pictures. matplotlib is imported when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outgrid.errors import UsageError
from outgrid_bench.experiments.outcome import Experiment, Outcome

__all__ = ["FORMATS", "draw_outcome", "look", "spoken"]

FORMATS = (".png", ".svg")
INCHES = (11, 7.5)
# C0, C1 and so on in what experiments draw: each as light as no other, so that grey will do.
COLOURS = ("#173f7a", "#f2a93b", "#2f9b73", "#b8382c", "#b59ad6", "#1a1a1a")
MARKERS = "os^Dv*"
NARROW = 300  # from the end of a logarithmic axis to the other, so that it needs more numbers


def draw_outcome(experiment: Experiment, outcome: Outcome, path: Path) -> None:
    """Draw into a .png or .svg file. Raises UsageError for another ending."""
    import matplotlib
    from cycler import cycler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if path.suffix not in FORMATS:
        raise UsageError(f"{path} is no name of a figure: it must end with {' or '.join(FORMATS)}")
    library: Any = matplotlib  # its own types are incomplete
    with library.rc_context({"axes.prop_cycle": cycler(color=COLOURS)}):
        figure: Any = Figure(figsize=INCHES, layout="constrained")
        FigureCanvasAgg(figure)
        experiment.draw(outcome, figure)
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                _plain_numbers(axis)
        cpu, day = outcome.machine.get("cpu", ""), outcome.started[:10]
        figure.suptitle(f"{outcome.bench} ({outcome.size}): {cpu}, {day}", fontsize=10)
        figure.savefig(path, dpi=110)


def look(number: int) -> dict[str, str]:
    """Colour and marker of the line with this number: the same in every panel of a figure."""
    return {"color": f"C{number}", "marker": MARKERS[number % len(MARKERS)]}


def _plain_numbers(axis: Any) -> None:
    """Numbers as they are spoken along a logarithmic axis, and 2 and 5 between powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, NullFormatter

    if axis.get_scale() != "log" or not isinstance(axis.get_major_formatter(), LogFormatter):
        return
    axis.set_major_formatter(FuncFormatter(_tick))
    low, high = axis.get_view_interval()
    if axis.get_transform().base == 10 and high < NARROW * low:
        axis.set_minor_locator(LogLocator(10, (2, 5)))
        axis.set_minor_formatter(FuncFormatter(_tick))
    else:
        axis.set_minor_formatter(NullFormatter())


def spoken(value: float, digits: int = 6) -> str:
    """A positive number with as many significant digits and never with an exponent above."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}".replace(",", " ") if short >= 1000 else f"{short:g}"


def _tick(value: float, place: int | None = None) -> str:
    return spoken(value)
