"""Real ranks of MPI on this host: the same bytes, however many there are and whatever ends them."""

import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import outgrid as og
from outgrid.record import read_record
from outgrid.runs.group import read_group
from outgrid.runs.leftovers import leftovers
from outgrid.runs.verify import verify

pytest.importorskip("mpi4py")

BIN = Path(sys.executable).parent
MPIEXEC = BIN / "mpiexec"
CASES = Path(__file__).parent / "rank_cases.py"
problems = runpy.run_path(str(CASES))["problems"]
# More ranks than cores: one that waits gives its core away.
YIELDING = {"MPIR_CVAR_ENABLE_BUSY_WAIT_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}

pytestmark = pytest.mark.mpi


def launch(ranks, *command, **options):
    environment = os.environ | YIELDING | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [MPIEXEC, "-n", str(ranks), *map(str, command)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process, code=0, seconds=400):
    out, error = process.communicate(timeout=seconds)
    assert process.returncode == code, error
    return out, error


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The results of one process, plane after plane without ranks."""
    folder = tmp_path_factory.mktemp("alone")
    return [
        og.run(problem, memory="1GiB", threads=1, out=folder / str(number), tier="memory")
        for number, (problem, _) in enumerate(problems())
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_ranks_leave_the_bytes_of_one(ranks, alone, tmp_path):
    finish(launch(ranks, sys.executable, CASES, tmp_path))
    zarr = pytest.importorskip("zarr")
    across, regular = set(), 0
    for number, wanted in enumerate(alone):
        found = og.open(tmp_path / str(number))
        names = list(found)
        assert names == list(wanted)
        for name in names:
            values = np.asarray(found[name])
            assert values.tobytes() == np.asarray(wanted[name]).tobytes(), (number, name)
        group = zarr.open(tmp_path / str(number), mode="r")
        for name in {*names} & {*group}:  # where each rank has a shard
            regular += 1
            assert np.asarray(group[name]).tobytes() == np.asarray(wanted[name]).tobytes()
        if found.record.problem["receivers"]:
            assert (found.traces == wanted.traces).all()
        assert len(found.snapshots) == len(wanted.snapshots)
        for mine, other in zip(found.snapshots, wanted.snapshots, strict=True):
            assert np.array_equal(mine, other), number
        kept = [rank.measured.snapshot_bytes for rank in found.record.ranks]
        assert ranks == 1 or sum(kept) == wanted.record.measured.snapshot_bytes
        across.add(len({rank.low_row for rank in found.record.ranks}))
        for rank in found.record.ranks:
            measured = rank.measured
            for name in ("read_bytes", "written_bytes", "sent_bytes", "received_bytes"):
                assert getattr(measured, name) == rank.planned[name], (number, name)
            seams = rank.planned["subgrid"]["seams"]
            assert seams == (ranks > 1 and rank.low_row == 0 and number in (0, 1, 3, 5, 9))
            assert not (seams and rank.planned["redundancy"])
        total = sum(rank.measured.updates for rank in found.record.ranks)
        assert ranks == 1 or total == problems()[number][0].updates
    assert regular >= (10 if ranks < 2 else ranks < 4)
    if ranks > 1:  # rows are cut in every way that goes
        assert across == {parts for parts in range(1, ranks + 1) if ranks % parts == 0}


JOB = """
[problem]
stencil = "wave:4"
shape = [160, 48, 64]
steps = {steps}
initial = {{u = "exp(-((z - 80)**2 + (y - 24)**2 + (x - 32)**2) / 50)", c = 0.2}}
[[problem.snapshots]]
field = "u"
every = 50
y = 20
[run]
memory = "512MiB"
depth = 3
threads = 1
"""


# Shallow sweeps take long enough to be cut off; what is left after that need not.
DEEPER = ("--set", "depth=12")


def job_in(folder, steps):
    """The file of a job of so many steps."""
    path = folder / "job.toml"
    path.write_text(JOB.format(steps=steps))
    return path


def job_of(steps, folder):
    """The job of so many steps, and what one process makes of it in memory."""
    path = job_in(folder, steps)
    og_run = [BIN / "outgrid", "run", path, "--out", folder / "alone", "--quiet"]
    subprocess.run([*og_run, "--set", "tier=memory"], check=True, capture_output=True)
    return path, np.load(folder / "alone" / "u.npy"), og.open(folder / "alone").snapshots[0]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One that takes long enough to be cut off again and again."""
    return job_of(3000, tmp_path_factory.mktemp("job"))


def run_ranks(ranks, path, out, *more):
    return launch(ranks, BIN / "outgrid", "run", path, "--out", out, "--quiet", *more)


def resume_ranks(ranks, out, *more):
    if ranks == 1:
        command = [BIN / "outgrid", "resume", out, "--quiet", "--memory", "512MiB", *more]
        return subprocess.run(command, check=True, capture_output=True, text=True)
    return finish(launch_resume(ranks, out, *more))


def launch_resume(ranks, out, *more):
    command = (BIN / "outgrid", "resume", out, "--quiet", "--memory", "512MiB", *more)
    return launch(ranks, *command)


def wait_for_state(out, ranks, least):
    """Wait until all manifests speak of so many steps; their steps."""
    for _ in range(12000):
        try:
            texts = [(out / f"rank.{rank}" / "manifest.json").read_text() for rank in range(ranks)]
            steps = [json.loads(text)["steps_done"] for text in texts]
            if min(steps) >= least:
                return steps
        except FileNotFoundError:
            pass
        time.sleep(0.005)
    raise AssertionError("no state became durable")


def ranks_of(launcher):
    """The processes of a launch that are ranks: they are started by its proxy, and start none."""
    found = [
        each
        for each in psutil.Process(launcher.pid).children(recursive=True)
        if any(verb in each.cmdline() for verb in ("run", "resume"))
    ]
    parents = {each.ppid() for each in found}
    return [each for each in found if each.pid not in parents]


KILLS = int(os.environ.get("OUTGRID_KILLS", "4"))
WAYS = (  # ranks, row cuts, and what goes over the cuts
    (2, (), "seams"),
    (4, (20,), "halos"),
    (3, (), "seams"),
    (3, (), "seams"),
    (3, (), "halos"),
    (2, (13,), "halos"),
    (4, (9, 20, 31), "halos"),
    (4, (20,), "auto"),
)


def test_a_run_goes_on_however_often_one_of_its_ranks_is_killed(job, tmp_path):
    path, wanted, kept = job
    out = tmp_path / "out"
    draw = random.Random(KILLS)
    for kill in range(KILLS):
        ranks, cuts, exchange = WAYS[kill % len(WAYS)]
        more = ("--set", f"exchange={exchange}")
        more += ("--set", f"row_cuts={list(cuts)}") if cuts else ()
        if kill == 0:
            process = run_ranks(ranks, path, out, *more)
            wait_for_state(out, ranks, 0)
        else:
            process = launch_resume(ranks, out, *more)
            while len(ranks_of(process)) < ranks:
                assert process.poll() is None
                time.sleep(0.01)
        time.sleep(draw.uniform(0, 2))
        others = ranks_of(process)
        assert others, "the job was over before a rank was killed"
        draw.choice(others).kill()
        _, error = process.communicate(timeout=600)
        assert process.returncode != 0, error
        assert not psutil.wait_procs(others, timeout=600)[1]
        assert not (out / "record.json").exists()
    copy = shutil.copytree(out, tmp_path / "copy")
    listed = leftovers(out)
    assert listed.manifest.steps_done >= 0
    assert not listed.foreign
    assert leftovers(out, delete=True).files == listed.files
    assert not list(out.rglob("*"))
    shutil.rmtree(out)
    copy.rename(out)
    checked = verify(out)
    assert checked.steps == listed.manifest.steps_done
    assert checked.files
    assert not checked.errors
    resume_ranks(1, out, *DEEPER)
    result = og.open(out)
    assert np.asarray(result["u"]).tobytes() == wanted.tobytes()
    assert np.array_equal(result.snapshots[0], kept)
    assert read_record(out).measured.updates == og.Problem.from_dict(result.record.problem).updates
    assert not list(out.glob("scratch*"))
    assert not list(out.glob("*.json.new"))


COOLING = """
import outgrid as og

@og.stencil(ndim=3)
def cooling(u):
    change = 0.1 * og.laplacian(u)
    return {"u": u + change, "largest": og.max(og.absolute(change)), "heat": og.sum(u)}
"""


def test_ranks_end_a_run_together_also_after_one_was_killed(tmp_path):
    (tmp_path / "rule.py").write_text(COOLING)
    path, out = tmp_path / "job.toml", tmp_path / "out"
    path.write_text(
        """
[problem]
stencil = "rule.py:cooling"
shape = [160, 48, 64]
steps = 2000
initial = {u = "exp(-((z - 80)**2 + (y - 24)**2 + (x - 32)**2) / 50)"}
until = {reduction = "largest", every = 10, below = 0.0025}
[run]
memory = "512MiB"
depth = 3
threads = 1
"""
    )
    alone = [BIN / "outgrid", "run", path, "--out", tmp_path / "alone", "--quiet"]
    subprocess.run([*alone, "--set", "tier=memory"], check=True, capture_output=True)
    wanted = og.open(tmp_path / "alone")
    assert 100 < wanted.record.steps < 2000
    process = run_ranks(3, path, out, "--set", "exchange=seams")
    wait_for_state(out, 3, 20)
    ranks_of(process)[1].kill()
    process.communicate(timeout=600)
    assert process.returncode != 0
    resume_ranks(4, out, "--set", "row_cuts=[20]")
    found = og.open(out)
    assert (found.record.steps, found.record.ended) == (wanted.record.steps, wanted.record.ended)
    assert np.asarray(found["u"]).tobytes() == wanted["u"].tobytes()
    for name, values in wanted.reductions.items():
        assert found.reductions[name].tobytes() == values.tobytes()


def test_ranks_go_on_with_the_snapshots_of_one_process(tmp_path):
    path, wanted, kept = job_of(300, tmp_path)
    out = tmp_path / "out"
    command = [BIN / "outgrid", "run", path, "--out", out, "--quiet", "--set", "tier=direct"]
    stopped = subprocess.run([*command, "--set", "stop_after=1ms"], capture_output=True, text=True)
    assert "stopped by the time limit" in stopped.stderr
    assert (out / "snapshot.0.npy.new").exists()
    resume_ranks(2, out)
    result = og.open(out)
    assert len(result.record.ranks) == 2
    assert np.asarray(result["u"]).tobytes() == wanted.tobytes()
    assert np.array_equal(result.snapshots[0], kept)


def test_a_plan_says_what_ranks_do_and_a_report_shows_the_whole_field(tmp_path):
    path, _, _ = job_of(20, tmp_path)
    out, run = tmp_path / "out", [BIN / "outgrid", "plan", path, "--json"]
    said, error = finish(launch(3, *run))
    planned = json.loads(said)  # said once
    assert "refused" not in error
    script = (
        "import json, pathlib, sys, outgrid as og; from outgrid.job import load_job;"
        " job = load_job(pathlib.Path(sys.argv[1]));"
        " plan = og.plan(job.problem, memory=job.options.memory_bytes, depth=3, threads=1);"
        " sys.stdout.write(json.dumps(plan.to_dict()['subgrid']) + chr(10))"
    )
    said = finish(launch(3, sys.executable, "-c", script, path))[0].split("\n")
    assert [json.loads(line) for line in said if line] == 3 * [planned["subgrid"]]
    finish(run_ranks(3, path, out))
    found = read_record(out).ranks[1].planned
    for name in ("subgrid", "depths", "sent_bytes", "received_bytes", "read_bytes", "updates"):
        assert planned[name] == found[name], name
    report = subprocess.run(
        [BIN / "outgrid", "report", out], check=True, capture_output=True, text=True
    )
    assert [Path(line).name for line in report.stdout.split()] == [
        "summary.txt",
        "report.html",
        "u.png",
        "u.previous.png",
        "ranks.png",
    ]


def test_a_plan_of_ranks_says_which_of_them_a_run_would_be_refused_by(tmp_path):
    path = job_in(tmp_path, steps=20)
    (tmp_path / "1").write_text("precious")
    scratch = "--set", f'scratch="{tmp_path}/{{rank}}"'
    said, error = finish(launch(2, BIN / "outgrid", "plan", path, "--json", *scratch), code=3)
    assert json.loads(said)["subgrid"]["rank"] == 1
    lines = [line for line in error.splitlines() if "would fail" in line]
    assert lines == [
        "outgrid: a run would fail: rank 1: cannot make the folder, "
        f"file {tmp_path}/1, Not a directory (errno 20)"
    ]
    assert not (tmp_path / "0").exists()


def test_each_rank_has_its_own_disk_until_its_files_are_not_needed(tmp_path):
    path, wanted, _ = job_of(60, tmp_path)
    out, stop = tmp_path / "out", ("--set", "stop_after=1ms")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk.new").mkdir()

    def on(disk):
        return "--set", f'scratch="{tmp_path}/{disk}/{{rank}}"'

    def folders():
        found = tmp_path.glob("disk*/*/rank.*")
        return sorted(str(each.relative_to(tmp_path)) for each in found if any(each.glob("u.*")))

    finish(run_ranks(3, path, out, *on("disk"), *stop), code=75)
    assert folders() == ["disk/0/rank.0", "disk/1/rank.1", "disk/2/rank.2"]
    finish(launch_resume(3, out, *on("disk"), *stop), code=75)  # in the files that are there
    assert folders() == ["disk/0/rank.0", "disk/1/rank.1", "disk/2/rank.2"]
    finish(launch_resume(2, out, *on("disk.new"), *stop), code=75)
    assert folders() == ["disk.new/0/rank.0.1", "disk.new/1/rank.1.1"]
    assert not list((tmp_path / "disk").iterdir())
    copy = shutil.copytree(out, tmp_path / "copy")
    disks = shutil.copytree(tmp_path / "disk.new", tmp_path / "kept")
    resume_ranks(2, out)
    assert np.asarray(og.open(out)["u"]).tobytes() == wanted.tobytes()
    assert not list((tmp_path / "disk.new").iterdir())
    shutil.rmtree(out)
    copy.rename(out)
    shutil.rmtree(tmp_path / "disk.new")
    disks.rename(tmp_path / "disk.new")
    listed = leftovers(out, delete=True)
    assert not listed.foreign
    disks = {path.parent.parent for path in listed.files if path.suffix == ".npy"}
    assert disks == {tmp_path / "disk.new" / rank for rank in "01"}
    assert not list(out.iterdir())
    assert not list((tmp_path / "disk.new").iterdir())


def test_ranks_go_on_with_the_options_they_had(tmp_path):
    path, wanted, _ = job_of(60, tmp_path)
    out = tmp_path / "out"
    (tmp_path / "disk").mkdir()
    scratch = ("--set", f'scratch="{tmp_path}/disk/{{rank}}"')
    mine = ("--set", "cuts=[60, 120]", "--set", "queue_depth=7")
    finish(run_ranks(3, path, out, *scratch, *mine, "--set", "stop_after=1ms"), code=75)
    before = read_group(out)
    command = (BIN / "outgrid", "resume", out, "--stop-after", "1ms")
    _, error = finish(launch(3, *command), code=75)
    assert "->" not in error
    assert read_group(out) == before  # in the files that are there
    _, error = finish(launch(2, *command, "--memory", "300MiB"), code=75)
    assert "memory 512 MiB -> 300 MiB\n" in error
    assert "cuts [60, 120] left out: the run had 3 ranks and now has 2\n" in error
    found = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.glob("disk/*/rank.*"))
    assert found == ["disk/0/rank.0.1", "disk/1/rank.1.1"]
    finish(launch(2, BIN / "outgrid", "resume", out, "--quiet"))
    assert np.asarray(og.open(out)["u"]).tobytes() == wanted.tobytes()
    record = read_record(out)
    assert record.measured.memory_limit_bytes == 300 << 20
    assert record.planned["depth"] == 3


