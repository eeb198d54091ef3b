"""Soak: random problems, cut off again and again in every way there is, and resumed to the end.

python tools/soak.py --minutes 30 --record benchmarks/records/soak.json

Each problem is first run plainly, in memory, one step per sweep; where it is small, that answer is
compared with the NumPy reference as well. Then it is run with random settings by processes that are
killed at random moments or at random system calls, get signals, run out of time, or meet failing,
late and lost system calls; bits of their files are flipped in between. Some keep their fields in
swap, or in the memory of other ranks: nothing is left of those, or what they kept on disk as well.
Each is resumed with other settings, until one comes to the end. What it leaves has to be the bytes
of the answer; where initial values have NaN, but for which NaN it is. Some begin with files of
other formats, and some leave their fields in one file of HDF5, NetCDF or VTK.

Processes are forked from this one, which has everything imported: what is cut off is the run, not
the start of the interpreter. System calls fail by a preloaded library, that of the tests of faults
(tests/integration/faults.cpp), and are those of the engine `threads`.
"""

import argparse
import collections
import contextlib
import datetime
import errno
import io
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import psutil
from origin import keep

import outgrid as og
from outgrid.build.compiler import find_compiler
from outgrid.cli import main as outgrid
from outgrid.cli import resume, run, verify  # noqa: F401 - imported once, before the forks
from outgrid.formats.npy import HEADER_BYTES
from outgrid.job import load_job
from outgrid.native import engines
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.storage import transfers
from outgrid.testing.reference import reference_with_bound

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "integration" / "faults.cpp"
PREFIXES = ROOT / "tests" / "integration" / "test_operations.py"
RULES = ROOT / "tools" / "soak_rules.py"

HANG_SECONDS = 180.0  # no run takes more than a few
STUCK_SECONDS = 0.5  # after which the watchdog names a request that does not end
MOST_ATTEMPTS = 30
LENT_UPDATES = 5_000_000
SMALL_UPDATES = 400_000  # of problems that are compared with the NumPy reference, too
ERRORS = (errno.EIO, errno.ENOSPC, errno.ENODEV, errno.EROFS, errno.EDQUOT)
CALLS = ("read", "write", "sync", "pwrite", "fsync", "rename")
# (rule, fields, radius along each axis, stages)
STENCILS = (
    ("heat5", ("u",), (1, 1), 1),
    ("wave:4", ("u", "c"), (2, 2, 2), 1),
    ("heat7", ("u",), (1, 1, 1), 1),
    ("wave:2", ("u", "c"), (1, 1), 1),
    (f"{RULES}:coupled", ("u", "v", "c"), (1, 1, 1), 1),
    (f"{RULES}:leaning", ("u",), (1, 0), 1),
    (f"{RULES}:staggered", ("e", "h", "c"), (1, 2, 1), 2),
    (f"{RULES}:masked", ("u", "v", "mask"), (1, 1, 1), 1),
)
SPREAD_SHARE = 0.2  # of all problems
CLOSED_SHARE = 0.15
FILE_SHARE = 0.25  # with fields that are left in one file
LEFT = [".h5", ".nc", ".vtkhdf"]
GIVEN = [".h5", ".nii", ".zarr"]  # what values are given in, beside .npy
MIXED_SHARE = 0.3  # of those in double precision, with fields in single
ODD_SHARE = 0.2
MPIEXEC = Path(sys.executable).parent / "mpiexec"
RANKS = 3  # one computes, the others lend
WAYS = {  # how an attempt is cut off, and how often of all
    "kill at a moment": 40,
    "kill at a call": 25,
    "SIGTERM": 7,
    "SIGINT": 5,
    "time limit": 4,
    "call fails": 9,
    "call is late": 2,
    "call is lost": 2,
    "bit flipped": 4,
    "kill on tier swap": 6,
    "kill on tier remote": 3 if MPIEXEC.exists() else 0,
    "nothing": 2,
}


