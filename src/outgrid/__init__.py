"""Stencil computations on grids that outgrow memory."""

__version__ = "0.1.0"
