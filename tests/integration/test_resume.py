"""A run that was cut off goes on from its last durable state, to the same bytes."""

import errno
import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.build.compiler import find_compiler
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import Stopped, StoreError, UsageError
from outgrid.execute import streaming
from outgrid.execute.stop import SCHEDULER_MARGIN_SECONDS
from outgrid.execution import Execution
from outgrid.formats.npy import header_bytes
from outgrid.observe import preview
from outgrid.record import CUT_OFF, FINISHED, read_record
from outgrid.runs import ledger, manifest, state
from outgrid.runs.lock import LOCK_NAME
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import step
from outgrid.storage import DirectStore

KILLS, KILLED_STEPS = 2, 24
STEPS = 120

JOB = """
[problem]
stencil = "wave:4"
shape = [48, 96, 32]
dtype = "float32"
steps = {steps}
initial = {{u = "exp(-((x - 16)**2 + (y - 30)**2 + (z - 20)**2) / 40)", c = 0.1}}
[run]
memory = "256MiB"
tier = "direct"
depth = {depth}
slab_planes = 2
threads = 1
commit_every = 0
out = "{out}"
"""


@stencil
def driven(u, c, *, gain):
    """A wave that differs from step to step."""
    return 2 * u - u.previous + c * laplacian(u, order=4) + gain * step * c


def problem(steps=12):
    values, gain = np.random.default_rng(5).random((40, 16, 33)), np.arange(steps) ** 2.0
    return Problem(
        driven,
        values.shape,
        "float64",
        steps,
        {"gain": gain},
        initial={"u": values, "c": 0.1},
    )


