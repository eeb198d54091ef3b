"""What a paper prints: a number, and the interval within which ours is taken to be the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import nextafter
from typing import Literal

__all__ = [
    "Bounds",
    "Claim",
    "Kind",
    "Paper",
    "Reason",
    "at_least",
    "at_most",
    "between",
    "exactly",
    "from_range",
    "more",
    "near",
]

Kind = Literal["implementation", "hardware", "another experiment", "slip of the paper"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a claim does not hold in the records that are kept: what it is due to, and the evidence
    for that."""

    kind: Kind
    evidence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """``text`` names a quantity, ``printed`` is what the paper has of it and ``low`` to ``high``
    what holds. ``experiment`` measures it."""

    key: str
    experiment: str
    figure: str
    text: str
    printed: str
    low: float
    high: float
    reason: Reason | None = None

    def holds(self, here: float) -> bool:
        """Whether ours is taken to be the same."""
        return self.low <= here <= self.high


@dataclass(frozen=True, slots=True)
class Paper:
    """``name`` is what the places of its claims begin with, ``page`` its page in the docs."""

    name: str
    title: str
    page: str
    claims: tuple[Claim, ...]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims)


Bounds = tuple[str, float, float]


def near(value: float, share: float, unit: str = "") -> Bounds:
    """What differs by at most a share of the paper's number."""
    low, high = sorted((value * (1 - share), value * (1 + share)))
    return f"{value:g}{unit} (± {share:.0%})", low, high


def exactly(value: float, digits: float, unit: str = "") -> Bounds:
    """What differs by no more than the digits that the paper prints."""
    return f"{value:g}{unit} (± {digits:g})", value - digits, value + digits


def between(low: float, high: float, unit: str = "") -> Bounds:
    """A range that the paper prints."""
    return f"{low:g} to {high:g}{unit}", low, high


def at_least(value: float, share: float = 1.0, unit: str = "") -> Bounds:
    """A gain: ours may be larger, but no smaller than a share of the paper's."""
    return f"{value:g}{unit} (at least {share * value:.3g}{unit})", share * value, float("inf")


def at_most(value: float, share: float = 1.0, unit: str = "") -> Bounds:
    """A cost: ours may be smaller, but no larger than a share of the paper's."""
    return f"{value:g}{unit} (at most {share * value:.3g}{unit})", -float("inf"), share * value


def from_range(low: float, high: float, unit: str = "") -> Bounds:
    """A range of gains that the paper prints: ours may be larger than all of it."""
    return f"{low:g} to {high:g}{unit} (at least {low:g}{unit})", low, float("inf")


def more(printed: str = "") -> Bounds:
    """A ratio of what is more to what is less; ``printed`` is what the paper has of it."""
    return f"{printed or 'more'} (above 1)", nextafter(1.0, 2.0), float("inf")


def indexed(papers: tuple[Paper, ...]) -> Mapping[str, tuple[Paper, Claim]]:
    """All claims by their keys. Raises ValueError where two have the same."""
    every = [(paper, claim) for paper in papers for claim in paper]
    found = {claim.key: (paper, claim) for paper, claim in every}
    if len(found) != len(every):
        raise ValueError("two claims have the same key")
    return found
