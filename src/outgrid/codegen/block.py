"""Blocks of rows and vectors for stencils of many operations.

A long sum is a chain of operations that wait for each other. One vector of each of four rows is too
few chains to fill the units that compute, and a processor does not look far enough ahead to start
on the next vectors. So several vectors of several rows advance together, operation by operation:
chains become many, a constant is fetched once per block, and a loaded vector serves all rows.

Where neighbouring planes are used in the same way, but for their constants, the statements become a
loop: what is executed then fits the processor's store of decoded instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from outgrid.codegen.interleave import interleaved, longest_chain, most_live, with_last_uses
from outgrid.codegen.spelling import SPELLING
from outgrid.stencil.expression import (
    Access,
    Expression,
    Operation,
    Profile,
    is_condition,
    nodes,
)

LEAST_OPERATIONS = 256  # on a vector of each row: more than a processor sees at once
LATENCY, UNITS = 4, 2  # cycles until a result can be used; units that compute
REGISTERS = 32  # of vectors; where there are half as many, blocks have half as many vectors
MOST_VECTORS = 4
NEAR = 3  # aligned vectors of a row that are kept to cut others out of them
LEAST_PLANES = 4  # that are worth a loop

PlaneKey = tuple[str, int, int]  # field, level, plane


class Statement(msgspec.Struct, frozen=True):
    """What happens to each vector n of a block.

    In ``text``, ``@`` stands for the plane that is read and ``#0``, ``#1``... for ``weights``,
    numbers that are the same for all cells.
    """

    text: str
    plane: PlaneKey | None
    weights: tuple[Expression, ...]


class Block(msgspec.Struct, frozen=True):
    """Statements over ``variables`` variables; variable ``results[n]`` ends as the n-th root.

    They keep vectors of ``rows`` rows to cut others out of them.
    """

    statements: tuple[Statement, ...]
    variables: int
    results: tuple[int, ...]
    rows: int

    @property
    def weights(self) -> tuple[Expression, ...]:
        """All weights in the order of their use."""
        return tuple(weight for statement in self.statements for weight in statement.weights)


def block_vectors(roots: Sequence[Expression]) -> int:
    """Vectors of a row that advance together, 1 where one after the other is as fast.

    More than one where the processor cannot fill its units with the chains of one, because they
    are too long to see past their end; as many as the registers hold.
    Conditions, which are vectors of another type, are not for blocks.
    """
    order = interleaved(roots)
    if any(is_condition(node) for root in roots for node in nodes(root)):
        return 1
    operations = sum(1 for node in order if isinstance(node, Operation))
    longest = max((longest_chain(root) for root in roots), default=0)
    if operations < LEAST_OPERATIONS or longest * LATENCY * UNITS <= operations:
        return 1
    vectors = MOST_VECTORS
    while vectors > 1 and most_live(order, roots) * vectors > REGISTERS - NEAR - 2:
        vectors //= 2
    return vectors


def block(
    roots: Sequence[Expression], row: Callable[[Access], str], profile: Callable[[Profile], str]
) -> Block:
    """Statements for ``roots``, in which a variable is used again once its value is not needed.

    ``row`` spells the way to the row of an access within its plane, ``profile`` the value of a
    profile in vector n.
    """
    variable: dict[Expression, int] = {}
    statements: list[Statement] = []
    free: set[int] = set()
    near = _Near(row)
    count = 0
    for node, done in with_last_uses(interleaved(roots), roots):
        operands = tuple(dict.fromkeys(node.operands)) if isinstance(node, Operation) else ()
        weights = tuple(o for o in operands if o not in variable)
        spelled = {weight: f"#{number}" for number, weight in enumerate(weights)}
        spelled |= {o: f"v{variable[o]}[n]" for o in operands if o in variable}
        # A sum goes on in the variable of the sum so far, so that planes come to look alike.
        left = {o: variable.pop(o) for o in operands if o in done and o in variable}
        free |= set(left.values())
        sums = [number for o, number in left.items() if isinstance(o, Operation)]
        if not free:
            free.add(count)
            count += 1
        target = sums[0] if sums else min(free)
        free.discard(target)
        variable[node] = target
        match node:
            case Operation(name, given):
                value = SPELLING[name].format(*(spelled[o] for o in given))
                statements.append(Statement(f"v{target}[n] = {value};", None, weights))
            case Access():
                text = near.read(target, node)
                statements.append(Statement(text, (node.field, node.level, node.offset[0]), ()))
            case Profile():
                statements.append(Statement(f"v{target}[n] = {profile(node)};", None, ()))
            case _:
                raise TypeError(f"{node!r} is the same for all cells")
    return Block(tuple(statements), count, tuple(variable[r] for r in roots), len(near.kept))


class _Near:
    """Reads of a block. Some aligned vectors of a row are kept while columns of it are read.

    A part of the vectors of each column is cut out of them, the rest is loaded. A load that
    straddles two lines costs more than the units that load can bear, a cut an operation: the two
    are mixed so that neither holds up the other.
    """

    def __init__(self, row: Callable[[Access], str]) -> None:
        self.row = row
        self.kept: dict[tuple[str, int, str], int] = {}  # the plane of which each row is kept

    def read(self, target: int, access: Access) -> str:
        """The statement that reads all vectors of an access."""
        row, column = self.row(access), access.offset[-1]
        start = f"@ + i{row}"
        key, plane = (access.field, access.level, row), access.offset[0]
        fresh = self.kept.get(key) != plane
        self.kept[key] = plane
        kept = f"near{list(self.kept).index(key)}"
        again = f"keep_near({kept}, {start}); " if fresh else ""
        return f"{again}read<{column}>(v{target}, {start}, {kept});"


class Run(msgspec.Struct, frozen=True):
    """Statements that read ``planes`` one after the other, each in the same way."""

    statements: tuple[Statement, ...]  # of the first plane
    planes: tuple[PlaneKey, ...]


def runs(statements: Sequence[Statement]) -> Iterator[Run]:
    """The statements cut where they turn to another plane, and joined where planes look alike."""
    parts: list[list[Statement]] = []
    current: PlaneKey | None = None
    for statement in statements:
        if not parts or statement.plane not in (None, current):
            parts.append([])
            current = statement.plane or current
        parts[-1].append(statement)
    at = 0
    while at < len(parts):
        end = at + 1
        while end < len(parts) and _alike(parts[at], parts[end], end - at):
            end += 1
        if end - at < LEAST_PLANES:
            end = at + 1
        planes = [next((s.plane for s in part if s.plane), None) for part in parts[at:end]]
        yield Run(tuple(parts[at]), tuple(plane for plane in planes if plane))
        at = end


def _alike(first: list[Statement], other: list[Statement], apart: int) -> bool:
    """Whether two parts differ only in their weights and by ``apart`` planes."""
    if [s.text for s in first] != [s.text for s in other]:
        return False
    return all(
        (a.plane is None and b.plane is None)
        or (a.plane and b.plane and (*a.plane[:2], a.plane[2] + apart) == b.plane)
        for a, b in zip(first, other, strict=True)
    )


def spelled(
    block: Block, pointer: Mapping[PlaneKey, str], cell: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    """C++ before the loop over a row, and the statements inside it, for ``w`` at the weights.

    ``pointer`` names planes, ``cell`` the type of the cells of a field.
    """
    before: list[str] = []
    inside = [f"V {', '.join(f'v{number}[kWide]' for number in range(block.variables))};"]
    inside += [f"V {', '.join(f'near{number}[{NEAR}]' for number in range(block.rows))};"]
    used = 0
    for run in runs(block.statements):
        count = sum(len(s.weights) for s in run.statements)
        if len(run.planes) < LEAST_PLANES:
            inside += _lines(run.statements, lambda plane: pointer[plane], f"w[{used} +")
        else:
            name, kind = f"planes{len(before)}", cell(run.planes[0][0])
            listed = ", ".join(pointer[plane] for plane in run.planes)
            before.append(f"const {kind}* const {name}[] = {{{listed}}};")
            inside.append(f"for (int j = 0; j < {len(run.planes)}; ++j) {{")
            inside.append(f"  const {kind}* const at = {name}[j];")
            body = _lines(run.statements, lambda _: "at", f"w[{used} + {count} * j +")
            inside += [*(f"  {line}" for line in body), "}"]
            count *= len(run.planes)
        used += count
    return before, inside


def _lines(
    statements: Sequence[Statement], pointer: Callable[[PlaneKey], str], weight: str
) -> Iterator[str]:
    """C++ of statements; ``weight`` begins the spelling of their weights."""
    used = 0
    for statement in statements:
        text = statement.text
        if statement.plane is not None:
            yield text.replace("@", pointer(statement.plane))
            continue
        constants = ""
        for number in range(len(statement.weights)):
            constants += f"const V c{number} = all({weight} {used + number}]); "
            text = text.replace(f"#{number}", f"c{number}")
        used += len(statement.weights)
        yield f"{{ {constants}OG_VECTORS {text} }}" if constants else f"OG_VECTORS {text}"
