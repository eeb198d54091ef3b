"""From a Python function to a stencil: it is called once, with symbols, and its result is kept."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeGuard, cast

from msgspec.structs import replace

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.components import Gradient, Tensor, Vector, components_of
from outgrid.stencil.expression import Access, Parameter, Profile
from outgrid.stencil.formula import shown
from outgrid.stencil.line import in_a_row
from outgrid.stencil.model import Assignment, Field, Reduction, Stage, Stencil
from outgrid.stencil.reduction import Reduced
from outgrid.stencil.symbol import (
    FieldSymbol,
    OffsetCountError,
    ParameterSymbol,
    Symbol,
    as_expression,
    is_number,
)
from outgrid.stencil.temporary import tracing
from outgrid.units import nearest, suggest

__all__ = ["Definition", "stencil"]

_DIMENSIONS = (2, 3)
_TRACED = (1, *_DIMENSIONS)
FieldKind: TypeAlias = type[FieldSymbol] | type[Vector]
Arguments: TypeAlias = tuple[tuple[str, FieldKind], ...]

UNNAMED = "unnamed"
"""The name of a stencil that is a lambda."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A stencil as its author wrote it: a function of fields and, keyword-only, parameters.

    `ndim` is 1, 2, 3, or None when the function may serve several. One on a line is traced as that
    of a grid of two axes which reads nothing along the first. `name` names the stencil.
    """

    function: Callable[..., Any]
    name: str
    ndim: int | None = None

    def __repr__(self) -> str:
        return f"<stencil {self.name}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the stencil, in 3-D where it works in 2-D and in 3-D."""
        try:
            traced = self.trace()
        except DefinitionError:
            traced = self.trace(3)
        return shown(traced)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring, or nothing."""
        lines = (inspect.getdoc(self.function) or "").splitlines()
        return lines[0] if lines else ""

    def trace(self, ndim: int | None = None) -> Stencil:
        """The stencil in `ndim` dimensions; None takes the number of offsets the function uses.

        Raises DefinitionError, pointing at the file and line at fault, when the function does not
        define a stencil, and when `ndim` is None and the function works in 2-D and in 3-D.
        """
        try:
            return self._traced(ndim)
        except OffsetCountError as error:  # which only tells numbers of dimensions apart
            raise DefinitionError(str(error)) from error.__cause__

    def _traced(self, ndim: int | None) -> Stencil:
        if self.ndim is not None:
            if ndim not in (None, self.ndim):
                raise DefinitionError(f"stencil {self.name!r} is {self.ndim}-D, not {ndim}-D")
            return self._trace(self.ndim)
        if ndim is not None:
            if ndim not in _TRACED:
                raise DefinitionError(f"a stencil has 1, 2 or 3 dimensions, not {ndim}")
            return self._trace(ndim)
        return self._infer()

    def _infer(self) -> Stencil:
        stencils: list[Stencil] = []
        faults: list[DefinitionError] = []
        for ndim in _DIMENSIONS:
            try:
                stencils.append(self._trace(ndim))
            except DefinitionError as error:
                faults.append(error)
        if len(stencils) == 1:
            return stencils[0]
        if stencils:
            raise DefinitionError(
                f"stencil {self.name!r} works in 2-D and in 3-D; say which with a shape or ndim="
            )
        if all(isinstance(fault, OffsetCountError) for fault in faults):
            with suppress(DefinitionError):
                return self._trace(1)
        # A wrong count of offsets in one number of dimensions only says that it is the other one.
        raise next(
            (fault for fault in faults if not isinstance(fault, OffsetCountError)), faults[-1]
        )

    def _trace(self, ndim: int) -> Stencil:
        declared, defaults, given = _arguments(self)
        symbols = {
            name: Vector.of_profiles(name, ndim) if kind is Vector else ParameterSymbol(name, ndim)
            for name, kind in given
        }
        parameters = tuple(name for symbol in symbols.values() for name in _names(symbol))
        fields = {name: kind(name, ndim) for name, kind in declared}
        names = tuple(name for field in fields.values() for name in _names(field))
        try:
            with tracing(ndim, (*names, *parameters)) as temporaries:
                returned = self.function(*fields.values(), **symbols)
            stages = temporaries.before(_stages(returned, fields, names))
            made = tuple(temporaries.made)
            axes = ndim
            if ndim == 1:
                stages, axes = in_a_row(stages), 2
            names = _used(fields.values(), stages)
            traced = _assemble(self.name, axes, names, made, parameters, defaults, stages)
            return replace(traced, wholes=_wholes(fields.values(), traced.fields))
        except Exception as error:
            _raise_located(self, error)


def stencil(
    *, name: str | None = None, ndim: int | None = None
) -> Callable[[Callable[..., Any]], Definition]:
    """Make a function the definition of a stencil, as `outgrid.stencil` tells."""

    def define(function: Callable[..., Any]) -> Definition:
        if not inspect.isfunction(function):
            raise DefinitionError(f"a stencil must be a function, not {function!r}")
        if ndim is not None and ndim not in _TRACED:
            raise DefinitionError(f"a stencil has 1, 2 or 3 dimensions, not {ndim}")
        own = function.__name__ if function.__name__.isidentifier() else UNNAMED
        return Definition(function, name if name is not None else own, ndim)

    return define


def _arguments(
    definition: Definition,
) -> tuple[Arguments, tuple[tuple[str, float], ...], Arguments]:
    """Fields, defaults, and parameters."""
    fields: list[tuple[str, FieldKind]] = []
    parameters: list[tuple[str, FieldKind]] = []
    defaults: list[tuple[str, float]] = []
    known = definition.function.__globals__
    for argument in inspect.signature(definition.function).parameters.values():
        default: Any = argument.default
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            _raise_at_definition(
                definition, f"a stencil cannot have *{argument.name}; name each field and parameter"
            )
        if argument.kind is not argument.KEYWORD_ONLY:
            if default is not argument.empty:
                _raise_at_definition(
                    definition,
                    f"field {argument.name!r} cannot have a default ({default!r}); parameters can:"
                    f" put it after a bare *, as in (u, *, {argument.name}={default!r})",
                )
            fields.append((argument.name, _kind(argument.annotation, known)))
            continue
        parameters.append((argument.name, _kind(argument.annotation, known)))
        if default is argument.empty:
            continue
        if not is_number(default) or not math.isfinite(float(default)):
            _raise_at_definition(
                definition,
                f"the default of {argument.name} must be a finite number, not {default!r}",
            )
        defaults.append((argument.name, float(default)))
    if not fields:
        _raise_at_definition(definition, "it has 0 fields; its first argument must be one")
    return tuple(fields), tuple(defaults), tuple(parameters)


def _used(declared: Iterable[FieldSymbol | Vector], stages: Iterable[Stage]) -> tuple[str, ...]:
    """The names of the fields; of what has several, those that are read or updated, if any is."""
    stages = tuple(stages)
    known = {made.field for stage in stages for made in stage.assignments}
    known |= {
        access.field
        for stage in stages
        for value in stage.expressions
        for access in ex.accesses(value)
    }
    names: list[str] = []
    for one in declared:
        every = _names(one)
        names += [name for name in every if name in known] or every
    return tuple(names)


def _wholes(
    declared: Iterable[FieldSymbol | Vector], fields: Iterable[Field]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What was declared as one, with its fields, where their names do not tell that."""
    names = tuple(field.name for field in fields)
    every = {one.name: _names(one) for one in declared if isinstance(one, Vector)}
    wholes = {whole: tuple(name for name in names if name in of) for whole, of in every.items()}
    return tuple(
        (whole, parts) for whole, parts in wholes.items() if parts != components_of(whole, names)
    )


