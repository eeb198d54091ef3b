"""Stages of a stream: each draws from the one before it, in a thread of its own where that pays.

A stage is a function applied to what another yields. `ahead` lets it run some items before its
consumer, which is all that double buffering is: with 2 items, one is made while the other is used.
A stage that keeps as many buffers as `ahead` is told, and takes them in rotation, never needs to
ask whether one is free. A copy to another memory is one more stage in between.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

__all__ = ["Event", "ahead", "applied", "in_turns"]

T = TypeVar("T")
R = TypeVar("R")


class _End:
    """Stands behind the last item."""


_END: Final = _End()


class Event(msgspec.Struct, frozen=True):
    """One stage at work on one item; `begin` and `end` are seconds of time.perf_counter."""

    stage: str
    item: int
    begin: float
    end: float


def ahead(items: Generator[T], most: int) -> Generator[T]:
    """The same items, made by a thread: up to `most` of them are under way, with the one in use.

    An item is given up when the next is asked for; only then may another take its place. An
    exception of `items` comes out here. Closing waits for the item that is being made.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="outgrid-stage") as worker:

        def start() -> Future[T | _End]:
            return worker.submit(next, items, _END)

        # With one item at most nothing is made beside its use: it is asked for when it is wanted.
        under_way = deque(start() for _ in range(most))
        try:
            while not isinstance(item := under_way.popleft().result(), _End):
                yield item
                under_way.append(start())
        finally:
            for future in under_way:
                future.cancel()
            worker.shutdown()
            items.close()


def in_turns(streams: Sequence[Generator[T]]) -> Generator[T]:
    """One item of each stream after the other, in an order that does not depend on their speed."""
    left = list(streams)
    try:
        while left:
            for stream in tuple(left):
                item = next(stream, _END)
                if isinstance(item, _End):
                    left.remove(stream)
                else:
                    yield item
    finally:
        for stream in streams:
            stream.close()


def applied(
    stage: str, function: Callable[[T], R], items: Generator[T], events: list[Event] | None
) -> Generator[R]:
    """What `function` makes of each item; how long it took each time is appended to `events`."""
    try:
        for count, item in enumerate(items):
            begin = time.perf_counter()
            made = function(item)
            if events is not None:
                events.append(Event(stage, count, begin, time.perf_counter()))
            yield made
    finally:
        items.close()
