"""Processors with memory of their own: what a run needs of one, and how one is found."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from importlib import import_module
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.devices import DEVICES
from outgrid.errors import DeviceError
from outgrid.machine import Accelerator

__all__ = ["Device", "Extents", "Rectangle", "bytes_at", "describe_device", "open_device"]

Extents = tuple[int, int, int]  # along x, y and z


class Rectangle(msgspec.Struct, frozen=True):
    """``rows`` rows of ``row_bytes`` to copy, a stride apart on either side; all in bytes."""

    to: int
    to_stride: int
    source: int
    source_stride: int
    row_bytes: int
    rows: int


class Device(Protocol):
    """Memory, copies and kernels of a device.

    It has so many ``processors``, of which each executes blocks of threads that share up to
    ``shared_bytes``. Addresses are numbers, those of the device and those of the process's own
    memory alike. Launches are carried out one after the other; copies on their own, beside them.
    What has to come first is named: copies begin after the ``after`` marks. Everything returns at
    once, except `wait`. A launch takes its argument, a structure, as it is at that moment; the
    threads of a block share ``shared_bytes``.
    """

    @property
    def name(self) -> str: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def processors(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...

    def allocate(self, nbytes: int) -> int: ...
    def release(self, address: int) -> None: ...
    def allocate_host(self, nbytes: int) -> int: ...
    def release_host(self, address: int) -> None: ...
    def pin(self, address: int, nbytes: int) -> bool: ...
    def unpin(self, address: int) -> None: ...

    def upload(self, parts: Sequence[Rectangle], after: Sequence[Hashable]) -> Hashable: ...
    def download(self, parts: Sequence[Rectangle], after: Sequence[Hashable]) -> Hashable: ...
    def launch(
        self,
        name: str,
        grid: Extents,
        block: Extents,
        given: ctypes.Structure,
        shared_bytes: int = 0,
    ) -> None: ...
    def mark(self) -> Hashable: ...
    def done(self, mark: Hashable) -> bool: ...
    def wait(self, mark: Hashable) -> None: ...

    # For products: a module like NumPy whose arrays lie on the device, and the way there and back.
    @property
    def arrays(self) -> Any: ...
    def array(self, address: int, shape: tuple[int, ...], dtype: DTypeLike) -> Any: ...
    def bring(self, values: NDArray[Any]) -> Any: ...
    def fetch(self, values: Any) -> NDArray[Any]: ...
    def finish(self) -> None: ...


def bytes_at(address: int, nbytes: int) -> NDArray[np.uint8]:
    """Memory that somebody else holds, as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def describe_device(kind: str) -> Accelerator:
    """What a plan counts on: the name of the device of ``kind`` ("gpu"), its free memory and rates.

    Raises DeviceError that says what was looked for and what to install.
    """
    return _room(kind).describe()


def open_device(kind: str, source: str) -> Device:
    """The device of ``kind`` ("gpu") with the kernels of the CUDA source loaded.

    Raises DeviceError that says what was looked for and what to install.
    """
    return _room(kind).open_device(source)


def _room(kind: str) -> Any:
    if kind not in DEVICES:
        raise DeviceError(f"device must be one of {', '.join(DEVICES)}, not {kind!r}")
    return import_module(f"outgrid.device.{DEVICES[kind]}")  # not before it is asked for