def test_ranks_with_blocks_go_on_after_a_kill_and_with_other_numbers(tmp_path):
    path, wanted, kept = job_of(160, tmp_path)
    out = tmp_path / "out"
    blocks = ("--set", "scheme=overlapped", "--set", "block=[17, 9, 60]", "--set", "row_cuts=[20]")
    process = run_ranks(4, path, out, *blocks)
    wait_for_state(out, 4, 6)
    random.Random(1).choice(ranks_of(process)).kill()
    process.communicate(timeout=600)
    assert process.returncode != 0
    before = read_group(out)
    _, error = finish(launch(4, BIN / "outgrid", "resume", out, "--stop-after", "1ms"), code=75)
    assert "->" not in error
    assert read_group(out).folders == before.folders  # in the files that are there
    stopped = ("--set", "block=[8, 50, 60]", "--set", "row_cuts=[]", "--stop-after", "1ms")
    finish(launch(2, BIN / "outgrid", "resume", out, *stopped), code=75)
    assert read_group(out).folders != before.folders
    finish(launch(2, BIN / "outgrid", "resume", out, "--quiet"))
    found = og.open(out)
    assert np.asarray(found["u"]).tobytes() == wanted.tobytes()
    assert np.array_equal(found.snapshots[0], kept)
    for rank in found.record.ranks:
        assert (rank.planned["scheme"], rank.planned["blocks"]["core"]) == ("overlapped", [8, 50])


