"""What a run would be refused for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outgrid.errors import BuildError, InfeasiblePlan, StoreError, UsageError

__all__ = ["refused"]


def refused(check: Callable[[], object]) -> Iterator[str]:
    """What a check says against a run; nothing where it passes."""
    try:
        check()
    except (BuildError, InfeasiblePlan, StoreError, UsageError) as error:
        yield str(error)
