"""From a job file to a problem and the options of its run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from outgrid.config import OPTIONS, RunOptions, chosen
from outgrid.decoding import choice, decoded_table, shown
from outgrid.errors import InfeasiblePlan, StoreError, UsageError, meaning
from outgrid.formats import InputFile
from outgrid.machine import limit_on_memory
from outgrid.plan.tables import LISTED_BYTES
from outgrid.regular import read_given
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.dtypes import COMPUTED
from outgrid.stencil.lagged import Lagged
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import Snapshot
from outgrid.stencil.until import Until
from outgrid.toml import MOST_BYTES, parse_toml
from outgrid.units import format_bytes

__all__ = ["GRADIENT_TEXTS", "PROBLEM_TEXTS", "Job", "load_job", "read_job_file"]

STEP_NAME = re.compile(r"\bstep\b")

_PROBLEM: dict[str, tuple[Any, str]] = {
    "stencil": (
        str,
        "a stencil with a name (`heat7`), or `file.py:function` beside the job file",
    ),
    "shape": (tuple[int, ...], "number of cells per axis, boundary layer included: z, y, x"),
    "steps": (int, "number of time steps"),
    "dtype": (
        choice(*COMPUTED),
        f"type of all arithmetic: {' or '.join(f'`{name}`' for name in COMPUTED)}",
    ),
    "dtypes": (
        dict[str, str],
        "fields that are stored in a smaller type ([types](language.md#types-of-fields))",
    ),
    "boundary": (
        str | float | dict[str, Any],
        "a [kind of boundary](language.md#boundaries), the value of a fixed layer, or a table by "
        "axis, face and field",
    ),
    "parameters": (
        dict[str, float | tuple[float, ...] | str | Lagged],
        "values of the stencil's parameters: a number, one number per step, an expression of "
        "`step` or of one axis, or a table that follows a reduction "
        "([lag](language.md#reductions-that-feed-later-steps)): `reduction`, `lag`, `first`",
    ),
    "initial": (
        dict[str, float | str | InputFile],
        "initial values of each field: a number, an expression, or a "
        "[file](../howto/initial-values.md)",
    ),
    "sources": (
        tuple[Source, ...],
        "values that are added to cells ([sources](language.md#sources-and-receivers)): "
        "`field`, `position`, `values`",
    ),
    "receivers": (
        tuple[Receiver, ...],
        "cells or points whose values are recorded in each step: `field`, `position`",
    ),
    "snapshots": (
        tuple[Snapshot, ...],
        "parts of fields that are stored after certain steps "
        "([snapshots](language.md#snapshots)): `field`, `every`, ranges `z`, `y`, `x`, `stride`",
    ),
    "until": (
        Until,
        "ends the run by a reduction ([ending early](language.md#ending-early)): `reduction`, "
        "`every`, `below` or `above`",
    ),
    "regions": (
        dict[str, Any],
        "parts of the grid in which fields are computed "
        "([regions](language.md#parts-of-the-grid)): tables of `width`, `axes`, `sides` for a "
        "shell, of ranges `z`, `y`, `x` for a box, or lists of them",
    ),
    "grid": (
        dict[str, Any],
        "coordinates and units ([grid](stencils.md#coordinates-and-units)): `spacing`, `origin`, "
        "`units`, `names`, `fields`, `dt`",
    ),
}
"""Each argument of a Problem: the kind of value that text has for it, and what it sets."""

PROBLEM: dict[str, Any] = {key: kind for key, (kind, _) in _PROBLEM.items()}
PROBLEM_TEXTS = {key: words for key, (_, words) in _PROBLEM.items()}
"""What each key of `[problem]` sets, in Markdown."""

NEEDED = ("stencil", "shape", "steps")

_GRADIENT: dict[str, tuple[Any, str]] = {
    "wrt": (
        tuple[str, ...],
        "what to differentiate by: coefficients, fields, parameters, profiles, `sources`",
    ),
    "observed": (str, "least squares of traces: a `.npy` file of (steps, receivers)"),
    "final": (dict[str, str], "least squares of fields after the last step: a file for each"),
    "snapshots": (
        tuple[str, ...],
        'least squares of what the snapshots keep: a file for each, or `""`',
    ),
    "total": (str, "instead of least squares: a sum of the stencil, added up over the steps"),
    "weights": (tuple[float, ...], "of `total`: one number per step, instead of 1"),
    "adjoint": (
        choice("auto", "history", "recompute", "multistage"),
        "where states come from on the way back ([strategies](../howto/gradients.md"
        "#disk-space-and-time)); changes no byte",
    ),
    "chunk": (int, "steps back that are one step of the runs back"),
    "every": (int, "keeps every n-th state only; the gradient is not exact then"),
    "history": (
        choice("same", "float16", "bfloat16", "float32"),
        "type that states are kept in; the gradient is not exact in a shorter one",
    ),
}
"""Each key of `[gradient]`: the kind of its value, and what it sets."""

GRADIENT_TEXTS = {key: words for key, (_, words) in _GRADIENT.items()}

TABLES: Mapping[str, Any] = dict.fromkeys(("problem", "run", "gradient"), dict[str, Any])
REPLACED = "problem.", "gradient."
"""How entries of tables are named that settings replace, but for those of `[run]`."""


class Job(msgspec.Struct, frozen=True):
    """What a job file says: what is computed, and how.

    `gradient` are the entries of `[gradient]`, with whole paths; None where there is no such table.
    """

    problem: Problem
    options: RunOptions
    gradient: Mapping[str, Any] | None = None


def load_job(
    path: Path,
    settings: Mapping[str, Any] | None = None,
    processes: int = 1,
    there_bytes: int | None = None,
) -> Job:
    """The job at `path`; `settings` replace entries of its `[run]` table, and of others where they
    are named so ("problem.parameters.k", "gradient.adjoint").

    Paths in the file are relative to its folder. Left out, `memory` is half of what this process
    may use, or its share of that where `processes` of a run are on this host, or half of
    `there_bytes` on another one; `out` the job file's name with the suffix .run, `scratch` a folder
    inside `out`.
    Raises UsageError for what is wrong with the file, DefinitionError for what is wrong with the
    problem, InfeasiblePlan where formulas of step have more values than memory. Opens no input.
    """
    written, run, gradient = _tables(path, settings)
    options = _options(run, path, processes, there_bytes)
    _check_listed(written, options.memory_bytes)
    base = path.parent
    if ".py:" in written["stencil"]:
        written["stencil"] = str(base / written["stencil"])
    initial = written.get("initial", {})
    written["initial"] = {name: _placed(initial[name], base) for name in initial}
    return Job(Problem(**written), options, _at_whole_paths(gradient, base))


def read_job_file(
    path: Path, settings: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of the job file at `path`: the arguments of a Problem, decoded, and `[run]`.

    `settings` replace entries of `[run]`, of which those that leave the choice to the plan are left
    out, and entries named like "problem.parameters.k". Raises UsageError, naming the file, for an
    unreadable file, bad TOML, unknown keys (with the nearest valid one), missing keys and wrong
    kinds of values.
    """
    problem, run, _ = _tables(path, settings)
    return problem, run


