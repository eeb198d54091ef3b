"""Schedules: which planes and rows pass through the window when. Integers alone.

In reading order: `trip` and `skew`, how steps trail each other; `lifetime`, `axis` and `rings`,
what follows of it along an axis; `strips`, `blocks` and `subgrid`, how a grid is cut; `seam` and
`interval`, what the ends of what is cut are; `model`, the schedule itself; `window` and `pitch`,
what it holds and how far trips are apart.
"""
