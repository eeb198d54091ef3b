"""Every prefix of what a run did to its files is enough to go on from.

The operations of a run on a real file system are written down by a small library that is loaded
before all others (`operations.cpp`). The run is then cut off after each of them, in two ways: what
was done is there, as after kill -9; or the power fails, and of what was not flushed anything may be
there, torn, or missing, and of the last changes of names any number.

OUTGRID_PREFIXES=1 looks at every prefix in the suite, too; its default is every ninth.
"""

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from outgrid import pipeline
from outgrid.build.compiler import find_compiler
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.runs.leftovers import leftovers
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.state import RunFolder
from outgrid.runs.verify import verify

EVERY = int(os.environ.get("OUTGRID_PREFIXES", "9"))
JOB = """
[problem]
stencil = "wave:2"
shape = {shape}
steps = {steps}
boundary = {boundary}
initial = {{u = "sin(x + 2*y + 3*z)", c = 0.1}}
[run]
memory = "256MiB"
tier = "direct"
depth = 3
slab_planes = 3
threads = 1
engine = "threads"
queue_depth = 1
commit_every = 0
out = "run"
{cut}
"""


@dataclass(frozen=True)
class Case:
    """A problem, how its first process cuts it, and what those that resume it do, in turn."""

    shape: tuple[int, int, int]
    steps: int
    others: tuple[dict[str, Any], ...]
    boundary: str = '"dirichlet"'
    cut: str = ""

    @property
    def job(self) -> str:
        words = {"steps": self.steps, "boundary": self.boundary, "cut": self.cut}
        return JOB.format(shape=list(self.shape), **words)


CASES = {
    "whole planes": Case(
        (14, 8, 33),
        7,
        (
            {"depth": 3, "slab_planes": 3},
            {"depth": 2, "slab_planes": 1, "commit_every": 0},
            {"depth": 7, "slab_planes": 4},
            {"tier": "memory"},
            {"strip_rows": 5, "depth": 2},
        ),
    ),
    "strips": Case(
        (14, 9, 33),
        4,
        (
            {"depth": 3, "slab_planes": 3, "strip_rows": 5},
            {"depth": 2, "slab_planes": 1, "strip_rows": 5, "commit_every": 0},
            {"depth": 3, "slab_planes": 2, "strip_rows": 4},
            {"tier": "memory"},
        ),
        cut="strip_rows = 5",
    ),
    "planes that come round": Case(
        (24, 5, 33),
        4,
        (
            {"depth": 3, "slab_planes": 3},
            {"depth": 2, "slab_planes": 1, "commit_every": 0},
            {"depth": 3, "slab_planes": 2},
            {"tier": "memory"},
        ),
        boundary='{z = "periodic"}',
    ),
}


@dataclass(frozen=True)
class Operation:
    """One change or flush of a file; ``words`` are its path and numbers."""

    kind: str
    words: tuple[str, ...]
    content: bytes = b""


def read_operations(log: Path) -> list[Operation]:
    found: list[Operation] = []
    with log.open("rb") as file:
        while line := file.readline():
            kind, *words = line.decode().split()
            content = b""
            if kind == "write":
                content = file.read(int(words[2]))
                assert file.read(1) == b"\n"
            found.append(Operation(kind, tuple(words), content))
    return found


@dataclass
class Node:
    """A file whatever it is called: what is durable of it, and what was done since."""

    durable: bytearray = field(default_factory=bytearray)
    later: list[tuple[int, bytes]] = field(default_factory=list)

    def change(self, at: int, content: bytes) -> None:
        self.later.append((at, content))

    def flush(self) -> None:
        self.durable = self.after(1.0, random.Random(0))
        self.later = []

    def after(self, share: float, chance: random.Random) -> bytearray:
        """What is there if ``share`` of the later changes are; others are torn or missing."""
        found = bytearray(self.durable)
        changes = list(self.later)
        if share < 1:
            chance.shuffle(changes)
        for at, content in changes:
            first, last = 0, len(content)
            if chance.random() >= share:
                first, last = sorted((chance.randint(0, last), chance.randint(0, last)))
            if len(found) < at + len(content):
                found.extend(bytes(at + len(content) - len(found)))
            found[at + first : at + last] = content[first:last]
        return found


