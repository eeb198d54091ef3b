"""An order of evaluation in which values live shortly: what is loaded is used up soon.

The rows of several planes that are updated together read many values in common. Evaluated one
after the other they would read everything again; here all of them advance side by side, each as far
as the values that are at hand allow. The order within one row's tree of operations is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outgrid.stencil.expression import (
    Access,
    Constant,
    Expression,
    Operation,
    Parameter,
    Profile,
    nodes,
)


def interleaved(roots: Sequence[Expression]) -> tuple[Expression, ...]:
    """Accesses and operations that ``roots`` need, operands first, values shared.

    Whatever can be computed is computed at once. Then a value is loaded that lets an operation go
    on: the one after which the fewest values have to be kept, and of such the one that most waits
    for.
    """
    return _Order(roots).listed()


def most_live(order: Iterable[Expression], roots: Sequence[Expression]) -> int:
    """Values alive at once at the worst place of an order."""
    alive: set[Expression] = set()
    most = 0
    for node, done in with_last_uses(order, roots):
        alive.add(node)
        alive -= done
        most = max(most, len(alive))
    return most


def with_last_uses(
    order: Iterable[Expression], roots: Sequence[Expression]
) -> list[tuple[Expression, set[Expression]]]:
    """Each node of an order with those of its operands that nothing after it needs."""
    needed, ordered = set(roots), list[tuple[Expression, set[Expression]]]()
    for node in reversed(tuple(order)):
        operands = set(node.operands) if isinstance(node, Operation) else set[Expression]()
        ordered.append((node, operands - needed))
        needed |= operands
    return ordered[::-1]


def longest_chain(root: Expression) -> int:
    """Operations that wait for each other, one after the other."""
    length: dict[Expression, int] = {}
    for node in nodes(root):
        operands = node.operands if isinstance(node, Operation) else ()
        length[node] = max((length[o] for o in operands), default=0) + isinstance(node, Operation)
    return length[root]


def varying(roots: Iterable[Expression]) -> tuple[Expression, ...]:
    """What differs from cell to cell in ``roots``, operands first."""
    varies: dict[Expression, bool] = {}
    for root in roots:
        for node in nodes(root):
            match node:
                case Operation():
                    varies[node] = any(varies[operand] for operand in node.operands)
                case Access() | Profile():
                    varies[node] = True
                case Constant() | Parameter():
                    varies[node] = False
    return tuple(node for node, differs in varies.items() if differs)


def heights(nodes_of: Iterable[Expression]) -> dict[Expression, int]:
    """Operations that follow each node, one after the other, up to the end."""
    height: dict[Expression, int] = {}
    for node in reversed(tuple(nodes_of)):
        above = height.setdefault(node, 0)
        if isinstance(node, Operation):
            for operand in node.operands:
                height[operand] = max(height.get(operand, 0), above + 1)
    return height


class _Order:
    """The state of one ordering."""

    def __init__(self, roots: Sequence[Expression]) -> None:
        needed = varying(roots)
        self.height = heights(needed)
        self.users: dict[Expression, set[Expression]] = {node: set() for node in needed}
        self.waiting: dict[Expression, set[Expression]] = {}
        for node in needed:
            if isinstance(node, Operation):
                self.waiting[node] = {o for o in node.operands if o in self.users}
                for operand in self.waiting[node]:
                    self.users[operand].add(node)
        self.place = {node: at for at, node in enumerate(needed)}
        self.loads: set[Expression] = {
            node for node in needed if isinstance(node, Access | Profile)
        }
        # Loads that let an operation go on; the others are looked at only when there are none.
        self.next = {load for load in self.loads if any(map(self._is_last, self.users[load]))}
        self.kept = set(roots)
        self.ordered: list[Expression] = []

    def listed(self) -> tuple[Expression, ...]:
        """Load after load, and after each what it makes possible."""
        while self.loads:
            load = min(self.next or self.loads, key=self._urgency)
            self.loads.discard(load)
            self.next.discard(load)
            self._take(load)
        return tuple(self.ordered)

    def _is_last(self, user: Expression) -> bool:
        """Whether an operation waits for one operand only."""
        return len(self.waiting[user]) == 1

    def _urgency(self, load: Expression) -> tuple[int, int, int, int]:
        """Less is sooner: values that stay alive by it, how much waits for it (negated), users."""
        users = self.users[load]
        ready = [user for user in users if self._is_last(user)]
        alive = len(ready) + (len(ready) < len(users))
        for user in ready:
            operands = user.operands if isinstance(user, Operation) else ()
            alive -= sum(1 for o in set(operands) if o != load and self.users.get(o) == {user})
        height = max((self.height[user] for user in ready or users), default=0)
        return alive, -height, len(users), self.place[load]

    def _take(self, value: Expression) -> None:
        """``value`` is at hand: compute what waited for nothing else, and what follows."""
        self.ordered.append(value)
        ready = [value]
        while ready:
            done = ready.pop(0)
            for user in sorted(self.users[done], key=self.place.__getitem__):
                self.waiting[user].discard(done)
                if not self.waiting[user]:
                    self.ordered.append(user)
                    ready.append(user)
                    self._used_up(user)
                elif self._is_last(user):
                    self.next |= self.waiting[user] & self.loads

    def _used_up(self, node: Expression) -> None:
        """Operands of ``node`` are no longer kept for it."""
        if isinstance(node, Operation):
            for operand in node.operands:
                if operand in self.users and operand not in self.kept:
                    self.users[operand].discard(node)
