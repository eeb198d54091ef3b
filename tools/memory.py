"""Examples and tiers, each under the smallest limit that it names, by the kernel's count.

python tools/memory.py --record benchmarks/records/memory.json

Each is first run with a limit that is too small, which names one that fits; then with one MiB less
than that, which has to be refused; then with that limit, its kernel compiled on the way; then once
more in a control group that enforces the limit, without swap, so that a page too many would end it.
The process says of both runs what it had at most, from the import to the report. The group counts
all memory from its start to its end, with the page cache, which takes what is left of the limit.
Examples choose their tier by themselves. Those on pictures hold them in memory of their own, of
which no plan knows, before and after their run: what they run is measured by itself, from a file.
Left out are a duct of fixed size (staggered) and an eigensolver of SciPy (spectral_clustering).
Needs root; devices are files (losetup), and swap is one that is removed again.

Pages of files mapped in place and of tier swap are the system's to take back, which it does where
somebody enforces a limit, and not before: of these only what the group counts is judged. Processes
there count libraries as well that others had loaded before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from origin import keep

from outgrid.units import parse_bytes
from outgrid_bench.limit import Limited, limited

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TOO_SMALL = "8MiB"
SWAP_BYTES = 512 << 20
DEVICE_BYTES = 192 << 20
HELD = "held"
# Two processes of one host that pretend to be on two: else they share the pages that are lent.
APART = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}

EXAMPLES = {
    "acoustic": ["--size", "64", "--steps", "12"],
    "basin": ["--size", "1024", "--periods", "0.02"],
    "dam_break": ["--size", "2048", "--rows", "1024", "--time", "0.002"],
    "elastic": ["--size", "56", "--steps", "12"],
    "gray_scott": ["--size", "1536", "--steps", "40"],
    "hillslope": ["--finer", "3", "--steps", "20"],
    "himeno": ["--size", "S"],
    "lid_cavity": ["--size", "64", "--width", "0", "--turnovers", "0.02"],
    "maxwell_box": ["--size", "96", "--steps", "12"],
    "maxwell_cavity": ["--size", "1200", "--steps", "30"],
}
# Shape of the file of float32 that they begin with, and what is called with its path.
ON_PICTURES = {
    "image_mask": ((3072, 2048), "problem(start, 9, 4, 'float32', {shape})"),
    "perona_malik": ((96, 192, 224), "problem(start, 4, shape={shape}, dtype='float32', k=9.0)"),
}
PROGRAM = """
import sys
sys.path.insert(0, "{examples}")
from pathlib import Path
from command import arguments, run
import {name}
start = Path("{start}")
run({name}.{call}, arguments(None))
"""
JOB = """
[problem]
stencil = "heat7"
shape = [128, 256, 256]
steps = 12
initial = {u = "z"}
"""
TIERS = {
    "direct": {},
    "direct, strips": {"tier": "direct", "depth": 4, "strip_rows": 96},
    "direct, overlapped": {"scheme": "overlapped", "depth": 2, "block": [12, 126, 254]},
    "direct, two folders": {"scratch": ["{folder}/a", "{folder}/b"], "stripe": "64KiB"},
    "direct, two devices": {"scratch": "{devices}", "stripe": "64KiB"},
    "memory": {},
    "mmap": {},
    "mmap, in place": {"in_place": True, "scheme": "plain"},
    "swap": {},
    "remote": {},
    "remote, kept on disk": {"keep": "disk"},
}


@dataclass(frozen=True)
class Row:
    """What one of them took. Bytes; `outcome` is "held" where nothing passed the limit."""

    name: str
    limit_bytes: int
    compiling_peak_bytes: int  # of the process that compiled its kernel, as its record says
    process_peak_bytes: int  # of the one in the group
    group_peak_bytes: int
    refused_below: bool
    outcome: str


class Subject:
    """One command that takes --memory, and where its record is; `mpi` adds ranks that lend."""

    def __init__(self, name: str, command: list[str], out: Path, mpi: bool = False) -> None:
        self.name, self.command, self.out, self.mpi = name, command, out, mpi
        self.cache = out.with_name("cache")
        self.swaps = "swap" in name
        self.left_to_the_system = self.swaps or "in place" in name

    def run(self, memory: str, inside: Limited | None = None) -> subprocess.CompletedProcess[str]:
        """One run in a new folder; of ranks, the first one is inside."""
        shutil.rmtree(self.out, ignore_errors=True)
        own = [*self.command, "--memory", memory]
        line = own if inside is None else inside.command(own)
        environment = os.environ | {"OUTGRID_CACHE": str(self.cache)}
        if self.mpi:
            line = [str(BIN / "mpiexec"), "-n", "1", *line, ":", "-n", "2", *own]
            environment |= APART
        return subprocess.run(
            line,
            env=environment,
            cwd=self.out.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    @property
    def process_peak_bytes(self) -> int:
        """What the last run says of itself."""
        record = json.loads((self.out / "record.json").read_text())
        return int(record["measured"]["peak_memory_bytes"])


def measure(subject: Subject) -> Row:
    """All runs of one subject."""
    said = subject.run(TOO_SMALL)
    match = re.search(r"a limit of (\d+ \w+) fits", said.stderr)
    if match is None:
        return Row(subject.name, 0, 0, 0, 0, False, f"names no limit: {said.stderr[-300:]}")
    limit_bytes = parse_bytes(match[1])
    less = subject.run(f"{(limit_bytes >> 20) - 1}MiB")
    refused = less.returncode != 0 and f"a limit of {match[1]} fits" in less.stderr
    peaks = [0, 0, 0]
    outcome = HELD
    with limited(limit_bytes, SWAP_BYTES * subject.swaps, subject.out.parent) as inside:
        if not inside.enforced:
            raise SystemExit(inside.reason)
        for number, where in enumerate((None, inside)):
            done = subject.run(match[1], where)
            if done.returncode != 0:
                outcome = f"ended with {done.returncode}: {done.stderr[-300:]}"
                break
            peaks[number] = subject.process_peak_bytes
        peaks[2] = inside.peak_bytes or 0
    judged = peaks[2:] if subject.left_to_the_system else peaks
    if outcome == HELD and max(judged) > limit_bytes:
        outcome = "passed the limit"
    return Row(subject.name, limit_bytes, *peaks, refused, outcome)


@contextmanager
def loop_devices(folder: Path, count: int) -> Iterator[list[str]]:
    """Block devices in files, detached whatever happens."""
    with ExitStack() as stack:
        made: list[str] = []
        for number in range(count):
            image = folder / f"image{number}"
            image.touch()
            os.truncate(image, DEVICE_BYTES)
            command = ["losetup", "--find", "--show", str(image)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            made.append(done.stdout.strip())
            stack.callback(subprocess.run, ["losetup", "--detach", made[-1]], check=True)
        yield made


def subjects(folder: Path, devices: list[str]) -> Iterator[Subject]:
    """Every example, then every tier."""
    for name, given in EXAMPLES.items():
        place = folder / name
        place.mkdir(parents=True)
        arguments = [argument.format(folder=place) for argument in given]
        command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
        yield Subject(name, [*command, "--out", str(place / "run")], place / "run")
    for name, (shape, call) in ON_PICTURES.items():
        place = folder / name
        place.mkdir()
        start = place / "start.npy"
        np.save(start, np.random.default_rng(0).random(shape, np.float32) * 255)
        filled = {"examples": ROOT / "examples", "name": name, "start": start}
        program = PROGRAM.format(call=call.format(shape=shape), **filled)
        command = [sys.executable, "-c", program, "--out", str(place / "run")]
        yield Subject(name, command, place / "run")
    for name, settings in TIERS.items():
        place = folder / re.sub(r"\W+", "-", name)
        place.mkdir()
        (place / "job.toml").write_text(JOB)
        tier = name.partition(",")[0]
        command = [str(BIN / "outgrid"), "run", str(place / "job.toml"), "--quiet"]
        command += ["--out", str(place / "run"), "--set", f"tier={tier}"]
        if settings.get("scratch") == "{devices}":
            settings = settings | {"scratch": devices, "erase": devices}
        for key, value in settings.items():
            text = json.dumps(value).replace("{folder}", str(place))
            command += ["--set", f"{key}={text}"]
        yield Subject(f"heat7: {name}", command, place / "run", mpi=tier == "remote")


def line(row: Row) -> str:
    """As it is printed."""
    peaks = (row.compiling_peak_bytes, row.process_peak_bytes, row.group_peak_bytes)
    shown = " ".join(f"{size / 2**20:7.1f}" for size in (row.limit_bytes, *peaks))
    refused = "refused" if row.refused_below else "NOT REFUSED"
    return f"{row.name:28} {shown}   {refused:8}  {row.outcome}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "memory")
    parser.add_argument("--only", help="those whose name contains this")
    parser.add_argument("--record", type=Path, help="JSON file for the table")
    given = parser.parse_args()
    started = datetime.datetime.now(datetime.UTC)
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    rows: list[Row] = []
    print(f"{'MiB':30} limit  compile process   group   one less")
    with loop_devices(given.folder, 2) as devices:
        for subject in subjects(given.folder, devices):
            if given.only and given.only not in subject.name:
                continue
            rows.append(measure(subject))
            print(line(rows[-1]), flush=True)
            shutil.rmtree(subject.out.parent)
    shutil.rmtree(given.folder)
    held = all(row.outcome == HELD and row.refused_below for row in rows)
    if given.record is not None:
        keep(given.record, started, {"rows": [asdict(row) for row in rows]})
    print(f"{len(rows)} under their limits" if held else "NOT ALL HELD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