@dataclass
class Case:
    """One problem: the text of its table, its shape and steps, and what it may be run with."""

    table: str
    shape: tuple[int, ...]
    steps: int
    stages: int
    radius: tuple[int, ...]
    closed: bool = False  # periodic along the streamed axis
    mixed: bool = False  # fields of several types
    odd: bool = False  # NaN, infinities, denormals and -0 among the initial values
    file: str = ""  # the suffix of the one file in which the fields are left, if any
    places: tuple[str, ...] = ()  # settings that spread the fields over several folders
    seconds: float = 1.0  # of the longest run so far


@dataclass
class Counts:
    """What happened."""

    problems: int = 0
    checked_with_numpy: int = 0
    attempts: int = 0
    cut: collections.Counter[str] = field(default_factory=collections.Counter)
    ended: collections.Counter[str] = field(default_factory=collections.Counter)
    begun_anew: int = 0
    in_mid_sweep: int = 0
    closed: int = 0  # problems that are periodic along the streamed axis
    spread: int = 0  # problems whose fields lay in several folders
    mixed: int = 0  # problems whose fields are of several types
    files: int = 0  # problems whose fields are left in one file
    odd: int = 0  # problems with values that are no numbers, or hardly
    nothing_left: int = 0  # runs that were killed and had kept nothing, which was said
    ranks_killed: int = 0
    flips_named: int = 0
    flips_without_effect: int = 0
    wrong: int = 0
    hangs: int = 0
    unexpected: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Processes that really ended by SIGKILL."""
        return self.ended["killed"]

    def line(self) -> str:
        return (
            f"{self.problems} problems, {self.attempts} processes, {self.kills} killed, "
            f"{self.in_mid_sweep} resumed in mid-sweep, {self.wrong} wrong, {self.hangs} hung, "
            f"{len(self.unexpected)} unexpected"
        )


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or the signal as a negative number; and its words."""

    status: int
    words: str
    seconds: float


def child(arguments: list[str], folder: Path, fault: str = "", act: Any = None) -> Ended | None:
    """Run a command in a fork of this process; None where it hangs.

    ``act(pid)`` may do something to it in the meantime.
    """
    log = folder / "words.txt"
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            with log.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.environ["OUTGRID_FAULT"] = fault
            if ":stuck:" in fault:
                transfers.STUCK_SECONDS = STUCK_SECONDS
            status = outgrid(arguments)
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    if act is not None:
        act(pid)
    while time.monotonic() - begin < HANG_SECONDS:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            words = log.read_text(errors="replace") if log.exists() else ""
            return Ended(os.waitstatus_to_exitcode(status), words, time.monotonic() - begin)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def draw_case(chance: random.Random, folder: Path) -> Case:
    """A random problem; its random initial values are left in ``folder``."""
    rule, fields, radius, stages = chance.choice(STENCILS)
    columns = chance.choice([chance.randint(9, 200), chance.randint(9, 200), 512, 1024])
    if len(radius) == 2:
        shape = (chance.randint(30, 300), columns)
    else:
        shape = (chance.randint(20, 120), chance.randint(9, 30), columns)
    steps = chance.randint(6, 80)
    dtype = chance.choice(["float32", "float64"])
    closed = chance.random() < CLOSED_SHARE
    boundary = chance.choice(['kind = "dirichlet"', 'kind = "dirichlet", value = 0.5'])
    if closed:
        shape = (60 + shape[0], *shape[1:])  # what is in the window must not meet itself
        boundary += f', {"zy"[len(shape) == 2]} = "periodic"'
    values = np.random.default_rng(chance.randrange(1 << 32))
    odd = chance.random() < ODD_SHARE
    types = {"mask": "uint8"} if "mask" in fields else {}
    if dtype == "float64" and chance.random() < MIXED_SHARE:
        types |= {name: "float32" for name in fields if name not in types and values.random() < 0.6}
    initial = []
    for name in fields:
        if name == "c":
            initial.append("c = 0.1")
        else:
            given = drawn(values, shape, types.get(name, dtype), odd)
            np.save(folder / f"{name}.npy", given)
            suffix = chance.choice([".npy"] * 3 + GIVEN)
            if suffix != ".npy":
                chunks = 8 if suffix == ".zarr" else None  # that fit into small windows
                to = folder / f"{name}{suffix}"
                og.convert(og.InputFile(f"{folder / name}.npy"), to, chunks=chunks)
            initial.append(f'{name} = "{folder / name}{suffix}"')
    kept = ", ".join(f'{name} = "{kind}"' for name, kind in types.items())
    table = (
        f'[problem]\nstencil = "{rule}"\nshape = {list(shape)}\nsteps = {steps}\n'
        f'dtype = "{dtype}"\nboundary = {{{boundary}}}\ninitial = {{{", ".join(initial)}}}\n'
        f"dtypes = {{{kept}}}\n"
    )
    file = chance.choice(LEFT) if chance.random() < FILE_SHARE else ""
    return Case(table, shape, steps, stages, radius, closed, bool(types), odd, file)