class Disk:
    """Files by name, and how the names were changed since the last flush of a folder."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.renamed: list[dict[str, Node]] = []  # what the names were before

    def do(self, operation: Operation) -> None:
        path = operation.words[0]
        match operation.kind:
            case "sync" if path not in self.names:  # a folder
                self.renamed = []
            case "sync":
                self.names[path].flush()
            case "write":
                self._node(path).change(int(operation.words[1]), operation.content)
            case "size":
                self._resize(self._node(path), int(operation.words[1]))
            case "rename":
                self.renamed.append(dict(self.names))
                self.names[operation.words[1]] = self.names.pop(path)
            case "link":
                self.renamed.append(dict(self.names))
                self.names[operation.words[1]] = self.names[path]
            case "unlink":
                self.renamed.append(dict(self.names))
                self.names.pop(path, None)

    def _node(self, path: str) -> Node:
        if path not in self.names:
            self.renamed.append(dict(self.names))
            self.names[path] = Node()
        return self.names[path]

    def _resize(self, node: Node, nbytes: int) -> None:
        """Lengths are taken as durable: a journal keeps them in order with the names."""
        node.durable = (node.durable + bytes(max(0, nbytes - len(node.durable))))[:nbytes]

    def after_kill(self) -> dict[str, bytearray]:
        nothing = random.Random(0)
        return contents(self.names, lambda node: node.after(1.0, nothing))

    def after_power_loss(self, chance: random.Random) -> dict[str, bytearray]:
        names = chance.choice([*self.renamed, self.names])
        return contents(names, lambda node: node.after(chance.choice([0.0, 0.5]), chance))


def contents(names: dict[str, Node], content: Callable[[Node], bytearray]) -> dict[str, bytearray]:
    """What is there by name; names of one file have the same object."""
    found = {id(node): content(node) for node in names.values()}
    return {path: found[id(node)] for path, node in names.items()}


def written_down(folder: Path, under: Path, *command: str) -> list[Operation]:
    """What a command does to files below ``under``; ``folder`` is for what that takes."""
    library, log = folder / "operations.so", folder / "operations"
    source = Path(__file__).with_name("operations.cpp")
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run([*find_compiler().command, *flags], check=True)
    preloaded = {
        "LD_PRELOAD": str(library),
        "OUTGRID_OPERATIONS": str(log),
        "OUTGRID_UNDER": str(under),
    }
    environment = os.environ | preloaded
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return read_operations(log)


Recorded = tuple[Case, Path, list[Operation], dict[str, bytes]]


@pytest.fixture(scope="module", params=CASES)
def recorded(request, tmp_path_factory) -> Recorded:
    """A case, the folder of its run, what that did there, and its results."""
    case = CASES[request.param]
    folder = tmp_path_factory.mktemp("operations").resolve()
    (folder / "job.toml").write_text(case.job)
    command = [sys.executable, "-m", "outgrid", "run", str(folder / "job.toml"), "--quiet"]
    operations = written_down(folder, folder / "run", *command)
    results = {path.name: path.read_bytes() for path in (folder / "run").glob("*.npy")}
    return case, folder / "run", operations, results


def place(run: Path, files: dict[str, bytearray], out: Path) -> None:
    """Make ``files``, named as those below ``run``, below ``out``."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "scratch").mkdir(parents=True)
    first = dict[int, Path]()
    for path, content in files.items():
        name = out / Path(path).relative_to(run)
        name.parent.mkdir(parents=True, exist_ok=True)
        if id(content) in first:
            name.hardlink_to(first[id(content)])
        else:
            name.write_bytes(content)
            first[id(content)] = name


