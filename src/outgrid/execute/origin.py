"""Where a run went wrong: its last good state is carried on once more, looked at in every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from outgrid.execute.device import DeviceKernel
from outgrid.execute.kernel import Kernel
from outgrid.execute.moves import Hierarchy, StoreKey
from outgrid.execute.site import Site, reached
from outgrid.execute.streaming import Callbacks, stream
from outgrid.observe.watch import NotFinite, Place, Watch
from outgrid.plan.model import Plan
from outgrid.plan.schedule.trip import Point
from outgrid.runs.seals import Seals
from outgrid.seal import Seal
from outgrid.stencil.problem import Problem
from outgrid.storage import Planes, Store, Transfers


class _Dropping:
    """A store that keeps nothing of what is put."""

    def __init__(self, like: Store, transfers: Transfers) -> None:
        self.name, self.shape, self.dtype = like.name, like.shape, like.dtype
        self.planes, self.rows_per_plane = like.planes, like.rows_per_plane
        self.plane_bytes, self.row_bytes = like.plane_bytes, like.row_bytes
        self._transfers = transfers

    def hold(self, seal: Seal) -> None:
        """What is put is nothing at all."""

    def get(self, planes: range, rows: range, into: Planes) -> int:
        raise NotImplementedError("there is nothing to read")

    def put(self, planes: range, rows: range, source: Planes) -> int:
        return self._transfers.call(lambda: 0)

    def leave(self, planes: range, rows: range) -> bool:
        """What is left out is as good as put."""
        return True

    def flush(self) -> int:
        return self._transfers.call(lambda: 0)

    def close(self) -> None:
        """Nothing to let go of."""


def first_of(
    fault: NotFinite,
    plan: Plan,
    rest_after: Callable[[int], Problem],
    kernel: Kernel | DeviceKernel,
    site: Site[Any],
    hierarchy: Hierarchy[Any],
    transfers: Transfers,
    seals: Seals,
) -> Place | None:
    """The first value that is not finite, its step counted from the state 0 of ``plan``.

    ``rest_after`` gives the problem without so many of its steps, as its kernel computes it.

    Reads what the last good state is made of, and writes to seams alone. Takes as long as the
    sweeps from there to the one in which such a value was seen. None where it is not seen again:
    then the machine did not compute the same twice.
    """
    begin = plan.schedule.states.sweeps_until(fault.state)
    done = sum(plan.schedule.depths[:begin])
    schedule = replace(
        plan.schedule,
        depths=plan.schedule.depths[begin : fault.sweep + 1],
        begin=Point(),
        commit_planes=0,
        commit_sweeps=0,
    )
    again = replace(plan, schedule=schedule)
    rest = rest_after(done)
    names = tuple(field.name for field in rest.stencil.fields)
    watch = Watch(again, names, every_step=True)
    places: dict[StoreKey, Store] = {}
    stores = hierarchy.stores
    for (field, level, parity), store in stores.items():
        state = (parity + fault.state) % 2
        if (field, level, 1) not in stores:  # a coefficient
            places[field, level, 0] = store
        else:
            places[field, level, state] = store if state == 0 else _Dropping(store, transfers)
    stored = plan.schedule.stored  # of sweeps that may be deeper than those
    origin = stored.planes.start, stored.rows.start
    hierarchy = replace(
        hierarchy, stores=places, seal=seals.again(again, begin).move, origin=origin
    )
    stream(
        again,
        site.updates(again, replace(kernel.after(rest), watch=watch)),
        reached(hierarchy, site),
        Callbacks(lambda point: None),
    )
    site.settle()
    first = watch.first
    return None if first is None else replace(first, step=done + first.step)