def _kind(annotation: object, names: Mapping[str, Any]) -> FieldKind:
    """Vector, Tensor, Gradient or channels where an argument is annotated so.

    That is by the class, or by its name among `names`.
    """
    if isinstance(annotation, str):
        annotation = names.get(annotation, annotation)
    if isinstance(annotation, type) and issubclass(annotation, Vector):
        return annotation
    for kind in (Vector, Tensor, Gradient):
        named = isinstance(annotation, str) and annotation.rpartition(".")[2] == kind.__name__
        if annotation is kind or named:
            return kind
    return FieldSymbol


def _names(declared: FieldSymbol | ParameterSymbol | Vector) -> tuple[str, ...]:
    return declared.fields if isinstance(declared, Vector) else (declared.name,)


def _stages(
    returned: object, declared: Mapping[str, FieldSymbol | Vector], names: tuple[str, ...]
) -> tuple[Stage, ...]:
    if isinstance(returned, list) and not _are_components(cast("object", returned), declared):
        parts = cast("list[object]", returned)
        return tuple(
            _stage(part, declared, names, f"stage {number}") for number, part in enumerate(parts)
        )
    return (_stage(cast("object", returned), declared, names, "it"),)


def _are_components(
    returned: object, declared: Mapping[str, FieldSymbol | Vector]
) -> TypeGuard[list[object]]:
    """Whether it is a sequence of values where the first field takes one for each component."""
    if not isinstance(returned, list | tuple) or not isinstance(
        next(iter(declared.values())), Vector
    ):
        return False
    parts = cast("list[object]", returned)
    return all(isinstance(part, Symbol) or is_number(part) for part in parts)