def test_ranks_write_over_no_snapshot(tmp_path):
    path = job_in(tmp_path, steps=60)
    (tmp_path / "snapshot.0.npy").write_bytes(b"kept")
    _, error = finish(run_ranks(2, path, tmp_path), code=2)
    assert "snapshot.0.npy exists and is not overwritten; choose another folder" in error
    assert (tmp_path / "snapshot.0.npy").read_bytes() == b"kept"


def test_what_all_ranks_find_wrong_is_said_once_with_its_exit_code(tmp_path):
    path = job_in(tmp_path, steps=60)
    for code, more in [(2, "depth=-1"), (3, "memory=1MiB")]:
        _, error = finish(run_ranks(3, path, tmp_path / "out", "--set", more), code=code)
        assert len([line for line in error.splitlines() if line.startswith("outgrid: ")]) == 1, (
            error
        )


def test_a_value_that_is_not_finite_ends_ranks_with_the_steps_or_the_step(tmp_path):
    path, out = tmp_path / "job.toml", tmp_path / "out"
    path.write_text(
        """
[problem]
stencil = "heat7"
shape = [60, 12, 16]
steps = 400
parameters = {k = 9.0}
initial = {u = "exp(-((z - 33)**2 + (y - 6)**2 + (x - 8)**2) / 9)"}
[run]
memory = "256MiB"
depth = 4
threads = 1
exchange = "seams"
"""
    )
    _, error = finish(run_ranks(2, path, out), code=4)
    begin, end = map(
        int, re.search(r"NaN or infinite in steps (\d+) to (\d+); a run", error).groups()
    )
    assert end == begin + 3
    _, error = finish(launch_resume(2, out, "--set", "exchange=halos"), code=4)
    step = int(re.search(r"u became (?:NaN|infinite) in step (\d+) of 400, first", error)[1])
    assert begin <= step <= end


