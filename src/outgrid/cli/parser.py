"""The parser of a command line that names the nearest word for one it does not know."""

import argparse
import textwrap
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from outgrid.units import suggest

__all__ = ["Parser", "add_debug_argument", "examples"]

WIDTH = 79


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose messages about an unknown choice or option say what is near.

    Its description is wrapped, its epilog is not. ``elsewhere`` are options of its sisters: one of
    them was no slip of the pen.
    """

    elsewhere: Collection[str] = ()

    def __init__(self, *, description: str, **given: Any) -> None:
        super().__init__(
            description=textwrap.fill(description, WIDTH, break_on_hyphens=False),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **given,
        )

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with a message about arguments that were left over."""
        word = next((argument for argument in unknown if argument.startswith("-")), unknown[0])
        if not word.startswith("-"):
            self.error(f"unexpected argument {word!r}")
        option = word.partition("=")[0]
        if option in self._option_string_actions:
            self.error(f"{option} must follow {self.prog!r}")
        if option in self.elsewhere:
            self.error(f"{option} is not for {self.prog!r}; --help lists what is")
        shown = [
            name
            for name, action in self._option_string_actions.items()
            if action.help != argparse.SUPPRESS
        ]
        self.error(f"unknown option {option}{suggest(option, shown)}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        values: Any = super()._get_values(action, arg_strings)
        if action.nargs is None and isinstance(values, list):  # of "--set=--", taken for an end
            raise argparse.ArgumentError(action, "expected one argument")
        return values

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is not None and value not in choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}{suggest(value, choices)}")


def add_debug_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --debug; where it is not given, what a parser further out has found or set stays."""
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks and logs"
    )


def examples(*lines: tuple[str, str], heading: str = "examples") -> str:
    """The end of a help text: commands and what they do, in two columns."""
    width = max(len(command) for command, _ in lines)
    told = (f"  {command:<{width}}  {purpose}".rstrip() for command, purpose in lines)
    return "\n".join([f"{heading}:", *told])