def drawn(
    values: np.random.Generator, shape: tuple[int, ...], dtype: str, odd: bool
) -> np.ndarray[Any, Any]:
    """Random values of a field, all kinds of them where they are ``odd``."""
    if dtype == "uint8":
        return values.integers(0, 256, shape, np.uint8)
    numbers = values.random(shape).astype(dtype)
    if odd:
        numbers[values.random(shape) < 0.1] = -0.0
        numbers[values.random(shape) < 0.1] = np.finfo(dtype).smallest_subnormal
        for value in (np.nan, -np.nan, np.inf, -np.inf, np.finfo(dtype).max):
            numbers[tuple(values.integers(0, shape))] = value
    return numbers


def may_lend(case: Case) -> bool:
    """Whether it goes to other ranks: in one folder, and small, as ranks share few processors."""
    return not case.places and not case.file and math.prod(case.shape) * case.steps < LENT_UPDATES


def same(path: Path, content: bytes, odd: bool) -> bool:
    """Whether a result is the answer; of ``odd`` values any NaN is as good as another."""
    if path.read_bytes() == content:
        return True
    if not odd:
        return False
    answer, wanted = np.load(path), np.load(io.BytesIO(content))
    return np.array_equal(np.isnan(answer), np.isnan(wanted)) and (
        np.nan_to_num(answer, nan=0.0, posinf=np.inf, neginf=-np.inf).tobytes()
        == np.nan_to_num(wanted, nan=0.0, posinf=np.inf, neginf=-np.inf).tobytes()
    )


def draw_settings(case: Case, chance: random.Random, engine: str | None) -> list[str]:
    """Random settings, as arguments of run and resume."""
    drawn_settings: dict[str, Any] = {
        "scheme": "auto",  # not what the process before had
        "tier": chance.choice(["direct"] * 7 + ["memory", "auto"]),
        "threads": chance.choice([1, 1, 1, 2]),
        "engine": engine or chance.choice(["auto", *engines()]),
        "queue_depth": chance.choice([1, 2, 16]),
        "request_bytes": chance.choice([1 << 12, 1 << 14, 1 << 16, 1 << 21]),
        "commit_every": chance.choice([0, 0, 0, 0, 0.001, 30]),
    }
    if chance.random() < 0.8:
        drawn_settings["depth"] = chance.randint(1, 4 if case.closed else 9)
    if chance.random() < 0.7:
        drawn_settings["slab_planes"] = chance.randint(1, min(7, case.shape[0]))
    if drawn_settings["tier"] != "memory" and case.stages == 1 and not case.closed:
        if chance.random() < 0.08:
            cells = [n - 2 * reach for n, reach in zip(case.shape, case.radius, strict=True)]
            edges = [chance.randint(3, max(3, most)) for most in cells[:-1]]
            drawn_settings |= {
                "scheme": "overlapped",
                "tier": "direct",
                "block": [*edges, cells[-1]],
            }
            drawn_settings.pop("slab_planes", None)
        elif len(case.shape) == 3 and chance.random() < 0.3:
            drawn_settings["strip_rows"] = chance.randint(2, case.shape[1] + 4)
    arguments = ["--memory", "512MiB", "--quiet"]
    for name, value in drawn_settings.items():
        arguments += ["--set", f"{name}={json.dumps(value)}"]
    return arguments