def test_a_mistake_in_a_script_is_told_once(tmp_path):
    script = tmp_path / "mistaken.py"
    script.write_text('import outgrid as og\n\nog.Problem("heat5", (20, 20), initial={"w": 0})\n')
    process = launch(3, sys.executable, script)
    out, error = process.communicate(timeout=400)
    assert process.returncode == 2
    assert out + error.replace("\n", "") == (
        f"{script}:3: stencil 'heat5' has no field for initial values 'w'; known: u"
    )


GRADIENT = """
import sys, numpy as np, outgrid as og
rng = np.random.default_rng(1)
shape, steps = (40, 12, 11), 6
initial = {name: rng.uniform(0.1, 0.2, shape) for name in ("u", "u.previous", "c")}
problem = og.Problem("wave:2", shape, "float64", steps, initial=initial,
                     sources=[og.Source("u", (20.5, 5, 5), 1.0)],
                     receivers=[og.Receiver("u", (12, 5.5, 5))], snapshots=[og.Snapshot("u", 4)])
wanted = og.LeastSquares(rng.normal(size=(steps, 1)), {"u": rng.normal(size=shape)},
                         [rng.normal(size=(1, *shape))])
og.gradient(problem, wanted, wrt=["c", "u", "sources"], out=sys.argv[1], adjoint="recompute",
            chunk=2, memory="1GiB", threads=1, resume=True)
"""


