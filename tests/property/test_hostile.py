"""Files that lie: whatever is in them, they are read or refused with words.

OUTGRID_FUZZ_EXAMPLES sets the number of examples of each test for a longer run.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.config import RunOptions, parse_settings
from outgrid.errors import DefinitionError, Error, InfeasiblePlan, UsageError
from outgrid.formats.npy import header_bytes, read_header
from outgrid.job import load_job
from outgrid.record import RECORD_NAME, read_record
from outgrid.runs.group import durable
from outgrid.runs.leftovers import leftovers
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME, Manifest, read_manifest
from outgrid.runs.places import OWNER_NAME
from outgrid.runs.samples import SAMPLES_NAME, read_samples
from outgrid.runs.state import RunFolder
from outgrid.runs.verify import verify
from outgrid.stencil import initial
from outgrid.stencil.initial import InitialExpression, evaluate_steps
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore, Transfers

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
WHOLE = msgspec.json.encode(
    Manifest(
        version="1",
        run="r",
        problem=Problem("heat7", (8, 8, 8), steps=3, initial={"u": 0.0}).to_dict(),
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
        manifest = read_manifest(out)
        for name in (*manifest.files, *manifest.results):
            assert (out / name).parent == out

    refused_or_read(read)


@pytest.mark.parametrize("axis", [-1, 1, 2, 3, 10**30, True, "x", None])
@pytest.mark.parametrize("shape", [[8, 8, 8], [8, 8], 8, "888", None])
def test_manifests_name_an_axis_that_the_grid_has(axis, shape, tmp_path):
    manifest = json.loads(MANIFEST)
    manifest["problem"]["shape"] = shape
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(manifest | {"transposed": axis}))
    if shape == [8, 8, 8] and axis in (1, 2):
        assert read_manifest(tmp_path).transposed == axis
        assert durable(tmp_path).steps == 1
        return
    with pytest.raises(UsageError, match=r"names the axis .* which its grid|not a manifest"):
        read_manifest(tmp_path)


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
    refused_or_read(folder.check_owner, read_manifest(folder.out))
    refused_or_read(read_samples, out, read_manifest(folder.out))


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


# What a parser takes too long for, calls itself too often for, or turns into too large a number.
BEYOND = {
    "dots": ("a" + ".a" * 50_000, "a key of more than 16 parts"),
    "dots after spaces": ("a" + " . 'a'" * 50_000, "a key of more than 16 parts"),
    "brackets": ("a = " + "[" * 100_000, "brackets nest deeper than 32"),
    "braces": ("a = " + "{a = " * 50_000, "brackets nest deeper than 32"),
    "digits": ("a = " + "9" * 4500, "a number or name of 4500 characters; at most 1000"),
    "hexadecimal digits": ("a = 0x" + "f" * 4500, "of 4502 characters; at most 1000"),
    "text": ('a = "' + "x" * 70_000 + '"', "a text of 70002 characters; at most 65536"),
    "text without an end": ('a = """' + '\\"' * 70_000, "a text of 14000. characters"),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_jobs_that_no_parser_could_bear(kind, tmp_path):
    line, words = BEYOND[kind]
    path = tmp_path / "job.toml"
    path.write_text(f"[problem]\n{line}\n")
    with pytest.raises(UsageError, match=f"job.toml, line 2: .*{words}"):
        load_job(path)
    key, _, value = line.partition(" = ")
    if value:
        with pytest.raises(UsageError, match=f"--set {key}, line 1: .*{words}"):
            parse_settings([f"{key}={value}"])


