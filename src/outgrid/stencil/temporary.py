"""Temporaries: values that later expressions of a step read, and nobody after it."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.expression import INDEX, Expression, Profile
from outgrid.stencil.model import Assignment, Stage
from outgrid.stencil.symbol import AXES, FieldSymbol, Operand, Symbol, as_expression
from outgrid.units import suggest

__all__ = ["Temporaries", "index", "temporary", "traced_ndim", "tracing"]


class Temporaries(msgspec.Struct):
    """The temporaries of a stencil that is being traced, by name, in the order of their making."""

    ndim: int
    taken: tuple[str, ...]
    made: dict[str, Expression] = msgspec.field(default_factory=dict[str, Expression])
    named: set[str] = msgspec.field(default_factory=set[str])

    def before(self, stages: Sequence[Stage]) -> tuple[Stage, ...]:
        """All stages: each temporary is made once, right before the first of `stages` to read it.

        Those that need none of each other share a stage. One without a name of its own that is
        read at the updated cell only, in one place, is a part of the expression there, and no
        temporary. Raises DefinitionError where one is never read.
        """
        every: list[Stage] = []
        stages = self._without_needless(stages)
        due = dict(self.made)
        for stage in stages:
            wanted = self._read(stage.expressions) & due.keys()
            while more := self._read(due[name] for name in wanted) & due.keys() - wanted:
                wanted |= more
            while wanted:
                ready = [
                    name for name in due if name in wanted and not self._read([due[name]]) & wanted
                ]
                every.append(Stage(tuple(Assignment(name, due.pop(name)) for name in ready)))
                wanted -= {*ready}
            every.append(stage)
        for name in due:
            raise DefinitionError(f"the temporary {name!r} is never read; remove it")
        return tuple(every)

    def _without_needless(self, stages: Sequence[Stage]) -> Sequence[Stage]:
        """The stages, with temporaries that need not be kept in the place of what reads them."""
        for name in [name for name in self.made if name not in self.named]:
            here = ex.Access(name, 0, (0,) * self.ndim)
            makers = [key for key, value in self.made.items() if self._reads(name, (value,))]
            readers = [n for n, stage in enumerate(stages) if self._reads(name, stage.expressions)]
            values = [*self.made.values(), *(v for stage in stages for v in stage.expressions)]
            read = [access for value in values for access in ex.accesses(value)]
            if len(makers) + len(readers) != 1 or any(a.field == name and a != here for a in read):
                continue
            known: dict[Expression, Expression] = {here: self.made.pop(name)}
            for key in makers:
                self.made[key] = ex.substitute(self.made[key], known)
            stages = [_substituted(stage, known) for stage in stages] if readers else stages
        return stages

    def _reads(self, name: str, expressions: Iterable[Expression]) -> bool:
        return any(access.field == name for value in expressions for access in ex.accesses(value))

    def _read(self, expressions: Iterable[Expression]) -> set[str]:
        """The temporaries among what is read."""
        read = (access.field for expression in expressions for access in ex.accesses(expression))
        return {name for name in read if name in self.made}


def _substituted(stage: Stage, known: Mapping[Expression, Expression]) -> Stage:
    """The stage with some values known; what its expressions share stays shared."""
    values = iter(ex.substitute_all(stage.expressions, known))
    return Stage(
        tuple(replace(made, expression=next(values)) for made in stage.assignments),
        tuple(replace(made, expression=next(values)) for made in stage.reductions),
    )


_traced: ContextVar[Temporaries | None] = ContextVar("temporaries", default=None)


@contextmanager
def tracing(ndim: int, taken: tuple[str, ...]) -> Generator[Temporaries]:
    """While it lasts, `temporary` adds to what it gives; names that are ``taken`` are refused."""
    temporaries = Temporaries(ndim, taken)
    token = _traced.set(temporaries)
    try:
        yield temporaries
    finally:
        _traced.reset(token)


def traced_ndim(name: str) -> int:
    """The number of axes of the stencil that is being traced, for a function called `name`."""
    return _now(name).ndim


def _now(name: str) -> Temporaries:
    traced = _traced.get()
    if traced is None:
        raise DefinitionError(
            f"{name} can be called only in the function of a stencil, not in that of a face"
        )
    return traced


def temporary(value: Operand, name: str | None = None) -> FieldSymbol:
    """A value of each cell that is made once per step and read by what follows, at offsets too.

    It is a field that nothing is left of: it has no initial values, takes no disk and is in no
    result, and of memory it takes the planes that are at work. It is made right before the first
    stage that reads it, of what that stage sees; where nothing reads it at an offset, and one stage
    at all, that computes it on the way, unless it has a `name`. Beyond a face it is read as the
    boundary has it for all fields, or for its `name`; at a fixed face, where it has no layer, as
    "empty": 0.
    """
    traced = _now("temporary")
    chosen = f"temporary{len(traced.made) + 1}" if name is None else name
    if chosen in (*traced.taken, *traced.made):
        raise DefinitionError(f"the name {chosen!r} is taken; give the temporary another name")
    traced.made[chosen] = as_expression(value)
    if name is not None:
        traced.named.add(name)
    return FieldSymbol(chosen, traced.ndim)


def index(axis: str) -> Symbol:
    """The index of the updated cell along an axis, "z", "y" or "x", from 0, fixed layers included.

    In the precision of the fields. `(index("x") + index("y")) % 2` is 0 in every second cell.
    """
    axes = AXES[-traced_ndim("index") :]
    if axis not in axes:
        raise DefinitionError(
            f"index({axis!r}): the axes are {', '.join(axes)}{suggest(str(axis), axes)}"
        )
    return Symbol(Profile(INDEX + axis, axes.index(axis)))
