"""Finds the polynomials of `codegen/templates/elementary.hpp` and `stencil/derived.py`.

It prints them with their errors.

    python tools/minimax.py

Each is the best weighted approximation in the sense of Chebyshev, found by Remez' exchange (E. Ya.
Remez, 1934) in 60 digits and rounded to the type it is evaluated in. Needs mpmath.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

mpmath.mp.dps = 60
GRID = 2000  # places looked at between two extrema of the error


@dataclass(frozen=True)
class Wanted:
    """``terms`` coefficients such that ``weight`` times the polynomial's error is least."""

    name: str
    function: Callable[[Any], Any]
    weight: Callable[[Any], Any]
    low: Any
    high: Any
    terms: dict[str, int]


HALF = mpmath.log(2) / 2
QUARTER = (mpmath.pi / 4) ** 2
LOG = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)


def series(first: int, step: int, sign: int, scale: Callable[[int], Any]) -> Callable[[Any], Any]:
    """A sum of sign**k z**k / scale(first + step k): exact where a closed form would cancel."""
    return lambda z: mpmath.fsum(sign**k * z**k / mpf(scale(first + step * k)) for k in range(60))


# What is approximated, the variable and the share of the result that an error in it makes.
WANTED = (
    # exp(r) = 1 + r + r r Q(r)
    Wanted(
        "EXP",
        series(2, 1, 1, mpmath.factorial),
        lambda r: r * r / mpmath.exp(r),
        -HALF,
        HALF,
        {"float64": 10, "float32": 5},
    ),
    # log(1 + f) = 2 s + s z L(z), s = f / (2 + f), z = s s
    Wanted(
        "LOG",
        lambda z: 2 * series(3, 2, 1, mpf)(z),
        lambda z: z,
        mpf(0),
        LOG**2,
        {"float64": 7, "float32": 3},
    ),
    # sin(r) = r + r z S(z), z = r r
    Wanted(
        "SIN",
        lambda z: -series(3, 2, -1, mpmath.factorial)(z),
        lambda z: z / (mpmath.sin(mpmath.sqrt(z)) / mpmath.sqrt(z) if z else 1),
        mpf(0),
        QUARTER,
        {"float64": 6, "float32": 3},
    ),
    # cos(r) = 1 - z / 2 + z z C(z)
    Wanted(
        "COS",
        series(4, 2, -1, mpmath.factorial),
        lambda z: z * z / mpmath.cos(mpmath.sqrt(z)),
        mpf(0),
        QUARTER,
        {"float64": 6, "float32": 3},
    ),
    # arctan(t) = t + t z A(z), z = t t
    Wanted(
        "ARCTAN",
        lambda z: -series(3, 2, -1, mpf)(z),
        lambda z: z / (mpmath.atan(mpmath.sqrt(z)) / mpmath.sqrt(z) if z else 1),
        mpf(0),
        mpmath.tan(mpmath.pi / 8) ** 2,
        {"float64": 10},
    ),
)


def polynomial(coefficients: Any, x: Any) -> Any:
    """The value, lowest power first."""
    return mpmath.polyval(list(coefficients)[::-1], x)


def remez(wanted: Wanted, terms: int) -> list[Any]:
    """The coefficients, lowest power first."""
    middle, half = (wanted.low + wanted.high) / 2, (wanted.high - wanted.low) / 2
    count = terms + 1
    # Neither an end nor the middle: the weight may vanish there.
    places = [
        middle - half * mpmath.cos(mpmath.pi * (k + mpf("0.6")) / count) for k in range(count)
    ]
    for _ in range(30):
        rows = [
            [x**k for k in range(terms)] + [(-1) ** row / wanted.weight(x)]
            for row, x in enumerate(places)
        ]
        solved = mpmath.lu_solve(
            mpmath.matrix(rows), mpmath.matrix([wanted.function(x) for x in places])
        )
        coefficients, level = list(solved)[:terms], abs(solved[terms])
        grid = [middle - half * mpmath.cos(mpmath.pi * k / GRID) for k in range(GRID + 1)]
        error = [
            wanted.weight(x) * (polynomial(coefficients, x) - wanted.function(x)) for x in grid
        ]
        places = extrema(grid, error, count)
        if max(map(abs, error)) < level * mpf("1.001"):
            return coefficients
    raise ArithmeticError(f"{wanted.name} with {terms} terms does not settle")


def extrema(grid: list[Any], error: list[Any], count: int) -> list[Any]:
    """``count`` places of largest error, with signs that alternate."""
    best: list[int] = []
    for place, value in enumerate(error):
        if best and (value > 0) == (error[best[-1]] > 0):
            if abs(value) > abs(error[best[-1]]):
                best[-1] = place
        elif value:
            best.append(place)
    while len(best) > count:
        best.pop(0 if abs(error[best[0]]) < abs(error[best[-1]]) else -1)
    if len(best) < count:
        raise ArithmeticError(f"{len(best)} of {count} extrema")
    return [grid[place] for place in best]


def main() -> None:
    for wanted in WANTED:
        for dtype, terms in wanted.terms.items():
            number = np.dtype(dtype).type
            coefficients = [float(number(float(value))) for value in remez(wanted, terms)]
            error = max(
                abs(wanted.weight(x) * (polynomial(map(mpf, coefficients), x) - wanted.function(x)))
                for x in mpmath.linspace(wanted.low, wanted.high, 999)
            )
            print(f"{wanted.name} {dtype}: at most 2**{float(mpmath.log(error, 2)):.1f}")
            print("    " + ", ".join(coefficient.hex() for coefficient in coefficients))


if __name__ == "__main__":
    main()
