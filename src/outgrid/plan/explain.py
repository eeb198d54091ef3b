"""A plan in words and figures: what will move, what it costs, and what bounds it."""

from collections.abc import Mapping
from typing import Any

from outgrid.lines import align, format_count, format_share
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["explain"]


def explain(plan: Mapping[str, Any]) -> str:
    """Text for the JSON-able form of a plan."""
    return align(
        [
            (_heading(plan), ""),
            ("scheme", _scheme(plan)),
            ("slab", _slab(plan)),
            ("window", _window(plan)),
            ("memory", _memory(plan)),
            *(_redundancy(plan) if plan.get("redundancy") else ()),
            ("disk", format_bytes(plan["disk_bytes"])),
            ("sweeps read", format_bytes(plan["read_bytes"])),
            ("sweeps write", format_bytes(plan["written_bytes"])),
            ("initial fill", f"{format_bytes(plan['fill_bytes'])} written"),
            ("flash written", f"{plan['flash_written_terabytes']:.3g} TB"),
            ("time", _time(plan)),
            *(("note", note) for note in plan["notes"]),
        ]
    )


def _heading(plan: Mapping[str, Any]) -> str:
    extents = " x ".join(str(extent) for extent in plan["shape"])
    steps = format_count(sum(plan["depths"]), "step")
    return f"{plan['stencil']} on {extents} {plan['dtype']}, {steps}"


def _scheme(plan: Mapping[str, Any]) -> str:
    depths = " + ".join(str(depth) for depth in plan["depths"][:4])
    more = " + ..." if len(plan["depths"]) > 4 else ""
    sweeps = format_count(plan["sweeps"], "sweep")
    return f"{plan['scheme']}, depth {plan['depth']}: {sweeps} of {depths or 0}{more} steps"


def _slab(plan: Mapping[str, Any]) -> str:
    planes, threads = plan["slab_planes"], plan["threads"]
    pinned = ", each on its processor" if plan.get("pin") else ""
    return f"{format_count(planes, 'plane')}, {format_count(threads, 'thread')}{pinned}"


def _window(plan: Mapping[str, Any]) -> str:
    planes = format_count(sum(ring["planes"] for ring in plan["rings"]), "plane")
    rings = format_count(len(plan["rings"]), "ring")
    return f"{format_bytes(plan['window_bytes'])} in {planes}, {rings}"


def _memory(plan: Mapping[str, Any]) -> str:
    used = plan["window_bytes"] + plan["transfer_bytes"] + plan["fixed_bytes"]
    return (
        f"{format_bytes(used)} of {format_bytes(plan['memory_bytes'])}"
        f" ({format_share(used / plan['memory_bytes'])}): window, transfers"
        f" {format_bytes(plan['transfer_bytes'])}, interpreter and libraries"
        f" {format_bytes(plan['fixed_bytes'])}"
    )


def _redundancy(plan: Mapping[str, Any]) -> tuple[tuple[str, str]]:
    return (("redundancy", f"{format_share(plan['redundancy'])} of the updates are made again"),)


def _time(plan: Mapping[str, Any]) -> str:
    guess = plan["prediction"]
    return (
        f"{format_seconds(guess['seconds'])} predicted, bound by {guess['bound_by']}"
        f" (compute {format_seconds(guess['compute_seconds'])} at"
        f" {format_rate(guess['updates_per_second'])},"
        f" transfers {format_seconds(guess['transfer_seconds'])})"
    )