def _tables(
    path: Path, settings: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]:
    """What `read_job_file` returns, and `[gradient]`."""
    source = str(path)
    try:
        document = parse_toml(read_given(path, MOST_BYTES).decode(), f"the job file {path}")
    except StoreError as error:
        raise UsageError(f"cannot read the job file: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read the job file {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the job file {path} is not TOML: {error}") from error
    settings = dict(settings or {})
    for entry in [key for key in settings if key.startswith(REPLACED)]:
        _replace(document, entry, settings.pop(entry))
    tables = decoded_table(
        document,
        TABLES,
        "",
        source,
        needed=("problem",),
    )
    run = tables.get("run", {})
    if "erase" in run:
        raise UsageError(
            f"[run] of {path}: erase is not read from a file, since it destroys data: add "
            f"--erase {_flags(run['erase'])} to the command, or erase to the call"
        )
    problem = decoded_table(
        tables["problem"], PROBLEM, "problem", source, needed=NEEDED, elsewhere={"run": OPTIONS}
    )
    if "boundary" in problem:
        with meaning(f"{source}: problem.boundary"):
            problem["boundary"] = boundary_of(problem["boundary"])
    gradient = None
    if "gradient" in tables:
        kinds = {key: kind for key, (kind, _) in _GRADIENT.items()}
        gradient = decoded_table(tables["gradient"], kinds, "gradient", source, needed=("wrt",))
    return problem, chosen({**run, **settings}), gradient