def left_in(case: Case, out: Path) -> str:
    """What a run is told to leave: its folder, or the one file that belongs to it."""
    return str(out.with_suffix(case.file) if case.file else out)


def take_out(out: Path, answer: dict[str, bytes]) -> None:
    """Write what is in the one file of a result as files of a folder, as the answer has them."""
    result = og.open(out)
    for name, content in answer.items():
        if not (out / name).exists():
            values, begin = np.asarray(result[Path(name).stem]).tobytes(), HEADER_BYTES
            (out / name).write_bytes(content[:begin] + values + content[begin + len(values) :])


def draw_places(out: Path, chance: random.Random) -> tuple[str, ...]:
    """Arguments that spread the fields over two or three folders, striped or in turn; or none."""
    if chance.random() > SPREAD_SHARE:
        return ()
    places = [str(out / name) for name in ("scratch", "beside", "behind")[: chance.randint(2, 3)]]
    stripe = chance.choice([None, 4096, 1 << 16])
    given = ["--set", f"scratch={json.dumps(places)}"]
    return (*given, *(["--set", f"stripe={stripe}"] if stripe else []))


class Soak:
    """A sequence of problems and the counts of what happened to them."""

    def __init__(self, folders: list[Path], seed: int) -> None:
        self.folders, self.folder = folders, folders[0]
        self.counts = Counts()
        self.chance = random.Random(seed)

    def until(self, end: float, record: Callable[[], None]) -> None:
        """One problem after another while there is time, with a record from time to time."""
        shown = time.monotonic()
        while time.monotonic() < end:
            number = self.counts.problems
            try:
                self._problem()
            except AssertionError as error:
                self.counts.unexpected.append(f"problem {number}: {error}")
                print(self.counts.unexpected[-1], flush=True)
                kept = self.folders[0].with_name(f"kept-{number}")
                shutil.copytree(self.folder, kept, dirs_exist_ok=True)
            if time.monotonic() - shown > 20:
                shown = time.monotonic()
                print(self.counts.line(), flush=True)
                record()

    def _problem(self) -> None:
        chance, counts = self.chance, self.counts
        self.folder = self.folders[counts.problems % len(self.folders)]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        case = draw_case(chance, self.folder)
        counts.problems += 1
        (self.folder / "job.toml").write_text(case.table)
        answer = self._answer(case)
        out = self.folder / "run.run"
        case.places = draw_places(out, chance)
        counts.closed += case.closed
        counts.spread += bool(case.places)
        counts.mixed += case.mixed
        counts.files += bool(case.file)
        counts.odd += case.odd
        for attempt in range(MOST_ATTEMPTS + 1):
            way = chance.choices([*WAYS], [*WAYS.values()])[0]
            if attempt == MOST_ATTEMPTS:
                way = "nothing"
            if self._attempt(case, way, out):
                break
        else:
            raise AssertionError(f"no end after {MOST_ATTEMPTS} attempts")
        verified = outgrid_quietly(["verify", str(out)], self.folder)
        if case.file:
            take_out(out, answer)
        for name, content in answer.items():
            if not same(out / name, content, case.odd):
                counts.wrong += 1
                raise AssertionError(f"{name} differs from the answer")
        assert verified == 0, "the result is not verified"

    def _answer(self, case: Case) -> dict[str, bytes]:
        """The fields that a plain run in memory leaves, byte by byte."""
        out = self.folder / "plain"
        settings = ["tier=memory", "depth=1", "threads=1", "commit_every=1000"]
        given = [part for setting in settings for part in ("--set", setting)]
        arguments = ["run", str(self.folder / "job.toml"), "--out", str(out), "--quiet", *given]
        ended = child([*arguments, "--memory", "512MiB"], self.folder)
        assert ended is not None, "the plain run hangs"
        assert ended.status == 0, f"the plain run: {ended}"
        case.seconds = max(0.05, ended.seconds)
        arrays = {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}
        if np.prod(case.shape) * case.steps <= SMALL_UPDATES and not case.odd:
            self._compare_with_numpy(out)
        return arrays

    def _compare_with_numpy(self, out: Path) -> None:
        problem = load_job(self.folder / "job.toml", {"memory": "1GiB"}).problem
        reference, bounds = reference_with_bound(problem)
        for path in out.glob("*.npy"):
            name, values = path.stem, np.load(path).astype(np.float64)
            bound, exact = bounds[name], reference[name].astype(np.float64)
            error, promised = np.abs(values - exact), np.isfinite(bound)
            if not (error <= 2 * bound)[promised].all():
                self.counts.wrong += 1
                raise AssertionError(f"{name} of the plain run differs from NumPy's")
        self.counts.checked_with_numpy += 1

    def _attempt(self, case: Case, way: str, out: Path) -> bool:
        """Run or resume once; whether the run has come to its end."""
        counts, chance = self.counts, self.chance
        begun = (out / MANIFEST_NAME).exists()
        if begun:
            manifest = json.loads((out / MANIFEST_NAME).read_text())
            if manifest["steps_done"] < 0:
                counts.begun_anew += 1
                assert outgrid_quietly(["clean", str(out), "--delete"], self.folder) == 0
                begun = False
            elif manifest["part"] or manifest["planes"]:
                counts.in_mid_sweep += 1
        else:
            # What a run leaves that could not write its manifest, not even remove what it had made.
            shutil.rmtree(out, ignore_errors=True)
        if way == "bit flipped":
            if not begun or case.file:  # which has the arrays of several names
                return False
            return self._with_a_flip(case, out)
        if way == "kill on tier swap":
            return not begun and self._on_swap(case, out)
        if way == "kill on tier remote":
            return self._on_remote(case, begun, out) if may_lend(case) else False
        by_call = way.startswith("call") or way == "kill at a call"
        settings = draw_settings(case, chance, "threads" if by_call else None)
        fault, act = self._cut(case, way, settings)
        counts.attempts += 1
        counts.cut[way] += 1
        ended = child(self._command(case, begun, out, settings), self.folder, fault, act)
        if ended is None:
            counts.hangs += 1
            raise AssertionError(f"{way}: no end within {HANG_SECONDS:g} s")
        self._judge(way, ended)
        case.seconds = max(case.seconds, ended.seconds) if ended.status == 0 else case.seconds
        return ended.status == 0

    def _command(self, case: Case, begun: bool, out: Path, settings: list[str]) -> list[str]:
        if begun:
            return ["resume", str(out), *settings]
        job = str(self.folder / "job.toml")
        return ["run", job, "--out", left_in(case, out), *settings, *case.places]

    def _cut(self, case: Case, way: str, settings: list[str]) -> tuple[str, Any]:
        """The fault and the act that cut an attempt off."""
        chance = self.chance
        call = chance.choice(CALLS)
        most = {"fsync": 60, "rename": 30, "sync": 200}.get(call, 1500)
        index = int(most ** chance.random()) - 1
        match way:
            case "kill at a call":
                return f"{call}:kill:{index}:1", None
            case "call fails":
                count = chance.choice([1, 1, 1 << 30])
                return f"{call}:{chance.choice(ERRORS)}:{index}:{count}", None
            case "call is late":
                return f"{chance.choice(['read', 'write', 'sync'])}:slow:{index}:20", None
            case "call is lost":
                return f"{chance.choice(['read', 'write'])}:stuck:{index}:1", None
            case "time limit":
                settings += ["--stop-after", f"{chance.randint(1, 300)}ms"]
                return "", None
            case "nothing":
                return "", None
        sign = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}.get(way, signal.SIGKILL)
        return "", self._signal(case, sign, sign != signal.SIGKILL and chance.random() < 0.2)

    def _signal(self, case: Case, sign: signal.Signals, again: bool = False) -> Any:
        """An act that sends a signal at a random moment."""
        delay = self.chance.random() ** 1.5 * case.seconds

        def act(pid: int) -> None:
            end = time.monotonic() + delay
            while time.monotonic() < end:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
                time.sleep(0.0005)
            os.kill(pid, sign)
            if again:
                time.sleep(0.002)
                os.kill(pid, sign)

        return act

    def _on_swap(self, case: Case, out: Path) -> bool:
        """Kill a run whose fields end with it: it comes to its end, or nothing is left of it."""
        way, counts = "kill on tier swap", self.counts
        settings = ["--memory", "512MiB", "--quiet", "--set", "tier=swap"]
        settings += ["--set", f"depth={self.chance.randint(1, 4)}"]
        counts.attempts += 1
        counts.cut[way] += 1
        job = ["run", str(self.folder / "job.toml"), "--out", left_in(case, out), *settings]
        ended = child(job, self.folder, act=self._signal(case, signal.SIGKILL))
        if ended is None:
            counts.hangs += 1
            raise AssertionError(f"{way}: no end within {HANG_SECONDS:g} s")
        self._judge(way, ended)
        if ended.status != 0:
            self._nothing_left(out)
        return ended.status == 0

    def _nothing_left(self, out: Path) -> None:
        """A resume has to say so, and a clean makes room."""
        if not (out / MANIFEST_NAME).exists():
            return
        ended = child(["resume", str(out), "--memory", "512MiB", "--quiet"], self.folder)
        assert ended is not None, "a resume of what was kept in memory hangs"
        assert ended.status == 2, f"resumed what was kept in memory: {ended}"
        assert "cannot be resumed" in ended.words, ended.words
        assert outgrid_quietly(["clean", str(out), "--delete"], self.folder) == 0
        self.counts.nothing_left += 1

    def _on_remote(self, case: Case, begun: bool, out: Path) -> bool:
        """Kill some or all ranks of a run in lent memory, and see what is left of it."""
        way, counts, chance = "kill on tier remote", self.counts, self.chance
        kept = "disk" if begun else chance.choice(["disk", "none"])
        settings = ["--memory", "512MiB", "--quiet", "--set", "tier=remote", "--set", "threads=1"]
        settings += ["--set", f"keep={kept}", "--set", "lend=64MiB"]
        command = self._command(case, begun, out, settings)
        counts.attempts += 1
        counts.cut[way] += 1
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        environment |= {"MPIR_CVAR_ENABLE_BUSY_WAIT_YIELD": "1", "OMP_NUM_THREADS": "1"}
        words = self.folder / "words.txt"
        with words.open("wb") as file:
            launcher = subprocess.Popen(
                [MPIEXEC, "-n", str(RANKS), sys.executable, "-m", "outgrid", *command],
                env=environment,
                stdout=file,
                stderr=file,
            )
        begin = time.monotonic()
        victims: list[psutil.Process] = []
        wanted = (out / MANIFEST_NAME).exists  # some time after it is there, or has changed
        while launcher.poll() is None and not wanted() and time.monotonic() - begin < HANG_SECONDS:
            time.sleep(0.001)
        time.sleep(chance.random() ** 1.5 * 3 * case.seconds)
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(launcher.pid).children(recursive=True)
            victims = [process for process in children if "outgrid" in process.cmdline()]
        for victim in victims if chance.random() < 0.5 else victims[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                counts.ranks_killed += 1
        try:
            status = launcher.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            for process in (*psutil.Process(launcher.pid).children(recursive=True), launcher):
                process.kill()
            launcher.wait()
            counts.hangs += 1
            raise AssertionError(f"{way}: no end within {HANG_SECONDS:g} s") from None
        told = words.read_text(errors="replace")
        assert status == 0 or victims, f"{way}: status {status}: {told[-2000:]}"
        assert "Traceback" not in told, f"{way}: {told[-2000:]}"
        counts.ended["done" if status == 0 else "killed"] += 1
        if status != 0 and kept == "none":
            self._nothing_left(out)
        return status == 0

    def _judge(self, way: str, ended: Ended) -> None:
        """Every end but those that the way explains is noted."""
        counts = self.counts
        names = {0: "done", 75: "stopped", 4: "failed in words", -9: "killed"}
        names |= {130: "interrupted", 143: "interrupted", -2: "interrupted", -15: "interrupted"}
        name = names.get(ended.status, "unexpected")
        counts.ended[name] += 1
        allowed = {"done"}
        allowed |= {"killed"} if way.startswith("kill") else set()
        allowed |= {"stopped", "interrupted"} if way.startswith("SIG") else set()
        allowed |= {"stopped"} if way == "time limit" else set()
        allowed |= {"failed in words"} if way in ("call fails", "call is lost") else set()
        assert name in allowed, f"{way}: status {ended.status}: {ended.words[-2000:]}"
        # What a signal raises within a destructor Python can only print.
        lost = way.startswith("SIG") and "Exception ignored in" in ended.words
        assert lost or "Traceback" not in ended.words, f"{way}: {ended.words[-2000:]}"
        if name == "failed in words":
            assert re.search(r"errno \d+|no transfer ended", ended.words), f"{way}: {ended.words}"

    def _with_a_flip(self, case: Case, out: Path) -> bool:
        """Flip one bit of a working file, see what comes of it, and put everything back."""
        counts, chance = self.counts, self.chance
        candidates = [*out.glob("*/*.npy*"), *out.glob("*/*.spread.*")]
        files = sorted(path for path in candidates if path.stat().st_size)
        kept = self.folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(out, kept)
        path = chance.choice(files)
        flip(path, chance)
        counts.attempts += 1
        counts.cut["bit flipped"] += 1
        command = self._command(case, True, out, draw_settings(case, chance, None))
        ended = child(command, self.folder)
        if ended is None:
            counts.hangs += 1
            raise AssertionError("bit flipped: no end")
        named = re.sub(r"\.spread\.\d+$", ".spread", path.name.removesuffix(".xxh3"))
        if ended.status == 0:
            counts.ended["done"] += 1
            verified = outgrid_quietly(["verify", str(out)], self.folder)
            assert verified in (0, 1), f"bit flipped: verify ends with {verified}"
            if verified == 0:
                # It lay where nothing durable was: the bytes are compared as ever.
                counts.flips_without_effect += 1
                return True
            # What need not be read to finish a run is found where its results are read.
        else:
            # A header that cannot be read any more is refused as a file of another kind.
            words = f"bit flipped: status {ended.status}: {ended.words[-2000:]}"
            assert ended.status in (2, 4), words
            assert named in ended.words, words
            counts.ended["failed in words"] += 1
        counts.flips_named += 1
        shutil.rmtree(out)
        kept.rename(out)
        return False


def flip(path: Path, chance: random.Random) -> None:
    """Change one random bit of a file."""
    with path.open("r+b") as file:
        at = chance.randrange(path.stat().st_size)
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))


