"""Lifelines: a TCP connection of each rank that lends to rank 0, which ends with either process."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

__all__ = ["Lines", "addresses", "ended", "greeted", "has_ended", "reach"]

CONNECT_SECONDS = 5.0

Lines = dict[int, socket.socket]
"""Lifelines by rank."""


def greeted(listener: socket.socket, token: bytes, count: int) -> Lines:
    """The first `count` connections that greet with the token and the number of their rank."""
    lines: Lines = {}
    listener.settimeout(CONNECT_SECONDS)
    while len(lines) < count:
        line, _ = listener.accept()
        greeting = _receive(line, len(token) + 4)
        if greeting[:-4] != token:
            line.close()
            continue
        lines[int.from_bytes(greeting[-4:], "little")] = line
    return lines


def reach(addresses: Sequence[str], port: int, token: bytes, rank: int) -> socket.socket | None:
    """A connection to the first of the addresses where rank 0 takes the greeting."""
    for address in addresses:
        with suppress(OSError):
            line = socket.create_connection((address, port), CONNECT_SECONDS)
            line.sendall(token + rank.to_bytes(4, "little"))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            line.setblocking(False)
            return line
    return None


def ended(lines: Lines, stopped: socket.socket) -> Iterator[int]:
    """The ranks whose lifelines end, until the other end of `stopped` is closed."""
    while True:
        readable, _, _ = select.select([*lines.values(), stopped], [], [])
        if stopped in readable:
            return
        for rank in [rank for rank, line in lines.items() if line in readable]:
            del lines[rank]
            yield rank


def has_ended(line: socket.socket) -> bool:
    """Whether the other process is gone."""
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _receive(line: socket.socket, nbytes: int) -> bytes:
    line.settimeout(CONNECT_SECONDS)
    received = b""
    while len(received) < nbytes and (more := line.recv(nbytes - len(received))):
        received += more
    return received


def addresses() -> list[str]:
    """Where rank 0 may be reached, first from its own host."""
    ipv4 = {
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET
    }
    return sorted(ipv4, key=lambda address: not address.startswith("127."))
