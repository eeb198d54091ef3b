"""Every application beyond memory, its bytes beside those of a run in memory, and what it reaches.

python tools/applications.py --record benchmarks/records/applications.json

Each is started three times, as a user starts it: on a small grid, where it compares its answer with
one from elsewhere and says how far they are apart; on a grid of at least 4 times a memory limit,
which streams from files; and on the same grid with a limit that holds it. Of the last two every
array that they leave is compared, to the byte. Takes 6 GiB of memory and of disk, and some ten
minutes. With --only the record keeps its other rows; each row says when and where it was measured.
The volume of perona_malik comes with nilearn (`pip install nibabel; pip install --no-deps
nilearn`).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from origin import origin, write_record

from outgrid.record import Record, read_record
from outgrid.stencil.problem import Problem

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
ENOUGH = "12GiB"  # for the whole grid, in memory
TIMES = 4  # at least so often the limit
DEMO = "tsunami"


@dataclass(frozen=True, slots=True)
class Case:
    """An application: its arguments where it is checked, its grid beyond memory and the limit."""

    name: str
    against: str
    checked: str
    large: str
    limit: str


CASES = (
    Case("himeno", "the reference code", "--size M", "--size L", "448MiB"),
    Case(
        "image_mask",
        "SciPy",
        "--width 3 --steps 4",
        "--width 3 --steps 8 --size 13312 --input big.tif",
        "168MiB",
    ),
    Case(
        "image_mask",
        "SciPy",
        "--width 15 --steps 2",
        "--width 15 --steps 2 --size 13312 --input big.tif",
        "168MiB",
    ),
    Case(
        "acoustic",
        "a point source in free space",
        "--size 56 --steps 250",
        "--size 192 --steps 16",
        "120MiB",
    ),
    Case(
        "elastic",
        "Stokes' solution of a point force",
        "--size 96 --steps 180",
        "--size 192 --steps 12",
        "160MiB",
    ),
    Case("maxwell_cavity", "modes of the scheme", "", "--size 4096 --steps 30", "120MiB"),
    Case("maxwell_box", "modes of the scheme", "", "--size 224 --steps 20", "128MiB"),
    Case(
        "gray_scott",
        "linear theory",
        "--size 32 --dt 0.5",
        "--size 8192 --steps 40",
        "120MiB",
    ),
    Case("cahn_hilliard", "mass, energy", "", "--size 8192 --steps 20", "120MiB"),
    Case("smooth_tiff", "the volume without noise", "", "--size 640", "240MiB"),
    Case(
        "lid_cavity",
        "Ghia, Ghia and Shin; Botella and Peyret",
        "--size 32",
        "--size 160 --width 0 --turnovers 0.006",
        "144MiB",
    ),
    Case("basin", "Lamb; Thacker", "", "--size 4608 --periods 0.003", "120MiB"),
    Case(
        "dam_break",
        "Stoker",
        "",
        "--size 4096 --rows 4096 --time 0.002",
        "96MiB",
    ),
    Case(
        "channel",
        "the exact solution",
        "",
        "--finer 280 --steps 24",
        "96MiB",
    ),
    Case("poisson", "the equation, by NumPy", "", "--size 320 --steps 12", "120MiB"),
    Case("advection", "where the cloud began", "", "--size 8192 --steps 20", "120MiB"),
    Case("tilted", "the exact velocity", "", "--size 4096 --steps 20", "120MiB"),
    Case(DEMO, "basin: the same equation", "", "--columns 8192 --steps 30", "128MiB"),
    Case("perona_malik", "SimpleITK", "", "--finer 3 --steps 6", "200MiB"),
    Case("hillslope", "the cosine transform", "", "--finer 24 --steps 40", "128MiB"),
    Case("staggered", "what the source has put in", "", "--finer 31 --steps 30", "124MiB"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one. Bytes; ``said`` is what it says of its answer on the small grid.

    ``load`` is how many tasks the machine had to do at its end, in the mean of a minute; ``digest``
    is the SHA-256 of what the run beyond memory leaves, ``failure`` what is not as it has to be.
    """

    name: str
    against: str
    checked: str
    said: tuple[str, ...]
    large: str
    shape: tuple[int, ...]
    dtype: str
    steps: int
    limit_bytes: int
    state_bytes: int
    peak_bytes: int
    depth: int
    glups: float
    seconds: float
    wait_share: float
    load: float
    memory_glups: float
    digest: str
    identical: bool
    failure: str

    @property
    def factor(self) -> float:
        """The state of the problem over the memory limit."""
        return self.state_bytes / self.limit_bytes