def _stage(
    returned: object,
    declared: Mapping[str, FieldSymbol | Vector],
    names: tuple[str, ...],
    subject: str,
) -> Stage:
    values: Mapping[object, object]
    first = next(iter(declared))
    if isinstance(returned, Vector) or _are_components(returned, declared):
        values = {first: returned}
    elif isinstance(returned, Mapping):
        values = cast("Mapping[object, object]", returned)
    elif isinstance(returned, tuple):
        parts = cast("tuple[object, ...]", returned)
        if len(parts) > len(declared):
            raise DefinitionError(
                f"{subject} returns {len(parts)} values for {len(declared)} fields"
                f" ({', '.join(declared)}); return at most {len(declared)}"
            )
        values = dict(zip(declared, parts, strict=False))
    else:
        if returned is None:
            raise DefinitionError(f"{subject} returns nothing; return the new value of {first!r}")
        values = {first: returned}
    new: dict[str, object] = {}
    reductions: list[Reduction] = []
    for key, value in values.items():
        vector = isinstance(key, Vector)
        name = key.name if vector else repr(key) if isinstance(key, FieldSymbol) else key
        whole = declared.get(str(name))
        if isinstance(value, Reduced):
            if name in (*names, *declared):
                raise DefinitionError(
                    f"{subject} returns a {value.kind} for the field {name!r}; give it a name of"
                    " its own"
                )
            reductions.append(Reduction(str(name), value.kind, value.expression))
        elif isinstance(whole, Vector):
            new |= whole.assigned(value)
        elif name in names:
            new[str(name)] = value
        else:
            known = dict.fromkeys((*names, *declared))
            raise DefinitionError(
                f"{subject} returns a value for {name!r}, which is not one of its "
                f"fields{suggest(str(name), known)}"
            )
    assignments = (Assignment(name, as_expression(new[name])) for name in names if name in new)
    return Stage(tuple(assignments), tuple(reductions))


def _assemble(
    name: str,
    ndim: int,
    names: tuple[str, ...],
    temporaries: tuple[str, ...],
    parameters: tuple[str, ...],
    defaults: tuple[tuple[str, float], ...],
    stages: tuple[Stage, ...],
) -> Stencil:
    updated = {assignment.field for stage in stages for assignment in stage.assignments}
    nodes = {
        node
        for stage in stages
        for expression in stage.expressions
        for node in ex.nodes(expression)
    }
    read = {node.field for node in nodes if isinstance(node, Access)}
    previous = {node.field for node in nodes if isinstance(node, Access) and node.level == -1}
    profiles = {node.name for node in nodes if isinstance(node, Profile)}
    for field in names:
        if field not in read | updated:
            raise DefinitionError(f"field {field!r} is neither read nor updated; remove it")
    for parameter in parameters:
        if parameter.startswith(ex.INDEX):
            raise DefinitionError(
                f"the name {parameter!r} of a parameter is reserved for outgrid.index; use "
                "another name"
            )
        if parameter not in profiles and Parameter(parameter) not in nodes:
            raise DefinitionError(f"parameter {parameter!r} is not used; remove it")
    fields = tuple(
        Field(field, field in updated, 1 + (field in previous), field in temporaries)
        for field in (*names, *temporaries)
    )
    numbers = tuple(name for name in parameters if name not in profiles)
    return Stencil(name, ndim, fields, numbers, stages, defaults)


def _raise_located(definition: Definition, error: Exception) -> NoReturn:
    """Point at the innermost line of the user's own file that led to `error`."""
    code = definition.function.__code__
    line = code.co_firstlineno
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == code.co_filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    message = str(error)
    if not isinstance(error, DefinitionError):
        message = f"{type(error).__name__}: {error}{_meant(definition, error)}"
    message = message.removeprefix(f"stencil {definition.name!r} ")
    kind = OffsetCountError if isinstance(error, OffsetCountError) else DefinitionError
    raise kind(f"{code.co_filename}:{line}: stencil {definition.name!r}: {message}") from error


def _meant(definition: Definition, error: Exception) -> str:
    """What was meant: the nearest of the names that an unknown one was looked for among."""
    if isinstance(error, TypeError) and "unhashable" in str(error):
        return "; keys of what a stencil returns are its fields or their names"
    if not isinstance(error, AttributeError | NameError) or not error.name:
        return ""
    if isinstance(error, AttributeError):
        known = dir(error.obj)
    else:
        code = definition.function.__code__
        known = [*code.co_varnames, *definition.function.__globals__]
    guess = nearest(error.name, known)
    return f"; did you mean {guess!r}?" if guess else ""


def _raise_at_definition(definition: Definition, message: str) -> NoReturn:
    _raise_located(definition, DefinitionError(message))