def test_ranks_leave_the_gradient_of_one(tmp_path):
    for ranks in (1, 2):
        finish(launch(ranks, sys.executable, "-c", GRADIENT, tmp_path / str(ranks)))
    for name in ("c.npy", "u.npy", "gradient.json"):
        one, two = ((tmp_path / str(ranks) / name).read_bytes() for ranks in (1, 2))
        assert one == two, name


PLANNED = """
[problem]
stencil = "heat5"
shape = [64, 12]
steps = 2
parameters = { k = 0.1 }
initial = { u = "sin(x)" }
receivers = [{ field = "u", position = [12, 5] }]
[gradient]
wrt = ["u"]
observed = "observed.npy"
"""


def test_ranks_plan_a_gradient_together(tmp_path):
    np.save(tmp_path / "observed.npy", np.zeros((2, 1)))
    (tmp_path / "job.toml").write_text(PLANNED)
    command = [sys.executable, "-m", "outgrid", "plan", "job.toml", "--json"]
    out, _ = finish(launch(2, *command, cwd=tmp_path), seconds=60)
    (strategy,) = json.loads(out)["gradient"]["strategies"]
    assert strategy["steps_forward"] == 2


def test_a_gradient_goes_on_after_a_rank_was_killed_on_the_way_back(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    finish(launch(1, sys.executable, "-c", GRADIENT, whole))
    process = launch(2, sys.executable, "-c", GRADIENT, out)
    while not list(out.glob("back.*")):
        assert process.poll() is None
        time.sleep(0.002)
    ranks = [each for each in psutil.Process(process.pid).children(recursive=True) if of(each, out)]
    ranks[-1].kill()
    process.communicate(timeout=600)
    assert process.returncode != 0
    assert not psutil.wait_procs(ranks, timeout=600)[1]
    assert not (out / "c.npy").exists()
    finish(launch(2, sys.executable, "-c", GRADIENT, out))
    for name in ("c.npy", "u.npy", "gradient.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name


def of(process, out):
    """Whether a process is one of Python that works on a folder."""
    words = process.cmdline()
    return str(out) in words and words[0] == sys.executable


HISTORY = """
import sys, outgrid as og
shape, steps, out = (40, 12, 11), 8, sys.argv[1]
given = {"memory": "1GiB", "threads": 1, "tier": "direct", "depth": 4}
problem = og.Problem("wave:2", shape, "float32", steps, initial={"u": "sin(z) * y + x", "c": 0.1},
                     snapshots=[og.History("u", every=2, dtype="float16")])
kept = og.run(problem, out=out + "/kept", **given)
add = og.stencil(lambda total, state: {"total": total + state * state[1, 0, 0]})
back = og.Problem(add, shape, "float32", steps // 2, dtypes={"state": "float16"},
                  initial={"total": 0.0, "state": kept.history("u", reverse=True)})
og.run(back, out=out + "/back", **given)
"""


def test_ranks_keep_the_history_of_one_and_read_it_back(tmp_path):
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        finish(launch(ranks, sys.executable, "-c", HISTORY, tmp_path / str(ranks)))
    one, two = ((tmp_path / str(ranks) / "kept" / "snapshot.0.npy") for ranks in (1, 2))
    assert one.read_bytes() == two.read_bytes()
    alone, both = (np.array(og.open(tmp_path / str(ranks) / "back")["total"]) for ranks in (1, 2))
    assert alone.any()
    assert alone.tobytes() == both.tobytes()


SHOTS = """
import sys, numpy as np, outgrid as og
shape, steps = (14, 15), 6
rng = np.random.default_rng(1)
y, x = np.indices(shape)
problems = [og.Problem("wave:2", shape, "float64", steps,
                       initial={"u": np.exp(-((y - 5 - n)**2 + (x - 7)**2) / 4), "c": 0.1 + 0*y},
                       receivers=[og.Receiver("u", (9, 4.5))]) for n in range(3)]
wanted = [og.LeastSquares(rng.normal(size=(steps, 1))) for _ in range(3)]
depth = int(sys.argv[2])
g = og.shots(problems, wanted, wrt=["c"], out=sys.argv[1], ranks="shots", memory="1GiB", threads=1,
             on_shot=lambda one: print(one.shot, one.done, one.shots, flush=True), depth=depth)
"""


def test_ranks_take_shots_of_their_own(tmp_path):
    for ranks in (1, 2):
        out, _ = finish(launch(ranks, sys.executable, "-c", SHOTS, tmp_path / str(ranks), 1))
        fired = sorted([int(word) for word in line.split()] for line in out.splitlines())
        assert [shot for shot, _, _ in fired] == [0, 1, 2]
        assert max(done for _, done, _ in fired) == 3
        assert {shots for _, _, shots in fired} == {3}
    for name in ("c.npy", "shots.json"):
        one, two = ((tmp_path / str(ranks) / name).read_bytes() for ranks in (1, 2))
        assert one == two, name


def test_a_shot_that_fails_ends_all_ranks_with_its_reason(tmp_path):
    process = launch(2, sys.executable, "-c", SHOTS, tmp_path / "g", -1)
    out, error = process.communicate(timeout=400)
    assert process.returncode != 0
    assert (out + error).count("depth = -1") == 1
