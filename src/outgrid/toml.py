"""TOML that anybody may have written: what a parser could not bear is refused before it is parsed.

A parser calls itself for each bracket, takes time that grows with the square of the parts of a key,
and makes whole numbers of as many digits as are written. Whole numbers have 64 bits, as TOML wants
it, so all are numbers for who computes with them.
"""

import re
import tomllib
from typing import Any, cast

from outgrid.decoding import shown
from outgrid.errors import UsageError

__all__ = ["MOST_BYTES", "parse_toml"]

MOST_BYTES = 4 << 20
MOST_BRACKETS = 32
MOST_PARTS = 16
MOST_WHOLE = (1 << 63) - 1
LONGEST = {"word": 1000, "string": 1 << 16}  # 16 times as long as a formula or a path

# In the order in which they are told apart; a string that does not end is one to the end.
_TOKENS = re.compile(
    r"""
    (?P<comment> \#[^\n]* )
  | (?P<string> \"\"\" (?:[^\\]|\\.)*? (?:\"\"\"|\Z) | ''' .*? (?:'''|\Z)
              | " (?:[^"\\\n]|\\[^\n])* "? | ' [^'\n]* '? )
  | (?P<word> [A-Za-z0-9_+:-]+ )
  | (?P<dot> \. )
  | (?P<open> [\[{] )
  | (?P<close> [\]}] )
  | (?P<space> [\ \t]+ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a text, which `source` names in messages.

    Raises UsageError for brackets that nest too deep, keys of too many parts, and numbers and names
    that are too long, with the line and the bound, for whole numbers beyond 64 bits and for texts
    with a NUL, which no file name may have; ValueError for what is no TOML.
    """
    _check(text, source)
    tables = tomllib.loads(text)
    _check_values(tables, source)
    return tables


def _check_values(value: object, place: str) -> None:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            _check_values(inner, f"{place}: {shown(key)}")
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            _check_values(inner, place)
    elif isinstance(value, int) and not -MOST_WHOLE - 1 <= value <= MOST_WHOLE:
        raise UsageError(
            f"{place} = {shown(str(value))}: whole numbers are within -{MOST_WHOLE + 1} to "
            f"{MOST_WHOLE}"
        )
    elif isinstance(value, str) and "\0" in value:
        raise UsageError(f"{place} = {shown(repr(value))}: a text must not have the character NUL")


def _check(text: str, source: str) -> None:
    depth, parts = 0, 0

    def refuse(at: int, what: str) -> UsageError:
        return UsageError(f"{source}, line {text.count(chr(10), 0, at) + 1}: {what}")

    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        length = token.end() - token.start()
        if kind in LONGEST and length > LONGEST[kind]:
            what = "number or name" if kind == "word" else "text"
            bound = f"at most {LONGEST[kind]} are read"
            raise refuse(token.start(), f"a {what} of {length} characters; {bound}")
        if kind == "dot":
            parts += 1
            if parts >= MOST_PARTS:
                raise refuse(token.start(), f"a key of more than {MOST_PARTS} parts")
        elif kind not in ("word", "string", "space"):
            parts = 0
        if kind == "open":
            depth += 1
            if depth > MOST_BRACKETS:
                raise refuse(token.start(), f"brackets nest deeper than {MOST_BRACKETS}")
        elif kind == "close":
            depth -= 1
