"""Which instructions are complete: the watermarks that gates are compared with."""

from __future__ import annotations

from outgrid.plan.program import Gate


class Prefix:
    """Counts the leading numbers 0, 1, 2, ... that are complete, whatever order they end in."""

    def __init__(self) -> None:
        self.count = 0
        self._beyond: set[int] = set()

    def complete(self, index: int) -> None:
        """Number ``index`` is complete."""
        self._beyond.add(index)
        while self.count in self._beyond:
            self._beyond.remove(self.count)
            self.count += 1


class Watermarks:
    """Complete leading instructions of each kind."""

    def __init__(self) -> None:
        self.advanced = Prefix()
        self.got = Prefix()
        self.put = Prefix()
        self.committed = Prefix()
        self.sent = Prefix()
        self.received = Prefix()

    def open(self, gate: Gate) -> bool:
        """Whether everything that ``gate`` waits for is complete."""
        return (
            self.advanced.count >= gate.advanced
            and self.got.count >= gate.got
            and self.put.count >= gate.put
            and self.committed.count >= gate.committed
            and self.sent.count >= gate.sent
            and self.received.count >= gate.received
        )

    def missing(self, gate: Gate) -> str:
        """What ``gate`` still waits for, in words."""
        pairs = (
            ("advances", self.advanced.count, gate.advanced),
            ("gets", self.got.count, gate.got),
            ("puts", self.put.count, gate.put),
            ("commits", self.committed.count, gate.committed),
            ("sends", self.sent.count, gate.sent),
            ("receives", self.received.count, gate.received),
        )
        return ", ".join(f"{have} of {need} {kind}" for kind, have, need in pairs if have < need)
