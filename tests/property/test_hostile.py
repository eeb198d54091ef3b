"""Files that lie: whatever is in them, they are read or refused with words.

OUTGRID_FUZZ_EXAMPLES sets the number of examples of each test for a longer run.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.errors import Error
from outgrid.job import load_job
from outgrid.record import RECORD_NAME, read_record
from outgrid.runs.lock import RunLock
from outgrid.runs.state import MANIFEST_NAME, OWNER_NAME, SAMPLES_NAME, Manifest, RunFolder
from outgrid.runs.verify import verify
from outgrid.storage import DirectStore, Transfers
from outgrid.storage.npy import header_bytes, read_header

EXAMPLES = int(os.environ.get("OUTGRID_FUZZ_EXAMPLES", "60"))
MANIFEST = msgspec.json.encode(
    Manifest(
        version="1",
        run="r",
        problem={"stencil": "heat7", "shape": [8, 8, 8], "steps": 3},
        folder="scratch",
        files=("u.0.npy", "u.1.npy"),
        results=("u.npy",),
        steps_done=1,
        parity=0,
    )
)
JOB = b"""
[problem]
stencil = "heat5"
shape = [40, 64]
steps = 6
parameters = {k = 0.2}
initial = {u = "exp(-((x - 30)**2 + (y - 20)**2) / 30)"}
[run]
memory = "256MiB"
depth = 3
"""
NPY = header_bytes((3, 5), "f8") + np.arange(15.0).tobytes()
SUMS = header_bytes((3, 1), "u8") + bytes(24)
DEMO = Path(__file__).parents[2] / "benchmarks" / "records" / "demo.json"
RECORD = json.dumps(json.loads(DEMO.read_text())["record"]).encode()
OWNER = b'{"run": "r", "out": "/somewhere"}'
# What formulas of initial values are made of, and what should never come through one.
PIECES = (
    *"xyz+-*/(),.<>[]{}:;='\"\\\n0123456789 ",
    *("**", "sin", "exp", "where", "nx", "pi", "1e999", "9" * 40, "\0", "é"),
    *("lambda", "__class__", "import os", "os.system", "x.real", "print"),
)
FORMULA = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


@st.composite
def changed(draw, good: bytes):
    """A file with some of its bytes replaced, left out, or put in."""
    made = bytearray(good)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, min(len(made), 400)))
        end = at + draw(st.integers(0, 12))
        made[at:end] = draw(
            st.binary(max_size=12) | st.sampled_from([b"9" * 25, b"-", b'"\n', b"["])
        )
    return bytes(made)


def refused_or_read(read, *arguments) -> None:
    with suppress(Error):
        read(*arguments)


@settings(max_examples=EXAMPLES)
@given(changed(NPY) | st.binary(max_size=300))
def test_npy_files(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("npy") / "u.npy"
    path.write_bytes(content)
    refused_or_read(read_header, path)


@settings(max_examples=EXAMPLES)
@given(changed(MANIFEST) | st.binary(max_size=300))
def test_manifests_own_nothing_outside_of_their_folders(tmp_path_factory, content):
    out = tmp_path_factory.mktemp("run")
    (out / MANIFEST_NAME).write_bytes(content)

    def read():
        manifest = RunFolder(out, out).read_manifest()
        for name in (*manifest.files, *manifest.results):
            assert (out / name).parent == out

    refused_or_read(read)


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_records_and_locks(tmp_path_factory, content):
    out = tmp_path_factory.mktemp("run")
    (out / "record.json").write_bytes(content)
    (out / "run.lock").write_bytes(content)
    refused_or_read(read_record, out)
    refused_or_read(lambda: RunLock(out).__enter__().__exit__(None, None, None))


@settings(max_examples=EXAMPLES)
@given(changed(RECORD), changed(NPY))
def test_finished_runs(tmp_path_factory, record, field):
    out = tmp_path_factory.mktemp("run")
    (out / RECORD_NAME).write_bytes(record)
    (out / "eta.npy").write_bytes(field)
    (out / "eta.npy.xxh3").write_bytes(SUMS)
    refused_or_read(verify, out)


@settings(max_examples=EXAMPLES)
@given(changed(OWNER) | st.binary(max_size=100), changed(NPY) | st.binary(max_size=300))
def test_marks_of_owners_and_samples(tmp_path_factory, mark, samples):
    out = tmp_path_factory.mktemp("run")
    (out / MANIFEST_NAME).write_bytes(MANIFEST)
    (out / OWNER_NAME).write_bytes(mark)
    (out / f"{SAMPLES_NAME}.new").write_bytes(samples)
    folder = RunFolder(out, out)
    refused_or_read(folder.check_owner, folder.read_manifest())
    refused_or_read(folder.read_samples, folder.read_manifest())


@settings(max_examples=EXAMPLES)
@given(changed(NPY), changed(SUMS))
def test_fields_with_checksums(tmp_path_factory, field, sums):
    path = tmp_path_factory.mktemp("field") / "u.npy"
    path.write_bytes(field)
    path.with_name("u.npy.xxh3").write_bytes(sums)

    def read():
        with Transfers("threads", depth=1) as transfers:
            DirectStore.open(path, transfers, "r", sums=True).close()

    refused_or_read(read)


@settings(max_examples=EXAMPLES)
@given(FORMULA)
def test_formulas_and_names(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("job")
    for number, line in enumerate((f"initial = {{u = {json.dumps(text)}}}", "initial = {u = 0.0}")):
        path = folder / f"{number}.toml"
        stencil = json.dumps(text) if number else '"heat5"'
        path.write_text(f"[problem]\nstencil = {stencil}\nshape = [9, 9]\nsteps = 1\n{line}\n")
        refused_or_read(load_job, path, {"memory": "1GiB"})


@settings(max_examples=EXAMPLES)
@given(changed(JOB) | st.binary(max_size=300))
def test_job_files(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_bytes(content)
    refused_or_read(load_job, path)
