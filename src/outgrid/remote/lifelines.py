"""Lifelines: a TCP connection of each rank that lends to rank 0, which ends with either process."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

import psutil

from outgrid.errors import ExecutionError

__all__ = ["Lines", "addresses", "ended", "greeted", "has_ended", "reach"]

CONNECT_SECONDS = 5.0
GREET_SECONDS = 30.0  # of all ranks together

Lines = dict[int, socket.socket]
"""Lifelines by rank."""


def greeted(listener: socket.socket, token: bytes, count: int) -> Lines:
    """The first `count` connections that greet with the token and the number of their rank.

    Others are dropped. Raises ExecutionError where they do not come in time.
    """
    lines, heard = Lines(), dict[socket.socket, bytes]()
    end = time.monotonic() + GREET_SECONDS
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while len(lines) < count and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                line = cast("socket.socket", key.fileobj)
                if line is listener:
                    with suppress(BlockingIOError, ConnectionError):  # it has gone again
                        line, _ = listener.accept()
                        selector.register(line, selectors.EVENT_READ)
                        heard[line] = b""
                    continue
                more = _received(line, len(token) + 4 - len(heard[line]))
                heard[line] += more
                if more and len(heard[line]) < len(token) + 4:
                    continue
                selector.unregister(line)
                greeting = heard.pop(line)
                if greeting[:-4] == token:
                    lines[int.from_bytes(greeting[-4:], "little")] = line
                else:
                    line.close()
    late = len(lines) < count
    for line in (*heard, *(lines.values() if late else ())):
        line.close()
    if late:
        raise ExecutionError(
            f"{len(lines)} of {count} ranks that lend memory reached rank 0 within "
            f"{GREET_SECONDS:g} s: start the run again"
        )
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
    with selectors.DefaultSelector() as selector:
        selector.register(stopped, selectors.EVENT_READ)
        for rank, line in lines.items():
            selector.register(line, selectors.EVENT_READ, rank)
        while True:
            ready = [key for key, _ in selector.select()]
            if any(key.fileobj is stopped for key in ready):
                return
            for key in ready:
                selector.unregister(key.fileobj)
                yield key.data


def has_ended(line: socket.socket) -> bool:
    """Whether the other process is gone."""
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _received(line: socket.socket, nbytes: int) -> bytes:
    """Up to so many bytes that have come; none where the other process is gone."""
    with suppress(OSError):
        return line.recv(nbytes)
    return b""


def addresses() -> list[str]:
    """Where rank 0 may be reached, first from its own host."""
    ipv4 = {
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET
    }
    return sorted(ipv4, key=lambda address: not address.startswith("127."))
