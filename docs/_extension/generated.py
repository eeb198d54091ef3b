"""Directives whose text comes from the code: options of a run, keys of a problem, commands."""

import argparse
import importlib
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from outgrid.cli import MODULES, VERBS
from outgrid.cli.parser import Parser
from outgrid.config import OPTIONS
from outgrid.job import GRADIENT_TEXTS, PROBLEM_TEXTS
from outgrid.purposes import GROUPS, Option


class Generated(SphinxDirective):
    """A directive whose content is Markdown that its class writes."""

    def run(self) -> list[nodes.Node]:
        """Parse what `text` gives, again whenever the site is built."""
        self.env.note_reread()
        text = self.text(*self.arguments)
        parsed = self.parse_text_to_nodes(text, allow_section_headings=True)
        for found in (part for node in parsed for part in node.findall(nodes.table)):
            found["classes"].append("keys")
        return parsed

    def text(self, *arguments: str) -> str:
        """The Markdown."""
        raise NotImplementedError


class RunOptions(Generated):
    """The options of one group, as a table."""

    required_arguments = 1

    def text(self, *arguments: str) -> str:
        """A table of the options of a group."""
        (group,) = arguments
        if group not in GROUPS:
            raise self.error(f"{group!r} is none of {', '.join(GROUPS)}")
        rows = [
            (f"`{key}`", option.sets, option.otherwise, needed(option))
            for key, option in OPTIONS.items()
            if option.group == group
        ]
        return table(("key", "what it sets", "if left out", "needs"), rows)


class ProblemKeys(Generated):
    """The keys of `[problem]`, as a table."""

    def text(self, *arguments: str) -> str:
        """A table of the keys."""
        rows = [(f"`{key}`", words) for key, words in PROBLEM_TEXTS.items()]
        return table(("key", "what it sets"), rows)


class GradientKeys(Generated):
    """The keys of `[gradient]`, as a table."""

    def text(self, *arguments: str) -> str:
        """A table of the keys."""
        rows = [(f"`{key}`", words) for key, words in GRADIENT_TEXTS.items()]
        return table(("key", "what it sets"), rows)


class Commands(Generated):
    """Every verb of the command line with its usage and options."""

    def text(self, *arguments: str) -> str:
        """A section per verb."""
        return "\n\n".join(command(verb, purpose) for verb, purpose in VERBS.items())


def needed(option: Option) -> str:
    """What an option needs of all others, and what some of its values need."""
    parts = [condition.words for condition in option.needs]
    values: dict[str, list[str]] = {}
    for value, conditions in option.values.items():
        values.setdefault("; ".join(each.words for each in conditions), []).append(f"`{value}`")
    parts += [f"{', '.join(names)}: {words}" for words, names in values.items()]
    return "; ".join(parts)


def command(verb: str, purpose: str) -> str:
    """The section of one verb, from its parser."""
    parser = Parser(prog=f"outgrid {verb}", description=purpose)
    importlib.import_module(f"outgrid.cli.{MODULES.get(verb, verb)}").configure(parser)
    rows = [
        (" ".join(f"`{name}`" for name in names(action)), meaning(action))
        for action in parser._actions
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings
    ]
    parts = [
        f"## {verb}",
        f"{purpose[0].upper()}{purpose[1:]}.",
        f"```text\n{parser.format_usage().strip()}\n```",
        table(("argument", "meaning"), rows) if rows else "",
        f"```text\n{parser.epilog}\n```" if parser.epilog else "",
    ]
    return "\n\n".join(part for part in parts if part)


def meaning(action: argparse.Action) -> str:
    """The help of an argument, as text of a cell of a table."""
    return ((action.help or "") % vars(action)).replace("|", "\\|").replace("<", "&lt;")


def names(action: argparse.Action) -> list[str]:
    """An argument as it is written, with its value."""
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if not action.option_strings:
        return [str(value)]
    return [
        f"{name} {value}".strip() if action.nargs != 0 else name for name in action.option_strings
    ]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("run-options", RunOptions)
    app.add_directive("gradient-keys", GradientKeys)
    app.add_directive("problem-keys", ProblemKeys)
    app.add_directive("outgrid-commands", Commands)
    return {"parallel_read_safe": True}
