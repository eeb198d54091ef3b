"""How a sweep goes through space and time, as pictures that move: SVG with CSS, without scripts.

Colours are custom properties of the page that a picture lies in; a picture that is a file of its
own has those that are given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from outgrid.lines import format_count

__all__ = ["Sweep", "diamonds_picture", "sweep_of", "sweep_picture"]

WIDTH, LEFT, TOP, HIGH = 880, 92, 58, 170
WIDE = WIDTH - LEFT - 28
FLASH_TOP, FLASH_HIGH = TOP + HIGH + 44, 30
MOST_SLABS = 60  # more are drawn together, or lines would hide what they part
SECONDS = 14.0
STYLE = """
.tiling { font: 14px system-ui, sans-serif; fill: var(--ink, #1c1c1c); width: 100%; height: auto; }
.tiling .paper { fill: var(--paper, #fff); }
.tiling .come { fill: var(--soft, #f0f1f2); } .tiling .done { fill: var(--done, #b7cde0); }
.tiling .now { fill: var(--now, #e8833a); }
.tiling .frame { fill: none; stroke: var(--dim, #5a5a5a); }
.tiling .edge { stroke: var(--paper, #fff); stroke-width: 1; fill: none; }
.tiling .window { fill: none; stroke: var(--now, #e8833a); stroke-width: 2; }
.tiling .dim { fill: var(--dim, #5a5a5a); }
"""


class Sweep(msgspec.Struct, frozen=True):
    """A sweep over ``planes`` of the grid: ``depth`` steps, each ``skew`` planes behind the one
    before, in slabs of ``slab_planes``, with about ``window_planes`` in memory."""

    planes: int
    depth: int
    skew: int
    slab_planes: int
    window_planes: int


def sweep_of(plan: Mapping[str, Any]) -> Sweep | None:
    """The deepest sweep of a plan in its JSON-able form; None for blocks and for no steps."""
    if plan["blocks"] or not plan["depth"]:
        return None
    planes = plan["shape"][0]
    if part := plan["subgrid"]:
        rank = part["rank"] // (len(part["row_bounds"]) - 1)
        planes = part["plane_bounds"][rank + 1] - part["plane_bounds"][rank]
    rings = [ring["high"] - ring["low"] for ring in plan["rings"]]
    window = planes if plan["resident"] else min(planes, max(rings) + plan["slab_planes"])
    return Sweep(planes, plan["depth"], plan["skew"], plan["slab_planes"], window)


def sweep_picture(sweep: Sweep) -> str:
    """SVG of slabs that pass through all steps one after the other, beside the window.

    Planes of the grid run to the right, steps upwards.
    """
    scale = WIDE / sweep.planes
    lean = sweep.skew * sweep.depth * scale
    drawn = max(sweep.slab_planes, -(-sweep.planes // MOST_SLABS))
    slab = drawn * scale
    slabs = -(-round(WIDE + lean) // max(1, round(slab))) + 1
    edges = "".join(
        f"M{LEFT + n * slab:.1f} {TOP + HIGH}l{-lean:.1f} {-HIGH}" for n in range(1, slabs)
    )
    window = min(WIDE, sweep.window_planes * scale)
    far = slabs * slab
    name = f"sweep-{sweep.planes}-{sweep.depth}-{drawn}"
    moves = f"animation:{name} {SECONDS}s steps({slabs}) infinite"
    together = "" if drawn == sweep.slab_planes else f" (drawn {drawn} planes at a time)"
    told = (
        f"{format_count(sweep.planes, 'plane')}, {format_count(sweep.depth, 'step')} per sweep, "
        f"slabs of {format_count(sweep.slab_planes, 'plane')}{together}"
    )
    bottom = TOP + HIGH
    return f"""<svg class='tiling' viewBox='0 0 {WIDTH} {FLASH_TOP + FLASH_HIGH + 34}' \
xmlns='http://www.w3.org/2000/svg' role='img'>
<title>Slabs of one sweep, each finished through all its steps before the next</title>
<style>{STYLE}
@keyframes {name} {{ from {{ transform: translateX({-slab:.1f}px) }} \
to {{ transform: translateX({far - slab:.1f}px) }} }}
.tiling .{name} {{ {moves} }}
@media (prefers-reduced-motion: reduce) {{ .tiling .{name} {{ animation: none; \
transform: translateX({WIDE * 0.6:.1f}px) }} }}</style>
<defs><clipPath id='grid'><path d='M{LEFT} {TOP}h{WIDE}v{HIGH}h{-WIDE}z'/></clipPath>
<clipPath id='flash'><path d='M{LEFT} {FLASH_TOP}h{WIDE}v{FLASH_HIGH}h{-WIDE}z'/></clipPath></defs>
<rect class='paper' width='{WIDTH}' height='{FLASH_TOP + FLASH_HIGH + 34}'/>
<text x='{LEFT}' y='24' font-weight='600'>{told}</text>
<g clip-path='url(#grid)'><rect class='come' x='{LEFT}' y='{TOP}' width='{WIDE}' height='{HIGH}'/>
<g class='{name}'><path class='done' d='M{LEFT} {bottom}l{-lean:.1f} {-HIGH}h{-far:.1f}v{HIGH}z'/>
<path class='now' d='M{LEFT} {bottom}h{slab:.1f}l{-lean:.1f} {-HIGH}h{-slab:.1f}z'/></g>
<path class='edge' d='{edges}'/></g>
<path class='frame' d='M{LEFT} {TOP}h{WIDE}v{HIGH}h{-WIDE}z'/>
<text x='{LEFT - 10}' y='{bottom}' text-anchor='end'>step 0</text>
<text x='{LEFT - 10}' y='{TOP + 12}' text-anchor='end'>step {sweep.depth}</text>
<g clip-path='url(#flash)'>
<rect class='come' x='{LEFT}' y='{FLASH_TOP}' width='{WIDE}' height='{FLASH_HIGH}'/>
<g class='{name}'><path class='done' d='M{LEFT + slab - window:.1f} {FLASH_TOP}v{FLASH_HIGH}\
h{-far:.1f}v{-FLASH_HIGH}z'/>
<rect class='window' x='{LEFT + slab - window:.1f}' y='{FLASH_TOP + 1}' width='{window:.1f}' \
height='{FLASH_HIGH - 2}'/></g></g>
<path class='frame' d='M{LEFT} {FLASH_TOP}h{WIDE}v{FLASH_HIGH}h{-WIDE}z'/>
<text x='{LEFT - 10}' y='{FLASH_TOP + 20}' text-anchor='end'>grid</text>
<text class='dim' x='{LEFT}' y='{FLASH_TOP + FLASH_HIGH + 20}'>blue: done, written once; \
orange frame: window in memory; grey: not yet read</text>
<text class='dim' x='{LEFT + WIDE}' y='{TOP + HIGH + 20}' text-anchor='end'>planes of the grid, \
axis 0</text></svg>"""


def diamonds_picture(plan: Mapping[str, Any]) -> str:
    """SVG of the diamonds of rows and steps that a slab is updated in; "" where there are none."""
    tile, depth = plan["tile"], plan["depth"]
    if tile["order"] != "diamond" or plan["blocks"]:
        return ""
    rows = plan["shape"][1] if len(plan["shape"]) == 3 else plan["shape"][-1]
    levels = max(1, tile["rows"] // (2 * max(1, plan["skew"])))
    shown = min(rows, 6 * tile["rows"])
    x, y = WIDE / shown, HIGH / depth
    wide, half = tile["rows"] * x, levels * y
    layers = -(-depth // levels) + 1
    pieces: list[str] = []
    frames: list[str] = []
    for layer in range(layers):
        middle = TOP + HIGH - layer * half
        shift = (layer % 2) * wide / 2
        first, last = layer / (layers + 1), (layer + 1) / (layers + 1)
        frames.append(
            f"@keyframes layer{layer} {{ 0%, {100 * first:.2f}% {{ fill: var(--soft, #f0f1f2) }} "
            f"{100 * first + 0.01:.2f}%, {100 * last:.2f}% {{ fill: var(--now, #e8833a) }} "
            f"{100 * last + 0.01:.2f}%, 100% {{ fill: var(--done, #b7cde0) }} }} "
            f".tiling .layer{layer} {{ animation: layer{layer} {SECONDS / 2}s infinite }}"
        )
        path = "".join(
            f"M{LEFT + shift + (n - 1) * wide:.1f} {middle:.1f}"
            f"l{wide / 2:.1f} {-half:.1f}l{wide / 2:.1f} {half:.1f}l{-wide / 2:.1f} {half:.1f}z"
            for n in range(int(shown / tile["rows"]) + 3)
        )
        pieces.append(f"<path class='edge done layer{layer}' d='{path}'/>")
    what = "rows" if len(plan["shape"]) == 3 else "columns"
    told = f"inside a slab: diamonds of {tile['rows']} {what}, {2 * levels} steps high"
    if 2 * levels > depth:
        told += f", of which a sweep makes {depth}"
    return f"""<svg class='tiling' viewBox='0 0 {WIDTH} {TOP + HIGH + 34}' \
xmlns='http://www.w3.org/2000/svg' role='img'>
<title>Diamonds of {what} and steps, layer after layer</title>
<style>{STYLE}
{" ".join(frames)}
@media (prefers-reduced-motion: reduce) {{ .tiling path {{ animation: none }} }}</style>
<defs><clipPath id='slab'><path d='M{LEFT} {TOP}h{WIDE}v{HIGH}h{-WIDE}z'/></clipPath></defs>
<rect class='paper' width='{WIDTH}' height='{TOP + HIGH + 34}'/>
<text x='{LEFT}' y='24' font-weight='600'>{told}</text>
<g clip-path='url(#slab)'>{"".join(pieces)}</g>
<path class='frame' d='M{LEFT} {TOP}h{WIDE}v{HIGH}h{-WIDE}z'/>
<text x='{LEFT - 10}' y='{TOP + HIGH}' text-anchor='end'>step 0</text>
<text x='{LEFT - 10}' y='{TOP + 12}' text-anchor='end'>step {depth}</text>
<text class='dim' x='{LEFT + WIDE}' y='{TOP + HIGH + 20}' text-anchor='end'>{shown} of {rows} \
{what}</text></svg>"""
