"""The parser of a command line that names the nearest word for one it does not know."""

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from outgrid.units import suggest

__all__ = ["Parser", "examples", "named"]

WIDTH = 79


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose messages about an unknown choice or option say what is near."""

    def __init__(self, **given: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **given)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with a message about arguments that were left over."""
        word = next((each for each in unknown if each.startswith("-")), unknown[0])
        if not word.startswith("-"):
            self.error(f"{word!r} is one argument too many")
        option = word.partition("=")[0]
        self.error(f"unknown option {option}{suggest(option, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is not None and value not in choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}{suggest(value, choices)}")


def examples(*lines: tuple[str, str], heading: str = "examples") -> str:
    """The end of a help text: commands and what they do, in two columns."""
    width = max(len(command) for command, _ in lines)
    told = (f"  {command:<{width}}  {purpose}".rstrip() for command, purpose in lines)
    return "\n".join([f"{heading}:", *told])


def named(heading: str, purposes: dict[str, str]) -> str:
    """Names and what they mean, one below the other, as argparse lists verbs."""
    width = max(map(len, purposes))
    lines = (
        textwrap.fill(
            f"{name:<{width}}  {purpose}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * (width + 4),
        )
        for name, purpose in purposes.items()
    )
    return "\n".join([f"{heading}:", *lines])
