"""The ranks of a run and the messages between them; nothing here knows what is in a message."""

from outgrid.comm.base import Comm, Rows
from outgrid.comm.serial import Serial
from outgrid.comm.world import (
    alone,
    end_alike,
    launched_ranks,
    leave,
    spoken_by,
    strangers,
    world,
)

__all__ = [
    "Comm",
    "Rows",
    "Serial",
    "alone",
    "end_alike",
    "launched_ranks",
    "leave",
    "spoken_by",
    "strangers",
    "world",
]
