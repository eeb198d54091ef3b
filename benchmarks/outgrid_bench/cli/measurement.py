"""What a measurement of `outgrid bench` is, and how its command line is made from that."""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    "--only": {"action": "append", "metavar": "NAME"},
    "--all": {"action": "store_true"},
    "--memory": {"metavar": "SIZE"},
    "--factor": {"type": float, "action": "append", "metavar": "N"},
    "--plane": {"metavar": "ROWSxCOLUMNS"},
    "--steps": {"type": int, "metavar": "N"},
    "--stream-axis": {"choices": ("z", "y", "x"), "metavar": "AXIS"},
    "--with-swap": {"action": "store_true"},
    "--device": {"choices": ("cpu", "gpu"), "default": "cpu"},
    "--python": {"type": Path, "metavar": "FILE"},
    "--yask": {"type": Path, "metavar": "DIR"},
    "--quick": {"action": "store_true"},
    "--full": {"action": "store_true"},
    "--tiny": {"action": "store_true"},
    "--scratch": {"type": Path, "metavar": "DIR"},
    "--also": {"type": Path, "action": "append", "default": [], "metavar": "DIR"},
    "--emulate": {"action": "append", "default": [], "metavar": "DISKS"},
    "--where": {"action": "store_true"},
    "--json": {"type": Path, "metavar": "FILE"},
    "--figure": {"type": Path, "metavar": "FILE"},
    "--results": {"type": Path, "metavar": "DIR"},
    "--resume": {"action": "store_true"},
    "--stop-after": {"metavar": "TIME"},
    "--endurance": {"metavar": "TBW"},
    "--price": {"type": float, "metavar": "SUM"},
    "--watts": {"type": float, "metavar": "W"},
}
"""All options of measurements, in the order of help texts: the same form wherever one is taken."""

UNSEEN = argparse.SUPPRESS
"""In the place of a help text: the option is taken and not shown."""


def say(text: str) -> None:
    """Tell what is going on, beside what is printed in the end."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A verb below `bench`.

    ``purpose`` stands beside its name in the list of all, ``about`` at the head of its own help: in
    whole sentences what it measures and what it prints. ``options`` are those of OPTIONS that it
    takes, with their help texts, in which a default stands in parentheses; ``examples`` commands
    and what they do. ``run`` returns the exit code.
    """

    name: str
    purpose: str
    about: str
    run: Callable[[argparse.Namespace], int]
    options: Mapping[str, str]
    examples: tuple[tuple[str, str], ...]

    def declare(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        for option, form in OPTIONS.items():
            if option in self.options:
                parser.add_argument(option, help=self.options[option].replace("%", "%%"), **form)
