"""Names and values in two aligned columns, the form that all text output has."""

from collections.abc import Iterable, Mapping
from typing import Any

from outgrid.axes import exchanged

__all__ = [
    "align",
    "format_count",
    "format_extents",
    "format_share",
    "format_signed_share",
    "format_wear",
    "format_work",
]


def align(rows: Iterable[tuple[str, str]], indent: str = "  ") -> str:
    """One line per row; a row without a value is a heading, a row without a name continues."""
    kept = list(rows)
    width = max((len(name) for name, value in kept if value), default=0)
    lines = [f"{indent}{name:<{width}}  {value}" if value else name for name, value in kept]
    return "\n".join(lines)


def format_share(share: float) -> str:
    """A share of one in percent: "0.3 %", "41 %"."""
    percent = 100 * share
    return f"{percent:.1f} %" if abs(percent) < 10 else f"{percent:.0f} %"


def format_signed_share(share: float) -> str:
    """A deviation in percent with its sign: "+5.2 %"."""
    return f"{'-' if share < 0 else '+'}{format_share(abs(share))}"


def format_count(count: int, what: str) -> str:
    """ "1 sweep", "3 sweeps"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def format_extents(shape: Iterable[int]) -> str:
    """ "400 x 600"."""
    return " x ".join(map(str, shape))


def format_work(plan: Mapping[str, Any], steps: int) -> str:
    """What a plan in JSON-able form computes: "heat5 on 400 x 600 float64 (c in int8), 9 steps"."""
    fields = plan.get("layout", {}).get("apart", ())
    other = [field for field in fields if field["dtype"] != plan["dtype"]]
    apart = ", ".join(f"{field['field']} in {field['dtype']}" for field in other)
    shape = exchanged(plan["shape"], int(plan.get("transposed", 0)))
    grid = f"{plan['stencil']} on {format_extents(shape)} {plan['dtype']}"
    return f"{grid}{f' ({apart})' if apart else ''}, {format_count(steps, 'step')}"


def format_wear(written_bytes: float, endurance_bytes: int) -> str:
    """What a run takes of a device's life: ", 0.1 % of 600 TBW: 1,000 such runs wear it out"."""
    if not endurance_bytes or not written_bytes:
        return ""
    share = written_bytes / endurance_bytes
    percent, runs = (float(f"{value:.2g}") for value in (100 * share, 1 / share))
    life = f"{endurance_bytes / 1e12:.4g} TBW"
    return f", {percent:.10g} % of {life}: {runs:,.10g} such runs wear it out"
