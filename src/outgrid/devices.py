"""The devices, listed once: processors with memory of their own, which the window may lie in."""

from __future__ import annotations

__all__ = ["DEVICES"]

DEVICES = {"gpu": "cuda"}
"""By the names that users give, the modules of `device/` that describe and open them."""
