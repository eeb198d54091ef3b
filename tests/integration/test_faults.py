"""System calls that fail under a run: a clear error and a run that can be resumed, or success.

The calls are those of the engine `threads`, replaced by a small library that is loaded before all
others (`faults.cpp`).
"""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from outgrid.build.compiler import find_compiler
from outgrid.cli import main

JOB = """
[problem]
stencil = "wave:2"
shape = [40, 24, 128]
steps = 24
initial = {{u = "sin(x + 2*y + 3*z)", c = 0.1}}
[run]
memory = "256MiB"
tier = "direct"
depth = 4
slab_planes = 4
threads = 1
engine = "threads"
request_bytes = 16384
out = "{out}"
"""
PROGRAM = """
import sys
from outgrid.storage import transfers
transfers.STUCK_SECONDS = {patience}
from outgrid.cli import main
sys.exit(main(sys.argv[1:]))
"""


PATIENCE_SECONDS = 2


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Path:
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.cpp")
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run([*find_compiler().command, *flags], check=True)
    return library


def outgrid(arguments: list[str], shim: Path | None = None, fault: str = "") -> tuple[int, str]:
    """Exit code and messages of a command in a process of its own.

    It is impatient only where something is going to be stuck: a busy disk may take its time.
    """
    program = PROGRAM.format(patience=PATIENCE_SECONDS if ":stuck:" in fault else 600.0)
    environment = os.environ | (
        {} if shim is None else {"LD_PRELOAD": str(shim), "OUTGRID_FAULT": fault}
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--quiet"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def fields(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}


@pytest.fixture(scope="module")
def answer(tmp_path_factory) -> dict[str, bytes]:
    """The bytes of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "job.toml").write_text(JOB.format(out=folder / "run"))
    assert outgrid(["run", str(folder / "job.toml")]) == (0, "")
    return fields(folder / "run")


@pytest.fixture
def job(tmp_path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(out=tmp_path / "run"))
    return path


@pytest.fixture
def resume(job, answer, capsys):
    """A function that goes on with the run, which then has the same result."""

    def call() -> None:
        out = job.parent / "run"
        assert main(["resume", str(out), "--memory", "256MiB", "--quiet"]) == 0
        assert capsys.readouterr().err == ""
        assert fields(out) == answer

    return call


@pytest.mark.parametrize(
    "fault",
    [
        "read:short:0",
        "write:short:0",
        f"read:{errno.EINTR}:3:40",
        f"write:{errno.EINTR}:3:40",
        f"read:{errno.EAGAIN}:3:40",
        f"write:{errno.EAGAIN}:3:40",
        "read:slow:5:40",
        "write:slow:5:40",
        "sync:slow:0",
    ],
)
def test_a_call_that_only_falls_short_or_is_late_changes_nothing(fault, job, shim, answer):
    assert outgrid(["run", str(job)], shim, fault) == (0, "")
    assert fields(job.parent / "run") == answer


@pytest.mark.parametrize("start", [400, 800])
@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("read", errno.EIO),
        ("read", errno.ENODEV),  # the device is gone: every call from here on fails
        ("write", errno.EIO),
        ("write", errno.ENOSPC),
        ("write", errno.EROFS),
        ("write", errno.EDQUOT),
    ],
)
def test_a_call_that_fails_ends_in_words_and_the_run_is_resumed(
    call, code, start, job, shim, resume
):
    out = job.parent / "run"
    start = start // 2 if call == "read" else start
    status, words = outgrid(["run", str(job)], shim, f"{call}:{code}:{start}")
    assert status == 4
    assert f"{os.strerror(code)} (errno {code})" in words
    assert f"{'reading' if call == 'read' else 'writing'} planes " in words
    assert f"file {out}/scratch/" in words
    assert "offset " in words
    resume()


@pytest.mark.parametrize("index", [10, 11, 15])
def test_a_flush_that_fails_is_not_tried_again(index, job, shim, resume):
    """After a failed fsync the kernel has forgotten what is not on disk: a second one lies."""
    status, words = outgrid(["run", str(job)], shim, f"sync:{errno.EIO}:{index}:1")
    assert status == 4
    assert "flush: the transfer failed" in words
    resume()


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_call_that_never_ends_is_named_and_the_process_ends(call, job, shim, resume):
    out = job.parent / "run"
    status, words = outgrid(["run", str(job)], shim, f"{call}:stuck:700:1")
    assert status == 4
    assert f"no transfer ended for {PATIENCE_SECONDS} s; under way: " in words
    assert f"(file {out}/scratch/" in words
    assert "reading " in words or "writing " in words
    resume()


def test_so_is_one_under_the_initial_values(job, shim):
    status, words = outgrid(["run", str(job)], shim, "write:stuck:3:1")
    assert status == 4
    assert f"no transfer ended for {PATIENCE_SECONDS} s; under way: writing " in words
    assert not (job.parent / "run").exists()


def test_a_thread_that_throws_ends_the_run_in_words(job, shim, resume):
    status, words = outgrid(["run", str(job)], shim, "wake:throw:600:1")
    assert status == 4
    assert "the thread of the transfers failed: thrown on purpose" in words
    resume()


PAGED = """
import sys
import numpy as np
from outgrid.errors import StoreError
from outgrid.storage import Pager

folder, end = sys.argv[1:]
used = [Pager("1MiB", page=16384) for _ in range(2)]
arrays = [used[n // 2].create(f"{folder}/{n}.npy", 6000, "int64") for n in range(3)]
for values in arrays:
    values[:] = 1
if end == "flush":
    try:
        used[0].flush()
    except StoreError as error:
        print(error.what, error.path, error.errno)
elif end == "drop":
    values = None
    arrays.clear()
    print("dropped", file=sys.stderr)
"""


@pytest.fixture
def paged(tmp_path, shim):
    """Output, messages and the zeroes in the files of three arrays, of which two share a pager."""

    def call(end: str, fault: str) -> tuple[str, list[str], list[int]]:
        done = subprocess.run(
            [sys.executable, "-c", PAGED, tmp_path, end],
            env=os.environ | {"LD_PRELOAD": str(shim), "OUTGRID_FAULT": fault},
            capture_output=True,
            text=True,
        )
        if "refuses userfaultfd" in done.stderr:
            pytest.skip("the kernel refuses userfaultfd")
        assert done.returncode == 0, done.stderr
        files = [np.load(tmp_path / f"{n}.npy") for n in range(3)]
        return done.stdout, done.stderr.splitlines(), [int((kept == 0).sum()) for kept in files]

    return call


def test_a_page_that_cannot_be_written_back_does_not_keep_others_from_it(paged):
    output, said, zeroes = paged("flush", f"pwrite:{errno.ENOSPC}:0:1")
    assert re.fullmatch(r"cannot write back the 16384 bytes at offset 0 .*/\d.npy 28\n", output)
    assert said == []
    assert zeroes == [0, 0, 0]  # when the process ends it is tried again


def test_every_array_is_tried_and_each_failure_is_told(paged):
    output, said, zeroes = paged("flush", f"pwrite:{errno.ENOSPC}:0:6")
    assert output.startswith("cannot write back the 16384 bytes at offset 0 ")
    (line,) = said
    assert line.startswith("outgrid: cannot write back the 16384 bytes at offset 0 of ")
    assert line.endswith("No space left on device; changes of this array are in memory only")
    assert zeroes == [0, 0, 0]


def test_a_file_that_was_not_made_durable_is_never_said_to_be(paged):
    """The kernel takes pages for clean that it could not write: a second flush would succeed."""
    output, said, zeroes = paged("flush", f"sync:{errno.EIO}:0:1")
    path = re.fullmatch(r"cannot make durable what was written (.*/\d.npy) 5\n", output)[1]
    told = f"outgrid: cannot make durable what was written of {path}: Input/output error; "
    assert f"{told}changes of this array are lost" in said
    assert zeroes == [0, 0, 0]


QUEUED = """
import sys
from outgrid import native

queue = native.Queue("threads", 2)
file = native.File(sys.argv[1], "create", False)
for _ in range(3):
    queue.submit_flush(file)
    print(queue.wait()[0].errno)
file.close()
again = native.File(sys.argv[1], "rw", False)
queue.submit_flush(again)
print(queue.wait()[0].errno)
"""


def test_so_it_is_in_a_queue_until_the_file_is_opened_again(tmp_path, shim):
    done = subprocess.run(
        [sys.executable, "-c", QUEUED, tmp_path / "a"],
        env=os.environ | {"LD_PRELOAD": str(shim), "OUTGRID_FAULT": f"sync:{errno.ENOSPC}:1:1"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.split(), done.stderr) == (["0", "28", "28", "0"], "")


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_what_an_array_takes_with_it_is_told(call, paged):
    _, said, zeroes = paged("drop", f"{call}:{errno.EIO}:0:1")
    what = "write back the 16384 bytes at offset 0" if call == "pwrite" else "make durable"
    assert said[0].startswith(f"outgrid: cannot {what}")
    assert said[0].endswith("Input/output error; changes of this array are lost")
    assert said[1:] == ["dropped"]
    assert sorted(zeroes) == [0, 0, 2048 if call == "pwrite" else 0]


def test_all_pagers_are_tried_when_the_process_ends(paged):
    _, said, zeroes = paged("end", f"sync:{errno.EIO}:0")
    failures = [line for line in said if "cannot make durable what was written" in line]
    assert len({re.search(r"\d\.npy", line)[0] for line in failures}) == 3
    assert zeroes == [0, 0, 0]


WALKED = """
import sys
import numpy as np
from outgrid.storage import Pager

used = Pager("256KiB", page=16384)
values = used.open(sys.argv[1], "r+")
values[0] += values[1]
print(values.sum())
"""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (f"fill:{errno.ENOMEM}:0:1", "bring in .* Cannot allocate memory; who needs the page gets"),
        (f"fill:{errno.EEXIST}:9:1", "bring in .* File exists; who needs the page gets"),
        (f"protect:{errno.ENOMEM}:0:1", "let be written .* memory; who needs the page gets"),
        (f"drop:{errno.EINVAL}:0", "drop .* Invalid argument; who needs another page gets"),
    ],
)
def test_what_the_kernel_refuses_a_pager_is_told_and_loses_a_page(fault, words, tmp_path, shim):
    np.save(tmp_path / "a.npy", np.arange(200_000))
    done = subprocess.run(
        [sys.executable, "-c", WALKED, tmp_path / "a.npy"],
        env=os.environ | {"LD_PRELOAD": str(shim), "OUTGRID_FAULT": fault},
        capture_output=True,
        text=True,
    )
    if "refuses userfaultfd" in done.stderr:
        pytest.skip("the kernel refuses userfaultfd")
    assert done.returncode in (-signal.SIGBUS, -signal.SIGABRT)
    assert re.fullmatch(rf"outgrid: cannot {words} a bus error\n", done.stderr)
    assert done.stdout == ""


def test_a_page_that_cannot_be_protected_is_not_written_back(paged):
    output, said, zeroes = paged("flush", f"protect:{errno.ENOMEM}:0:1")
    assert re.fullmatch(r"cannot write back the 16384 bytes at offset 0 .*/\d.npy 12\n", output)
    assert said == []
    assert zeroes == [0, 0, 0]


FOLDED = """
import sys
import numpy as np
from outgrid import native

rows, chunk, stride, (count, row_bytes) = 4, 16, 9920, map(int, sys.argv[3:])
folding = rows, rows * chunk, row_bytes, stride, ()
values = np.random.default_rng(0).integers(0, 256, (count, row_bytes), np.uint8)
filled = np.pad(values, ((0, -count % rows), (0, stride - row_bytes)))
groups = filled.reshape(-1, rows, stride // chunk, chunk)
memory = groups.transpose(0, 2, 1, 3).copy()
kept = memory.copy()
queue = native.Queue("threads", 2, 1 << 16, 1 << 18)
file = native.File(sys.argv[1], "create", sys.argv[2] == "direct")
segments = np.array([(1000, memory.ctypes.data, values.nbytes)], np.int64)
queue.submit_write(file, segments, row_bytes, folding)
(written,) = queue.wait()
assert (memory == kept).all()
memory[:] = 0
queue.submit_read(file, segments, row_bytes, folding)
(read,) = queue.wait()
assert (written.errno, read.errno) == (0, 0)
assert written.sums == read.sums
assert (memory == kept).all()
assert (np.fromfile(sys.argv[1], np.uint8, offset=1000) == values.ravel()).all()
queue.close()
"""


@pytest.mark.parametrize("way", ["direct", "buffered"])
@pytest.mark.parametrize("call", ["read", "write"])
@pytest.mark.parametrize("kind", ["short:0", f"{errno.EINTR}:3:4", f"{errno.EAGAIN}:3:4"])
@pytest.mark.parametrize("shape", [("120", "9920"), ("119", "9908")])
def test_folded_rows_that_move_in_several_calls_are_whole(tmp_path, shim, way, call, kind, shape):
    subprocess.run(
        [sys.executable, "-c", FOLDED, tmp_path / "a", way, *shape],
        env=os.environ | {"LD_PRELOAD": str(shim), "OUTGRID_FAULT": f"{call}:{kind}"},
        check=True,
    )


def test_a_compiler_that_is_killed_is_named(job, monkeypatch):
    compiler = job.parent / "compiler"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1 && exit\nkill -9 $$\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("OUTGRID_CACHE", str(job.parent / "cache"))
    status, words = outgrid(["run", str(job)])
    assert status == 4
    assert "the kernel did not compile (signal 9)" in words
    assert not (job.parent / "run").exists()