def outgrid_quietly(arguments: list[str], folder: Path) -> int:
    """The exit code of a command in a fork."""
    ended = child(arguments, folder)
    return 99 if ended is None else ended.status


def detect_flips(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Flip ``count`` single bits of finished runs, one at a time; how many `verify` finds."""
    chance, detected, missed = random.Random(seed), 0, []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case = draw_case(chance, folder)
    (folder / "job.toml").write_text(case.table)
    out = folder / "run"
    command = ["run", str(folder / "job.toml"), "--out", str(out), "--memory", "512MiB"]
    ended = child([*command, "--set", "tier=direct"], folder)
    assert ended is not None, "a run hangs"
    assert ended.status == 0, ended
    files = sorted(out.glob("*.npy*"))
    for _ in range(count):
        path = chance.choice(files)
        before = path.read_bytes()
        flip(path, chance)
        ended = child(["verify", str(out)], folder)
        # A header that cannot be read any more is refused as a file of another kind.
        named = ended is not None and ended.status in (1, 2) and path.name in ended.words
        detected += named
        if not named:
            missed.append(f"{path.name}: {ended}")
        path.write_bytes(before)
    return {"flipped": count, "found": detected, "missed": missed[:10]}


def prefixes_resumed(folder: Path) -> dict[str, dict[str, int]]:
    """What the runs came to that were cut off after each operation, by way."""
    report = folder / "prefixes.xml"
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    command = [sys.executable, "-m", "pytest", "-q", str(PREFIXES)]
    command += [f"--junitxml={report}", "--override-ini", "junit_family=xunit1"]
    subprocess.run(command, env=environment | {"OUTGRID_PREFIXES": "1"}, check=True, cwd=ROOT)
    ways: dict[str, dict[str, int]] = {}
    for entry in ElementTree.parse(report).iter("property"):
        way, _, end = entry.attrib["name"].partition(": ")
        ends = ways.setdefault(way, {})  # of each of several runs
        ends[end] = ends.get(end, 0) + int(entry.attrib["value"])
    return ways


def preloaded(folder: Path) -> None:
    """Start this program again under the library of failing system calls."""
    if os.environ.get("LD_PRELOAD", "").endswith("faults.so"):
        return
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "faults.so"
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", str(FAULTS), "-o", str(library), "-ldl"]
    subprocess.run([*find_compiler().command, *flags], check=True)
    os.environ |= {
        "LD_PRELOAD": str(library),
        "OPENBLAS_NUM_THREADS": "1",
        "OUTGRID_CACHE": str(folder / "cache"),
        "PYTHONWARNINGS": "ignore",
    }
    os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--flips", type=int, default=20, help="single bits of finished runs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "soak")
    parser.add_argument("--record", type=Path, help="JSON file for the counts")
    given = parser.parse_args()
    given.folder = given.folder.resolve()  # initial values are named from there
    preloaded(given.folder)
    started = datetime.datetime.now(datetime.UTC)
    begin = time.monotonic()
    # On a disk, and in memory, where system calls take no time and nothing passes the page cache.
    fast = Path("/dev/shm") / f"outgrid-soak-{os.getpid()}"
    soak = Soak([given.folder / "problem", *([fast] if fast.parent.is_dir() else [])], given.seed)
    flips = detect_flips(given.folder / "flips", given.flips, given.seed)
    print(f"{flips['found']} of {flips['flipped']} single bits found", flush=True)
    counts = soak.counts

    def record(**more: Any) -> None:
        """Keep what is known by now: whatever ends this program, it is not lost."""
        if given.record is None:
            return
        seconds = round(time.monotonic() - begin, 1)
        told = {"seconds": seconds, "seed": given.seed, "kills": counts.kills, **vars(counts)}
        keep(given.record, started, told | {"bits": flips} | more)

    try:
        soak.until(begin + 60 * given.minutes, record)
    finally:
        shutil.rmtree(fast, ignore_errors=True)
    print(counts.line())
    failed = counts.wrong or counts.hangs or counts.unexpected
    record()  # at once: what follows takes a while
    if given.record is not None:
        record(prefixes=prefixes_resumed(given.folder))
    return 1 if failed or flips["found"] < flips["flipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
