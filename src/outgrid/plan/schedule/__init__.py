"""Schedules: which planes and rows pass through the window when. Integers alone.

In reading order: `trip` and `skew`, how steps trail each other; `lifetime` and `rings`, what the
window holds; `strips`, `blocks` and `subgrid`, how a grid is cut; `seam`, what goes over cuts;
`model`, the schedule itself.
"""
