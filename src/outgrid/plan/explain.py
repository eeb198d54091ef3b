"""A plan in words and figures: what will move, what it costs, and what bounds it."""

from collections.abc import Mapping
from typing import Any

from outgrid.axes import NAMES
from outgrid.lines import align, format_count, format_share, format_wear, format_work
from outgrid.tiers import MAPPED_TIERS
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["explain", "explain_rows"]


def explain(plan: Mapping[str, Any]) -> str:
    """Text for the JSON-able form of a plan."""
    return align([(format_work(plan, sum(plan["depths"])), ""), *explain_rows(plan)])


def explain_rows(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names of figures and what they are."""
    return [
        ("scheme", _scheme(plan)),
        ("slab", _slab(plan)),
        ("tier", _tier(plan)),
        *(_rank(plan) if plan.get("subgrid") else ()),
        ("window", _window(plan)),
        *(_device(plan) if plan.get("device") else ()),
        ("memory", _memory(plan)),
        *(_redundancy(plan) if plan.get("redundancy") else ()),
        ("disk", format_bytes(plan["disk_bytes"])),
        *(_snapshots(plan) if plan.get("snapshot_bytes") else ()),
        ("sweeps read", format_bytes(plan["read_bytes"])),
        ("sweeps write", format_bytes(plan["written_bytes"])),
        ("initial fill", f"{format_bytes(plan['fill_bytes'])} written"),
        ("flash written", _wear(plan)),
        ("time", _time(plan)),
        *(("note", note) for note in plan["notes"]),
    ]


def _scheme(plan: Mapping[str, Any]) -> str:
    depths = " + ".join(str(depth) for depth in plan["depths"][:4])
    more = " + ..." if len(plan["depths"]) > 4 else ""
    sweeps = format_count(plan["sweeps"], "sweep")
    return f"{plan['scheme']}, depth {plan['depth']}: {sweeps} of {depths or 0}{more} steps"


def _slab(plan: Mapping[str, Any]) -> str:
    planes, threads = plan["slab_planes"], plan["threads"]
    pinned = ", each on its processor" if plan.get("pin") else ""
    axis = int(plan.get("transposed", 0))
    along = f" along {NAMES[axis]}" if axis else ""
    return f"{format_count(planes, 'plane')}{along}, {format_count(threads, 'thread')}{pinned}"


def _tier(plan: Mapping[str, Any]) -> str:
    in_place = plan["resident"] and plan["tier"] != "memory"
    return f"{plan['tier']}, in place" if in_place else plan["tier"]


def _wear(plan: Mapping[str, Any]) -> str:
    most = " at most" if plan["tier"] in MAPPED_TIERS else ""
    nbytes = plan["flash_written_terabytes"] * 1e12
    return f"{format_bytes(nbytes)}{most}{format_wear(nbytes, plan.get('endurance_bytes', 0))}"


def _window(plan: Mapping[str, Any]) -> str:
    planes = format_count(sum(ring["planes"] for ring in plan["rings"]), "plane")
    rings = format_count(len(plan["rings"]), "ring")
    return f"{format_bytes(plan['window_bytes'])} in {planes}, {rings}"


def _device(plan: Mapping[str, Any]) -> tuple[tuple[str, str]]:
    level = plan["device"]
    used, memory = level["used_bytes"], level["memory_bytes"]
    return (
        (
            "device",
            f"{level['name'] or 'gpu'}: {format_bytes(used)} of {format_bytes(memory)}"
            f" ({format_share(used / memory)}) for the window; copies through {level['parts']}"
            f" x {format_bytes(level['part_bytes'])} of memory",
        ),
    )


def _memory(plan: Mapping[str, Any]) -> str:
    level = plan.get("device")
    copies = level["parts"] * level["part_bytes"] if level else 0
    transfers = plan["transfer_bytes"] + copies + plan.get("unfinished_bytes", 0)
    used = plan["held_bytes"] + transfers + plan["fixed_bytes"]
    used += plan.get("exchange_bytes", 0)
    return (
        f"{format_bytes(used)} of {format_bytes(plan['memory_bytes'])}"
        f" ({format_share(used / plan['memory_bytes'])}): {'' if level else 'window, '}transfers"
        f" {format_bytes(transfers)}, interpreter, libraries and tables"
        f" {format_bytes(plan['fixed_bytes'])}"
    )


def _rank(plan: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    part = plan["subgrid"]
    planes, rows = part["plane_bounds"], part["row_bounds"]
    along, across = divmod(part["rank"], len(rows) - 1)
    ranks = (len(planes) - 1) * (len(rows) - 1)
    own = f"planes {planes[along]}..{planes[along + 1]}"
    if len(rows) > 2:
        own += f", rows {rows[across]}..{rows[across + 1]}"
    return (
        ("rank", f"{part['rank']} of {ranks}, {own}"),
        (
            "exchange",
            f"{format_bytes(plan['sent_bytes'])} sent and"
            f" {format_bytes(plan['received_bytes'])} received, through"
            f" {format_bytes(plan['exchange_bytes'])} of buffers",
        ),
    )


def _redundancy(plan: Mapping[str, Any]) -> tuple[tuple[str, str]]:
    return (("redundancy", f"{format_share(plan['redundancy'])} of the updates are redundant"),)


def _snapshots(plan: Mapping[str, Any]) -> tuple[tuple[str, str]]:
    return (("snapshots", format_bytes(plan["snapshot_bytes"])),)


def _time(plan: Mapping[str, Any]) -> str:
    guess = plan["prediction"]
    return (
        f"{format_seconds(guess['seconds'])} predicted, bound by {guess['bound_by']}"
        f" (compute {format_seconds(guess['compute_seconds'])} at"
        f" {format_rate(guess['updates_per_second'])},"
        f" transfers {format_seconds(guess['transfer_seconds'])}"
        + (f", copies {format_seconds(guess['copy_seconds'])}" if plan.get("device") else "")
        + ")"
    )