def measure(case: Case, folder: Path) -> Row:
    """All runs of one application, in ``folder``, which is made."""
    folder.mkdir(parents=True)
    said = _start(case, case.checked.split(), ENOUGH, folder / "checked")
    records: list[Record] = []
    digests: list[str] = []
    loads: list[float] = []
    for name, limit in (("beyond", case.limit), ("memory", ENOUGH)):
        out = folder / name
        _start(case, case.large.split(), limit, out)
        loads.append(os.getloadavg()[0])
        records.append(read_record(out))
        digests.append(digest(out))
        shutil.rmtree(out)
    beyond, memory = records
    problem, measured = Problem.from_dict(beyond.problem), beyond.measured
    row = Row(
        name=case.name,
        against=case.against,
        checked=case.checked,
        said=said,
        large=case.large,
        shape=problem.shape,
        dtype=problem.dtype,
        steps=problem.steps,
        limit_bytes=measured.memory_limit_bytes,
        state_bytes=sum(
            field.levels * problem.stored_bytes(field.name) for field in problem.stencil.fields
        ),
        peak_bytes=measured.peak_memory_bytes,
        depth=max(beyond.planned["depths"]),
        glups=measured.glups,
        seconds=measured.seconds,
        load=loads[0],
        wait_share=measured.wait_seconds / measured.seconds,
        memory_glups=memory.measured.glups,
        digest=digests[0],
        identical=digests[0] == digests[1],
        failure="",
    )
    faults = {
        "the bytes differ": not row.identical,
        f"the grid is {row.factor:.2f} times the limit": row.factor < TIMES,
        "it did not stream from files": beyond.planned["tier"] != "direct",
        "the other one did not stay in memory": memory.planned["tier"] != "memory",
        "it passed its limit": row.peak_bytes > row.limit_bytes,
    }
    return Row(
        **asdict(row) | {"failure": "; ".join(words for words, is_so in faults.items() if is_so)}
    )


def _start(case: Case, given: Sequence[str], limit: str, out: Path) -> tuple[str, ...]:
    """Run it once, and return what it says of its answer. Raises SystemExit where it fails."""
    if case.name == DEMO:
        if not given:
            return ()
        folder = out.with_name(DEMO)
        program = [sys.executable, ROOT / "examples" / DEMO, *given]
        subprocess.run([*program, "--prepare", "--out", folder], check=True)
        job = folder / "tsunami.toml"
        command = [BIN / "outgrid", "run", job, "--quiet", "--set", "preview=0"]
    else:
        command = [sys.executable, ROOT / "examples" / f"{case.name}.py", *given]
    done = subprocess.run(
        [str(word) for word in (*command, "--memory", limit, "--out", out)],
        cwd=out.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{case.name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return tuple(done.stdout.splitlines()[1:])


def digest(out: Path) -> str:
    """Of the names and the bytes of all arrays in a folder."""
    sha256 = hashlib.sha256()
    for path in sorted(out.glob("*.npy")):
        sha256.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            sha256.update(hashlib.file_digest(file, "sha256").digest())
    return sha256.hexdigest()


def line(row: Row) -> str:
    """As it is printed."""
    grid = " x ".join(map(str, row.shape))
    verdict = "the same bytes" if row.identical else "OTHER BYTES"
    return (
        f"{row.name:15} {grid:18} {row.factor:5.1f} times {row.limit_bytes / 2**20:4.0f} MiB  "
        f"{row.glups:6.3f} GLUP/s  {verdict}  {row.failure or '; '.join(row.said)}"
    )


def key(row: dict[str, Any]) -> str:
    """What tells a row from all others."""
    return f"{row['name']} {row['large']}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "applications")
    parser.add_argument("--only", help="those whose name contains this")
    parser.add_argument("--record", type=Path, help="JSON file for the table")
    given = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "agg")
    started = datetime.datetime.now(datetime.UTC)
    given.folder = given.folder.resolve()  # examples are started in another one
    shutil.rmtree(given.folder, ignore_errors=True)
    known: dict[str, dict[str, Any]] = {}
    if given.only and given.record and given.record.exists():
        known = {key(row): row for row in json.loads(given.record.read_text())["rows"]}
    rows: list[Row] = []
    for number, case in enumerate(CASES):
        if given.only and given.only not in case.name:
            continue
        place = given.folder / str(number)
        rows.append(measure(case, place))
        print(line(rows[-1]), flush=True)
        shutil.rmtree(place)
        if given.record is not None:
            known[key(asdict(rows[-1]))] = {**asdict(rows[-1]), "origin": origin(started)}
            kept = [known[key(asdict(listed))] for listed in CASES if key(asdict(listed)) in known]
            write_record(given.record, {"rows": kept})
    failed = [row.name for row in rows if row.failure]
    print(
        f"not as they have to be: {', '.join(failed)}"
        if failed
        else f"{len(rows)} as they have to be"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