def _replace(document: dict[str, Any], entry: str, value: Any) -> None:
    """Give an entry of a table, whose name has dots, another value."""
    *tables, key = entry.split(".")
    table: Any = document
    for depth, name in enumerate(tables):
        table = cast("dict[str, Any]", table).setdefault(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{entry}: {'.'.join(tables[: depth + 1])} is not a table of the job")
    cast("dict[str, Any]", table)[key] = value


def _check_listed(problem: Mapping[str, Any], memory_bytes: int) -> None:
    """Raise InfeasiblePlan where what formulas of step are in all steps is beyond the limit."""
    given = [value for value in problem.get("parameters", {}).values() if isinstance(value, str)]
    formulas = sum(STEP_NAME.search(formula) is not None for formula in given)
    formulas += sum(isinstance(source.values, str) for source in problem.get("sources", ()))
    steps: int = problem["steps"]
    needed = formulas * steps * LISTED_BYTES
    if needed > memory_bytes:
        fitting = memory_bytes // (formulas * LISTED_BYTES)
        what = "a formula" if formulas == 1 else f"{formulas} formulas"
        raise InfeasiblePlan(
            f"the values of {what} of step take {format_bytes(needed)} in {steps} steps, "
            f"above the memory limit of {format_bytes(memory_bytes)}; fewer than {fitting} steps "
            "fit, or compute them in the stencil from outgrid.step"
        )


def _placed(value: str | float | InputFile, base: Path) -> float | str | InputFile:
    """A text that ends like a file of a known format is one; any other is an expression."""
    if isinstance(value, str) and InputFile.named_by(value):
        value = InputFile(value)
    return value.within(base) if isinstance(value, InputFile) else value


def _at_whole_paths(gradient: dict[str, Any] | None, base: Path) -> dict[str, Any] | None:
    """Entries of `[gradient]` with paths of their own."""
    if gradient is None:
        return None
    named = dict(gradient)
    if "observed" in named:
        named["observed"] = base / named["observed"]
    if "final" in named:
        named["final"] = {field: base / path for field, path in named["final"].items()}
    if "snapshots" in named:
        named["snapshots"] = [base / path if path else None for path in named["snapshots"]]
    return named


def _flags(places: Any) -> str:
    """Flags of a command line that name `places`, as a job file has them."""
    listed = cast("list[Any]", places) if isinstance(places, list) else [places]
    return " --erase ".join(shown(str(place)) for place in listed)


def _options(
    table: Mapping[str, Any], path: Path, processes: int, there_bytes: int | None
) -> RunOptions:
    written = table.get("memory")
    memory = limit_on_memory(written, processes, there_bytes) if _is_size(written) else written
    options = RunOptions.of_table(
        {**table, "memory": memory}, path.parent, str(path), {"problem": PROBLEM}
    )
    out = options.out or path.with_suffix(".run")
    return msgspec.structs.replace(
        options,
        memory_asked=written is not None,
        out=out,
        scratch=options.scratch or out / "scratch",
    )


def _is_size(written: object) -> bool:
    """Whether it can be a limit on memory; what cannot is told by who decodes it."""
    return written is None or (
        isinstance(written, str | int | float) and not isinstance(written, bool)
    )