def go_on(out: Path, other: dict[str, Any], results: dict[str, bytes]) -> str:
    """Resume, or begin anew where nothing was durable yet; what it came to."""
    options = RunOptions.of(memory="256MiB", out=out, threads=1, **other)
    if not (out / MANIFEST_NAME).exists():
        if (out / "record.json").exists():
            assert not verify(out).errors
            assert {path.name: path.read_bytes() for path in out.glob("*.npy")} == results
            return "finished"
        return "not begun"
    if RunFolder.of_manifest(out)[1].steps_done < 0:
        with pytest.raises(UsageError, match="before its initial values were complete"):
            pipeline.resume(out, options)
        leftovers(out, delete=True)
        assert not list(out.rglob("*.npy"))
        return "begun anew"
    pipeline.resume(out, options)
    assert {path.name: path.read_bytes() for path in out.glob("*.npy")} == results
    return "resumed"


def test_commits_lie_within_sweeps_and_within_each_of_their_trips(recorded):
    case, _, operations, _ = recorded
    texts = [each.content for each in operations if each.kind == "write"]
    manifests = [json.loads(text) for text in texts if text.startswith(b'{"version"')]
    within = [each for each in manifests if each.get("planes", 0) > 0]
    assert {each["part"] for each in within} == set(range(3 if case.cut else 1))


@pytest.mark.parametrize("way", ["kill", "power loss"])
def test_every_prefix_is_enough_to_go_on_from(way, recorded, tmp_path, record_property):
    case, run, operations, results = recorded
    shared = Path("/dev/shm")
    out = (shared / f"outgrid-{os.getpid()}" if shared.is_dir() else tmp_path) / "run"
    disk, chance, came_to = Disk(), random.Random(way), dict[str, int]()
    try:
        for number, operation in enumerate(operations):
            disk.do(operation)
            if number % EVERY and number + 1 < len(operations):
                continue
            found = disk.after_kill() if way == "kill" else disk.after_power_loss(chance)
            place(run, found, out)
            end = go_on(out, case.others[number // EVERY % len(case.others)], results)
            came_to[end] = came_to.get(end, 0) + 1
    finally:
        shutil.rmtree(out.parent, ignore_errors=True)
    for end, count in came_to.items():
        record_property(f"{way}: {end}", count)
    assert came_to["resumed"] > len(operations) / EVERY / 2
    assert came_to["begun anew"] > 0


LOSSES = 40
BUILD = """
import sys
from pathlib import Path
from outgrid.build.compiler import build, find_compiler
for folder in sys.argv[1:]:
    source = 'extern "C" int answer() { return 42; }'
    found = build(source, find_compiler(), Path(folder))
    print(found.handle.answer(), found.cached)
"""


def test_so_is_every_prefix_of_what_keeping_a_kernel_does(tmp_path, monkeypatch):
    # What the compiler itself writes is gone when it has ended.
    quiet = tmp_path / "compiler"
    words = shlex.join(find_compiler().command)
    quiet.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {words} "$@"\n')
    quiet.chmod(0o755)
    monkeypatch.setenv("CXX", str(quiet))
    cache, chance, disk = tmp_path / "cache", random.Random(5), Disk()
    command = [sys.executable, "-c", BUILD]
    operations = written_down(tmp_path, cache, *command, str(cache))
    (made,) = cache.rglob("*.so")
    assert made.read_bytes() in [each.content for each in operations]
    found: list[dict[str, bytearray]] = []
    for operation in operations:
        disk.do(operation)
        found += [disk.after_kill(), disk.after_power_loss(chance)]
    found += [disk.after_power_loss(chance) for _ in range(LOSSES)]
    left = [tmp_path / str(number) for number in range(len(found))]
    for folder, files in zip(left, found, strict=True):
        for path, content in files.items():
            place = folder / Path(path).relative_to(cache)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    done = subprocess.run([*command, *map(str, left)], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    said = done.stdout.splitlines()
    assert len(said) == len(left)
    assert set(said) == {"42 True", "42 False"}
    assert set(said[-LOSSES:]) == {"42 True"}  # what was kept once stays