def options(out: Path, **others):
    given = {"memory": "256MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
    return RunOptions.of(out=out, **(given | others))


def fields(out: Path) -> dict[str, bytes]:
    """The bytes of the results of a run."""
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """The bytes of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    pipeline.run(problem(), options(out))
    return fields(out)


def fail_at(monkeypatch, operation: str, index: int) -> None:
    """Let the `index`-th put, get or flush of all stores, counted from 0, fail with EIO."""
    original, calls = getattr(DirectStore, operation), iter(range(10**9))

    def faulty(self, *arguments):
        if next(calls) == index:
            return self._transfers.fail(StoreError("on purpose", path=self.path, offset=0, errno=5))
        return original(self, *arguments)

    monkeypatch.setattr(DirectStore, operation, faulty)


@pytest.mark.parametrize("index", [0, 3, 40, 90, 140])
@pytest.mark.parametrize("operation", ["get", "put", "flush"])
def test_a_failed_run_is_resumed_to_the_same_bytes(operation, index, tmp_path, monkeypatch, answer):
    out = tmp_path / "run"
    # The first flushes and puts are those of the initial values.
    index = 5 + index % 8 if operation == "flush" else index + 3
    with monkeypatch.context() as patch:
        fail_at(patch, operation, index)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out))
    assert (out / MANIFEST_NAME).exists()
    with pytest.raises(UsageError, match="outgrid resume continues"):
        pipeline.run(problem(), options(out))
    before = json.loads((out / MANIFEST_NAME).read_text())["steps_done"]
    result = pipeline.resume(out, options(out, depth=2, slab_planes=5, engine="threads"))
    assert fields(out) == answer
    assert not (out / MANIFEST_NAME).exists()
    assert not (out / "scratch").exists()
    parts = result.record.parts
    assert [(part.first_step, part.last_step) for part in parts] == [(0, before), (before, 12)]
    assert [part.ended for part in parts] == [CUT_OFF, FINISHED]
    measured = result.record.measured
    assert measured.updates == problem().updates == sum(part.measured.updates for part in parts)
    assert measured.fill_written_bytes == parts[0].measured.fill_written_bytes > 0
    assert measured.seconds == sum(part.measured.seconds for part in parts)


@pytest.mark.parametrize("index", [30, 150, 290])
@pytest.mark.parametrize("operation", ["get", "put"])
def test_a_run_in_strips_is_resumed_to_the_same_bytes(
    operation, index, tmp_path, monkeypatch, answer
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, operation, index)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out, strip_rows=5))
    pipeline.resume(out, options(out, strip_rows=7))
    assert fields(out) == answer
    assert not (out / "scratch").exists()


def cut_off_within(out: Path, monkeypatch, part: int, **given) -> dict[str, Any]:
    """The manifest of a run that ended in its second sweep, in the middle of a trip."""
    write = ledger.write_manifest

    def die(out, manifest):
        write(out, manifest)
        if manifest.steps_done == 3 and manifest.part == part and manifest.planes > 15:
            raise ChildProcessError

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write_manifest", die)
        with pytest.raises(ChildProcessError):
            pipeline.run(problem(), options(out, commit_every=0, **given))
    return manifest_of(out)


def test_a_seam_that_was_damaged_is_named_and_the_sweep_may_begin_again(
    tmp_path, monkeypatch, answer
):
    out = tmp_path / "run"
    cut_off_within(out, monkeypatch, 2, strip_rows=5)
    seams = sorted((out / "scratch").glob("*.seam.*.npy"))
    assert len(seams) > 1
    for path in seams:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)  # in the last plane, which each strip has still to read
            (byte,) = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 16]))
    words = (
        "reading planes .* of the seam of u in sweep 0: plane 39 of 40 did not match the checksums"
    )
    with pytest.raises(StoreError, match=words) as caught:
        pipeline.resume(out, options(out, strip_rows=5))
    assert caught.value.path in seams
    pipeline.resume(out, options(out, strip_rows=7))
    assert fields(out) == answer


@pytest.mark.parametrize(("number", "later"), [(2, ("part", "cut")), (3, ())])
def test_a_manifest_of_a_format_before_is_read(number, later, tmp_path, monkeypatch, answer):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(manifest.Manifest, "identity", "")  # checksums were of no run then
        found = cut_off_within(out, monkeypatch, 0)
    assert found["format"] == manifest.FORMAT
    later = (*later, "sealed", "samples")
    before = {key: value for key, value in found.items() if key not in later}
    (out / MANIFEST_NAME).write_text(json.dumps(before | {"format": number}))
    record = pipeline.resume(out, options(out)).record
    assert record.parts[1].measured.updates < problem().after(found["steps_done"]).updates
    assert fields(out) == answer


def test_only_the_planes_that_come_round_are_left_to_do(tmp_path, monkeypatch):
    given = {"initial": {"u": "cos(x) + cos(y*y)"}, "boundary": {"y": "periodic"}}
    closed = Problem("heat5", (60, 33), "float64", 9, **given)
    out, plain = tmp_path / "run", tmp_path / "plain"
    pipeline.run(closed, options(plain, tier="memory", depth=1, slab_planes=None))
    write = ledger.write_manifest

    def die_after_the_last_plane(out, manifest):
        write(out, manifest)
        if manifest.planes >= closed.shape[0] and manifest.steps_done + manifest.depth == 9:
            raise ChildProcessError

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write_manifest", die_after_the_last_plane)
        with pytest.raises(ChildProcessError):
            pipeline.run(closed, options(out, commit_every=0))
    record = pipeline.resume(out, options(out, commit_every=0)).record
    assert fields(out) == fields(plain)
    assert record.measured.updates == closed.updates


def test_a_run_fails_again_and_again_and_ends(tmp_path, monkeypatch, answer):
    out = tmp_path / "run"
    chance = random.Random(1)
    with monkeypatch.context() as patch:
        fail_at(patch, "put", 60)
        with pytest.raises(StoreError):
            pipeline.run(problem(), options(out))
    for attempt in range(20):
        with monkeypatch.context() as patch:
            fail_at(patch, chance.choice(["get", "put", "flush"]), chance.randrange(120))
            cut = {"strip_rows": chance.randint(2, 20)} if chance.random() < 0.5 else {}
            try:
                pipeline.resume(out, options(out, depth=chance.randint(1, 4), **cut))
                break
            except StoreError:
                assert attempt < 19
    assert fields(out) == answer


def test_initial_values_that_fail_leave_nothing(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, "put", 1)
        with pytest.raises(StoreError):
            pipeline.run(problem(), options(out))
    assert not list(out.rglob("*.npy"))
    pipeline.run(problem(), options(out))


def test_a_run_interrupted_right_after_its_initial_values_can_be_resumed(
    tmp_path, monkeypatch, answer
):
    out = tmp_path / "run"
    fill = Execution.fill

    def interrupted(self, *arguments):
        fill(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Execution, "fill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(problem(), options(out))
    pipeline.resume(out, options(out))
    assert fields(out) == answer


def test_a_run_cut_off_while_results_are_moved_is_finished(tmp_path, monkeypatch, answer):
    out, original, calls = tmp_path / "run", state.move, iter(range(9))

    def cut_off(source, target):
        if next(calls) == 1:
            raise KeyboardInterrupt
        original(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(state, "move", cut_off)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(problem(), options(out))
    assert len(fields(out)) == 1
    pipeline.resume(out, options(out))
    assert fields(out) == answer
    assert not (out / "scratch").exists()


def fail_midway(monkeypatch, chosen):
    """A run that ends by a failed write."""
    with monkeypatch.context() as patch:
        fail_at(patch, "put", 100)
        with pytest.raises(StoreError):
            pipeline.run(problem(), chosen)


def test_results_go_to_another_folder_than_the_working_files(tmp_path, monkeypatch, answer):
    out, scratch = tmp_path / "run", tmp_path / "flash"
    fail_midway(monkeypatch, options(out, scratch=scratch))
    assert list(scratch.glob("u.*.npy"))
    pipeline.resume(out, options(out))
    assert fields(out) == answer
    assert not scratch.exists()


def test_one_process_has_the_disk_of_the_first_rank(tmp_path, monkeypatch, answer):
    out, scratch = tmp_path / "run", tmp_path / "disk.{rank}"
    fail_midway(monkeypatch, options(out, scratch=scratch))
    assert list((tmp_path / "disk.0").glob("u.*.npy"))
    assert not scratch.exists()
    with pytest.raises(UsageError, match=r"the files of the run are in .*/disk\.0: leave scratch"):
        pipeline.resume(out, options(out, scratch=tmp_path / "other"))
    pipeline.resume(out, options(out, scratch=scratch))
    assert fields(out) == answer


def test_a_folder_of_working_files_that_has_to_stay_does(tmp_path, answer):
    (tmp_path / "disk").mkdir()
    (tmp_path / "flash").symlink_to("disk")  # like a mount point, it is not removed as a folder
    pipeline.run(problem(), options(tmp_path / "run", scratch=tmp_path / "flash"))
    assert fields(tmp_path / "run") == answer
    assert not list((tmp_path / "flash").iterdir())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: os.truncate(path, 10_000), "the file has 10000"),
        (lambda path: np.save(path, np.zeros((40, 16, 34))), r"\(40, 16, 34\), the run needs"),
        (lambda path: np.save(path, np.zeros((40, 16, 33), "f4")), "holds float32"),
    ],
)
def test_a_working_file_that_was_damaged_is_named(damage, words, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, "put", 60)
        with pytest.raises(StoreError):
            pipeline.run(problem(), options(out))
    path = out / "scratch" / "u.previous.1.npy"
    damage(path)
    with pytest.raises(StoreError, match=words) as caught:
        pipeline.resume(out, options(out))
    assert caught.value.path == path
    assert (out / MANIFEST_NAME).exists()


def test_a_folder_without_a_run_is_not_resumed(tmp_path):
    with pytest.raises(UsageError, match=r"has no manifest\.json"):
        pipeline.resume(tmp_path, options(tmp_path))
    (tmp_path / MANIFEST_NAME).write_text('{"format": 1, "steps": 3}')
    with pytest.raises(UsageError, match="not a manifest of this version"):
        pipeline.resume(tmp_path, options(tmp_path))


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "outgrid", *arguments, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def manifest_of(out: Path) -> dict[str, Any]:
    try:
        return json.loads((out / MANIFEST_NAME).read_text())
    except FileNotFoundError:
        return {}


def steps_done(out: Path) -> int:
    return manifest_of(out).get("steps_done", -1)


def within_a_sweep(manifest: dict[str, Any]) -> bool:
    return manifest.get("part", 0) > 0 or manifest.get("planes", 0) > 0


# How a grid passes: a line of its problem, settings, and the greatest depth of those that resume.
PASSES = {
    "whole planes": ("", ("slab_planes=2",), 6),
    "strips": ("", ("slab_planes=2", "strip_rows=40"), 6),
    "strips of a circle": (
        'boundary = {{y = "periodic"}}',
        ("slab_planes=2", "strip_rows=40"),
        6,
    ),
    "blocks": ("", ('scheme="overlapped"', "block=[16, 40, 28]"), 4),
    "blocks of blocks": (
        "",
        ('scheme="overlapped"', "block=[22, 46, 28]", "inner=[8, 12, 28]", "inner_depth=2"),
        4,
    ),
    "planes along y": ("", ("slab_planes=2", 'stream_axis="y"'), 6),
    "strips along y": ("", ("slab_planes=8", "strip_rows=16", 'stream_axis="y"'), 6),
    "planes that come round": ('boundary = {{z = "periodic"}}', ("slab_planes=2",), 3),
}


@pytest.mark.parametrize("way", PASSES)
def test_kill_9_at_any_time_costs_no_byte(way, tmp_path):
    line, given, deepest = PASSES[way]
    whole, out = tmp_path / "whole", tmp_path / "run"
    text = JOB.replace("slab_planes = 2\n", "").replace("[run]", f"{line}\n[run]")
    (tmp_path / "whole.toml").write_text(text.format(out=whole, depth=1, steps=KILLED_STEPS))
    (tmp_path / "job.toml").write_text(text.format(out=out, depth=1, steps=KILLED_STEPS))
    process = start(["run", str(tmp_path / "whole.toml"), "--set", "tier=memory"])
    assert process.communicate() == (None, "")
    settings = [part for each in given for part in ("--set", each)]
    arguments = ["run", str(tmp_path / "job.toml"), *settings]
    reached, within, chance = [], [], random.Random(os.getpid())
    for number in range(KILLS):
        process = start(arguments)
        # In the first sixth: each commit is flushed, and what is left takes much longer than to
        # notice that it is time.
        wanted = (number + 1) * KILLED_STEPS // (6 * KILLS)
        while process.poll() is None and steps_done(out) < wanted:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.03)
        # On a busy disk the next commit may be long in coming.
        while process.poll() is None and number % 2 and not within_a_sweep(manifest_of(out)):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.communicate() == (None, "")
        assert process.returncode == -signal.SIGKILL
        found = manifest_of(out)
        reached.append(found["steps_done"])
        within.append(within_a_sweep(found))
        assert wanted <= reached[-1] < KILLED_STEPS
        depth = f"depth={chance.randint(1, deepest)}"
        arguments = ["resume", str(out), "--memory", "256MiB", *settings]
        arguments += ["--set", "tier=direct", "--set", "commit_every=0", "--set", depth]
    process = start([*arguments, "--set", "commit_every=30", "--set", f"depth={deepest}"])
    assert process.communicate() == (None, "")
    assert process.returncode == 0
    assert reached == sorted(reached)
    assert any(within)
    assert fields(out) == fields(whole)


def test_kill_9_while_initial_values_are_written_says_run_it_again(tmp_path):
    out = tmp_path / "run"
    (tmp_path / "job.toml").write_text(JOB.format(out=out, depth=1, steps=STEPS))
    process = start(["run", str(tmp_path / "job.toml")])
    while process.poll() is None and not (out / MANIFEST_NAME).exists():
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if steps_done(out) >= 0:
        pytest.skip("the initial values were complete before the signal came")
    process = start(["resume", str(out), "--memory", "256MiB"])
    _, words = process.communicate()
    assert process.returncode == 2
    assert "stopped before its initial values were complete" in words


def test_an_interrupt_in_mid_sweep_is_resumed_to_the_same_bytes(tmp_path, monkeypatch, answer):
    out = tmp_path / "run"

    def interrupt(progress):
        if progress.slab == 41:
            raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(problem(), options(out), interrupt)
    assert steps_done(out) > 0
    pipeline.resume(out, options(out))
    assert fields(out) == answer


def test_a_preview_that_cannot_be_written_stops_the_run_with_its_reason(
    tmp_path, monkeypatch, answer
):
    out, frames = tmp_path / "run", iter(range(9))

    def header(*arguments):
        if next(frames) == 2:
            raise OSError(errno.ENOSPC, "full")
        return header_bytes(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(preview, "header_bytes", header)
        with pytest.raises(StoreError, match="cannot write the preview") as caught:
            pipeline.run(problem(), options(out, preview=8))
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, out / "preview.npy.new")
    del caught
    pipeline.resume(out, options(out))
    assert fields(out).keys() == answer.keys()
    assert {name: fields(out)[name] for name in answer} == answer


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_run_that_is_resumed_to_the_same_bytes(sign, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "run"
    (tmp_path / "whole.toml").write_text(JOB.format(out=whole, depth=30, steps=STEPS))
    (tmp_path / "job.toml").write_text(JOB.format(out=out, depth=1, steps=STEPS))
    process = start(["run", str(tmp_path / "job.toml")])
    while process.poll() is None and steps_done(out) < 3:
        time.sleep(0.001)
    process.send_signal(sign)
    _, words = process.communicate()
    assert process.returncode == 75
    assert f"stopped by {sign.name}; " in words
    assert f"of {STEPS} steps" in words
    assert f"kept; outgrid resume {out} continues" in words
    assert not (out / LOCK_NAME).exists()
    for arguments in (
        ["resume", str(out), "--memory", "256MiB", "--set", "tier=direct", "--set", "depth=30"],
        ["run", f"{tmp_path}/whole.toml"],
    ):
        process = start(arguments)
        assert process.communicate() == (None, "")
    assert fields(out) == fields(whole)
    record = json.loads((out / "record.json").read_text())
    assert [part["ended"] for part in record["parts"]] == [f"stopped by {sign.name}", "finished"]
    assert record["derived"]["glups"] > 0


def test_a_run_ends_before_its_slurm_job_and_goes_on_in_the_next(tmp_path, monkeypatch, answer):
    out = tmp_path / "run"
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + SCHEDULER_MARGIN_SECONDS)))
    with pytest.raises(Stopped, match="stopped by the end of its Slurm job") as caught:
        pipeline.run(problem(), options(out, depth=1))
    assert caught.value.exit_code == 75
    assert steps_done(out) < problem().steps
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 86400))
    pipeline.resume(out, options(out))
    assert fields(out) == answer


def test_a_time_limit_stops_a_run_again_and_again_until_it_is_done(tmp_path, answer):
    out = tmp_path / "run"
    with pytest.raises(Stopped, match="stopped by the time limit"):
        pipeline.run(problem(), options(out, stop_after="1ms"))
    for stops in itertools.count():  # longer and longer: on a busy disk a flush may take seconds
        with suppress(Stopped):
            limit = f"{1.2**stops + 8 * stops:.0f}ms"
            result = pipeline.resume(out, options(out, depth=1, stop_after=limit))
            break
    assert fields(out) == answer
    parts = result.record.parts
    assert len(parts) > 1
    assert all(first.last_step == then.first_step for first, then in itertools.pairwise(parts))
    assert result.record.measured.updates == problem().updates


def test_a_resume_by_another_compiler_says_so_and_leaves_the_same_bytes(
    tmp_path, monkeypatch, capsys, answer
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, "put", 90)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out))
    first = json.loads((out / MANIFEST_NAME).read_text())["parts"][-1]["compiler"]
    words = find_compiler().command
    assert first.endswith(shlex.join([*words, *find_compiler().flags]))
    monkeypatch.setenv("CXX", "g++ -O2")
    assert main(["resume", str(out), "--memory", "256MiB"]) == 0
    (warning,) = (text for text in read_record(out).warnings if "compilers" in text)
    assert warning == (
        "kernels of this run come from several compilers, with equal results: "
        f"{first}; then {find_compiler()}"
    )
    assert f"{warning}\n" in capsys.readouterr().err
    assert fields(out) == answer


def test_a_resume_by_the_same_compiler_says_nothing(tmp_path, monkeypatch, capsys, answer):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, "put", 90)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out))
    assert main(["resume", str(out), "--memory", "256MiB"]) == 0
    assert "compilers" not in capsys.readouterr().err
    record = read_record(out)
    assert not any("compilers" in text for text in record.warnings)
    assert [part.compiler for part in record.parts] == 2 * [str(find_compiler())]
