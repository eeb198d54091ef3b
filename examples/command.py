"""The command line that the examples have in common."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import outgrid as og


def arguments(purpose: str | None, **others: dict[str, Any]) -> argparse.Namespace:
    """What the user gives: --memory, --out, --picture and `others`, as keywords of add_argument."""
    parser = argparse.ArgumentParser(
        description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, settings in others.items():
        value = settings.get("default")
        text = settings.pop("help", "") + ("" if value is None else f" ({value})")
        parser.add_argument(f"--{name}", help=text, **settings)
    parser.add_argument("--memory", default="1GiB", metavar="SIZE", help="limit of the run (1GiB)")
    parser.add_argument("--out", type=Path, help="folder of the results (outgrid.run)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the result")
    return parser.parse_args()


def apart(act: Callable[..., Any], *given: Any) -> Any:
    """Call something in a process of its own: what it holds in memory is not the run's."""
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(act, *given).result()


def beside(
    pictures: Mapping[str, Any], path: Path, label: str, size: tuple[float, float], **how: Any
) -> None:
    """Draw arrays of two axes beside each other, by title, with one scale; `how` is of imshow."""
    from matplotlib import pyplot

    figure, every = pyplot.subplots(1, len(pictures), figsize=size, layout="constrained")
    for axes, (title, values) in zip(every, pictures.items(), strict=True):
        shown = axes.imshow(values, **how)
        axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, label=label)
    figure.savefig(path, dpi=90)


def run(problem: og.Problem, given: argparse.Namespace) -> og.Result:
    """Run the problem as the user wants it, and say how large it was."""
    result = og.run(problem, memory=given.memory, out=given.out)
    measured = result.record.measured
    fields = [field for field in problem.stencil.fields if not field.temporary]
    state = sum(field.levels * problem.stored_bytes(field.name) for field in fields)
    print(
        f"{' x '.join(map(str, problem.shape))} cells, {problem.steps} steps: "
        f"{state / measured.memory_limit_bytes:.2g} times the memory limit, "
        f"{measured.seconds:.1f} s, {measured.glups:.3g} GLUP/s"
    )
    return result
