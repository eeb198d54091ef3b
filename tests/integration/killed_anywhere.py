"""Kill a run before changes that it makes to the tree of files, and clear what it has left.

Before each second one, or before each with OUTGRID_HYPOTHESIS=thorough.

python killed_anywhere.py FOLDER: prints a line of JSON for each kill: in what it came, before which
change, what clearing told, what was there still after it, and after a run that replaces it.
"""

import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from unittest import mock

import msgspec

from outgrid import observe, pipeline
from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import Error, Stopped, UsageError
from outgrid.execute.stop import Stop
from outgrid.observe import Noted, Observer
from outgrid.runs.former import former
from outgrid.runs.leftovers import leftovers
from outgrid.sharing.pieces import Pieces
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import Snapshot

PROBLEM = Problem(
    "heat7",
    (40, 12, 32),
    "float64",
    8,
    {"k": 0.1},
    initial={"u": "x * y"},
    snapshots=[Snapshot("u", every=2, y=3)],
)
LOG_NAME = "log.txt"
CHANGES = {"os.mkdir", "os.rmdir", "os.rename", "os.remove"}
KILLED = 9
STRIDE = 1 if os.environ.get("OUTGRID_HYPOTHESIS") == "thorough" else 2


class Log(Observer):
    """An observer of one's own: a file that grows in the folder of the run."""

    @classmethod
    def files(cls, problem, options, *, alone=True):
        return (LOG_NAME,) if alone else ()

    def begin(self, manifest, found):
        if found is None:
            self._growing.touch(exist_ok=False)
        return manifest

    def commit(self, reached, manifest):
        if self._growing.exists():
            with self._growing.open("r+") as file:
                file.write(f"{reached.steps}\n")
        return manifest

    def place(self, comm):
        if self._growing.exists():
            self._growing.rename(self.run.out / LOG_NAME)
        assert (self.run.out / LOG_NAME).exists()
        return Noted()

    @property
    def _growing(self):
        return partial_path(self.run.out / LOG_NAME)


def options(out: Path, depth: int) -> RunOptions:
    """Those of a process that keeps working files in the folder of the run and beside it."""
    scratch = out / "flash" / "{rank}" if depth % 2 else None
    return RunOptions.of(
        memory="256MiB",
        out=out,
        scratch=scratch,
        tier="direct",
        depth=depth,
        slab_planes=4,
        threads=1,
    )


def begin(out: Path) -> None:
    """A new run, as one rank."""
    with in_pieces():
        pipeline.run(PROBLEM, options(out, 2), stop=stopping())


def alone(out: Path) -> None:
    """A new run of one process without ranks."""
    pipeline.run(PROBLEM, options(out, 2), stop=stopping())


def resume(out: Path) -> None:
    """Go on with other sweeps, in other files than those that are there."""
    with in_pieces():
        pipeline.resume(out, options(out, 3), stop=stopping())


def finish(out: Path) -> None:
    """Go on to the end."""
    with in_pieces():
        pipeline.resume(out, options(out, 2))


def in_pieces() -> AbstractContextManager[object]:
    """Let what one rank runs lie on the disk as that of several does."""

    def pieces(options: RunOptions, comm: Comm, begun: Path | None = None) -> Pieces:
        out = begun or options.results
        mine = msgspec.structs.replace(options.of_rank(0), out=out)
        return Pieces(out, mine, options.kept(out), comm)

    return mock.patch.object(pipeline, "sharing_of", pieces)


def stopping() -> Stop:
    """One that has been asked for already: a run stops at its first durable state."""
    stop = Stop()
    stop.request("enough")
    return stop


def killed(action: Callable[[Path], None], out: Path, number: int) -> int:
    """Do it in a process that ends before its change of that number; its exit code."""

    def child() -> None:
        left = number

        def look(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            makes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
            if (event in CHANGES or makes) and str(out) in str(arguments[0]):
                left -= 1
                if left < 0:
                    os._exit(KILLED)

        sys.addaudithook(look)
        with mock.patch.object(observe, "KINDS", (*observe.KINDS, Log)), suppress(Stopped):
            action(out)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return process.exitcode or 0


def cleared(out: Path) -> list[object]:
    """Clear what is left: how many steps were durable, what was not known as the run's, errors."""
    try:
        found = leftovers(out)
        deleted = leftovers(out, delete=True)
    except UsageError as error:
        return [None, [], str(error)]
    if found.manifest is None:
        return [None, [], "finished"]
    error = "" if deleted == found else "what was listed is not what was deleted"
    return [found.manifest.steps_done, [str(path) for path in found.foreign], error]


def replaced(out: Path) -> list[str]:
    """What is left where another run is to replace this one."""
    before = out.with_name("before")
    shutil.copytree(out, before)
    try:
        former(out).remove()
        return sorted(str(path.relative_to(out)) for path in out.rglob("*"))
    except Error as error:
        return [str(error)]
    finally:
        shutil.rmtree(out)
        before.rename(out)


def kill_everywhere(
    folder: Path, action: Callable[[Path], None], before: Path | None, number: int
) -> None:
    """Kill an action, from what is in the folder ``before``, at its changes from a number on."""
    out, code = folder / "out", KILLED
    while code == KILLED:
        if before is not None:
            shutil.copytree(before, out)
        code = killed(action, out, number)
        assert code in (0, KILLED)
        others = replaced(out) if out.exists() else []
        told = cleared(out) if out.exists() else None
        left = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
        seen = {"action": action.__name__, "number": number, "told": told, "left": left}
        seen["replaced"] = others
        sys.stdout.write(json.dumps(seen) + "\n")
        shutil.rmtree(out, ignore_errors=True)
        number += STRIDE


def main(folder: Path) -> None:
    """All ways to begin, and to go on from there."""
    for start, first in enumerate((begin, alone)):
        kill_everywhere(folder, first, None, start % STRIDE)
        assert killed(first, folder / "out", sys.maxsize) == 0
        before = (folder / "out").rename(folder / first.__name__)
        for action in (resume, finish):
            kill_everywhere(folder, action, before, start % STRIDE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