ENTRIES = (
    "kind",
    "value",
    "x",
    "y-",
    "fields",
    "u",
    "field",
    "position",
    "values",
    "every",
    "first",
)
VALUES = st.recursive(
    st.booleans()
    | st.integers(-5, 50)
    | st.floats(-2, 50)
    | st.sampled_from(("", "u", "x", "odd")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ENTRIES), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = ("boundary", "sources", "receivers", "snapshots", "until", "dtypes", "parameters", "initial")


def written(value) -> str:
    """A value as TOML has it on a line."""
    if isinstance(value, dict):
        entries = (f"{json.dumps(key)} = {written(each)}" for key, each in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value)


@settings(max_examples=4 * EXAMPLES)
@given(st.sampled_from(KEYS), VALUES)
def test_jobs_with_odd_values(tmp_path_factory, key, value):
    lines = (line for line in JOB.decode().splitlines() if not line.startswith(f"{key} ="))
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_text("\n".join(lines).replace("steps", f"{key} = {written(value)}\nsteps"))
    refused_or_read(load_job, path)


@pytest.mark.parametrize(
    "entry",
    [
        'boundary = {x = "sponge"}',
        'boundary = {x = {value = "sin(step)"}}',
        "regions = {u = {x = [3, 9]}}",
    ],
)
def test_axes_that_are_too_long_for_a_number_per_cell(entry, tmp_path):
    """No memory is taken for these numbers: the process would be killed."""
    path = tmp_path / "job.toml"
    job = JOB.decode().replace("64]", f"{1 << 40}]").replace("steps = 6", f"steps = 6\n{entry}")
    path.write_text(job)
    with pytest.raises(DefinitionError, match=f"{1 << 40} cells along x, and at most 67108864"):
        load_job(path)


@pytest.mark.parametrize("value", ["1" * 400, f"[0, -{2**63 + 1}]", r'"a\u0000b.npy"'])
@pytest.mark.parametrize("table", ["problem", "run", "gradient"])
def test_numbers_beyond_64_bits_and_texts_with_a_nul(table, value, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(f"[{table}]\nsteps = {value}\n")
    with pytest.raises(UsageError, match=f"job.toml: {table}: steps = .*(within|character NUL)"):
        load_job(path)
    with pytest.raises(UsageError, match=r"--set steps: value = .*(within|character NUL)"):
        parse_settings([f"steps={value}"])


def test_a_job_of_many_bytes_is_not_read(tmp_path):
    path = tmp_path / "job.toml"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(UsageError, match="more than 4194304 bytes"):
        load_job(path)


def test_what_strings_and_comments_hold_is_not_counted(tmp_path):
    path = tmp_path / "job.toml"
    odd = "[" * 50 + ".a" * 50 + "9" * 2000
    path.write_text(f"# {odd}\n{JOB.decode()}out = '{odd}'\n")
    assert str(load_job(path).options.out).endswith(odd)


@settings(max_examples=EXAMPLES)
@given(FORMULA | st.text(max_size=200), FORMULA | st.text(max_size=60))
def test_settings_of_the_command_line(key, value):
    settings = [f"{key}={value}", f"tier={value}"]
    refused_or_read(lambda: RunOptions.of(**{"memory": "1GiB"} | parse_settings(settings)))


NESTED = b"[" * 100_000
NAMES = (MANIFEST_NAME, RECORD_NAME, OWNER_NAME, "run.lock", "ranks.json")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "content", [NESTED, b'{"format": ' + NESTED, b'{"format": 1, "x":' + NESTED]
)
def test_text_that_nests_without_end(name, content, tmp_path):
    (tmp_path / MANIFEST_NAME).write_bytes(MANIFEST)
    (tmp_path / name).write_bytes(content)
    for read in (durable, leftovers, verify, read_record):
        refused_or_read(read, tmp_path)
    refused_or_read(lambda: RunFolder.of_manifest(tmp_path)[0].check_owner(manifest_in(tmp_path)))


def manifest_in(out: Path) -> Manifest:
    return read_manifest(out)


@pytest.mark.parametrize(
    "extent", ["9" * 4000, "0x" + "f" * 5000, "-1", "2**70", str(2**63), str(2**200)]
)
def test_extents_of_many_digits(extent, tmp_path):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': (3, {extent})}}".encode()
    path = tmp_path / "u.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(Error) as caught:
        read_header(path)
    assert len(str(caught.value)) < 500


@settings(max_examples=EXAMPLES)
@given(changed(WHOLE) | changed(MANIFEST))
def test_unfinished_runs(tmp_path_factory, content):
    out = tmp_path_factory.mktemp("run")
    (out / MANIFEST_NAME).write_bytes(content)
    for read in (durable, leftovers, verify):
        refused_or_read(read, out)


def test_formulas_of_step_are_counted_before_they_are_evaluated(tmp_path):
    path = tmp_path / "job.toml"
    job = JOB.decode().replace("{k = 0.2}", '{k = "0.1 + 0.1 * sin(step / 9)"}')
    path.write_text(job.replace("steps = 6", "steps = 300_000_000"))
    with pytest.raises(InfeasiblePlan, match=r"take 33.5 GiB in 300000000 steps, .* of 256 MiB"):
        load_job(path)
    source = '[[problem.sources]]\nfield = "u"\nposition = [3, 4]\nvalues = "2.0"\n[run]'
    path.write_text(job.replace("steps = 6", "steps = 1_200_000").replace("[run]", source))
    with pytest.raises(InfeasiblePlan, match=r"2 formulas .* fewer than (\d+) steps") as caught:
        load_job(path)
    fits = int(re.search(r"than (\d+) steps", str(caught.value))[1])
    path.write_text(job.replace("steps = 6", f"steps = {fits // 10}").replace("[run]", source))
    assert load_job(path).problem.steps == fits // 10


@pytest.mark.parametrize("count", [1, 7, 65535, 65536, 65537, 200_003])
@pytest.mark.parametrize(
    "text",
    ["sin(step / 7) * exp(-step / 1e5)", "tanh(step) ** 3", "where(step > 9, 1, step)", "2.5"],
)
def test_formulas_of_step_are_the_same_in_blocks(text, count, monkeypatch):
    found = evaluate_steps(InitialExpression(text), count)
    monkeypatch.setattr(initial, "_CELLS_PER_BLOCK", 2**30)
    assert found == evaluate_steps(InitialExpression(text), count)
    assert len(found) == count


@settings(max_examples=EXAMPLES)
@given(changed(JOB) | st.binary(max_size=300))
def test_job_files(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_bytes(content)
    refused_or_read(load_job, path)
