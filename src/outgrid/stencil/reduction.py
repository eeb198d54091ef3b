"""Numbers over all updated cells, one per step: what a stencil returns beside new values."""

from dataclasses import dataclass

from outgrid.errors import DefinitionError
from outgrid.stencil.expression import Expression
from outgrid.stencil.symbol import AfterStep, Operand, as_expression

__all__ = ["Reduced", "max_over", "min_over", "sum_over"]


@dataclass(frozen=True, slots=True)
class Reduced(AfterStep):
    """A reduction under construction: the dictionary that a stencil returns gives it its name."""

    kind: str
    expression: Expression

    @property
    def words(self) -> str:
        """Why nothing can be calculated with it."""
        return (
            f"a {self.kind} over all cells is known only after the step and cannot be used"
            " within it; return it by a separate name, as in"
            f' {{"largest": outgrid.{self.kind}(u)}}'
        )


def sum_over(value: Operand) -> Reduced:
    """The sum over all cells that are updated, in double precision; the same for any tiling.

    A row is summed in a fixed order, in two dimensions 64 bytes of a row; these sums are
    added exactly and rounded once. NaN where a value is NaN or infinities of both signs meet.
    """
    return _reduced("sum", value)


def max_over(value: Operand) -> Reduced:
    """The largest value over all cells that are updated; NaN where one of them is NaN."""
    return _reduced("max", value)


def min_over(value: Operand) -> Reduced:
    """The smallest value over all cells that are updated; NaN where one of them is NaN."""
    return _reduced("min", value)


def _reduced(kind: str, value: Operand) -> Reduced:
    if isinstance(value, Reduced):
        raise DefinitionError(f"the {kind} of a {value.kind} is not supported; use one reduction")
    return Reduced(kind, as_expression(value))
