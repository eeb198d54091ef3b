"""Machines that files describe, and plans for them."""

import json

import pytest
from msgspec.structs import replace

from outgrid import Problem
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.machines import known_sites, read_site
from outgrid.planning import plan_elsewhere

JOB = """
[problem]
stencil = "heat7"
shape = [1024, 2048, 2048]
steps = 128
dtype = "float64"
parameters = {k = 0.1}
initial = {u = 0.5}
"""
MACHINE = """
cores = 4
memory = "8GiB"
disk = {read = "200MB/s", write = "100MB/s", capacity = "400GB", endurance = "200TBW"}
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def described(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def planned(job, capsys, *arguments):
    code = main(["plan", str(job), "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", known_sites())
def test_the_machines_that_come_along_are_whole_and_plan(name, job, capsys):
    site = read_site(name)
    assert site.machine.read_bandwidth >= site.machine.write_bandwidth > 0
    code, plan = planned(job, capsys, "--machine", name)
    assert code == 0
    assert plan["memory_bytes"] == site.machine.memory_bytes // 2
    assert plan["threads"] == site.machine.cores
    assert site.name in plan["notes"][-1]
    assert (plan["subgrid"] is None) == (site.nodes == 1)


def test_what_is_left_out_follows_from_the_rest(tmp_path):
    site = read_site(described(tmp_path, MACHINE))
    assert site.machine.mixed_bandwidth == pytest.approx(2 / (1 / 200e6 + 1 / 100e6))
    assert (site.nodes, site.disk_bytes, site.endurance_bytes) == (1, 400e9, 200e12)
    three = read_site(described(tmp_path, MACHINE + "disks = 3\n"))
    assert three.machine.read_bandwidth == 3 * site.machine.read_bandwidth
    assert three.disk_bytes == 3 * site.disk_bytes


def test_a_slower_disk_makes_a_longer_run(tmp_path, job, capsys):
    seconds = []
    for disk in ("nvme", "sata", "hdd"):
        text = f'cores = 4\nmemory = "8GiB"\ndisk = "{disk}"\ndisks = 4\n'
        _, plan = planned(job, capsys, "--machine", described(tmp_path, text))
        seconds.append(plan["predicted_seconds"])
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


def test_nodes_are_those_of_the_file_or_those_asked_for(tmp_path, job, capsys):
    path = described(tmp_path, "nodes = 4\n" + MACHINE)
    _, four = planned(job, capsys, "--machine", path)
    _, two = planned(job, capsys, "--machine", path, "--ranks", "2")
    bounds = [plan["subgrid"]["plane_bounds"] for plan in (four, two)]
    rows = [plan["subgrid"]["row_bounds"] for plan in (four, two)]
    assert [(len(a) - 1) * (len(b) - 1) for a, b in zip(bounds, rows, strict=True)] == [4, 2]


def test_memory_is_what_is_asked_for_or_a_share_of_what_is_there(tmp_path, job, capsys):
    path = described(tmp_path, MACHINE)
    assert planned(job, capsys, "--machine", path)[1]["memory_bytes"] == 4 << 30
    given = planned(job, capsys, "--machine", path, "--memory", "25%")[1]
    assert given["memory_bytes"] == 2 << 30


def test_files_that_its_disks_cannot_hold_are_refused(tmp_path, job, capsys):
    path = described(tmp_path, MACHINE.replace("400GB", "40GB"))
    assert main(["plan", str(job), "--machine", path]) == 3
    said = capsys.readouterr().err
    assert "37.3 GiB" in said
    assert "more or larger disks" in said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("flash2015", "known are bus2013"),
        ("nowhere.toml", "cannot read the description of a machine nowhere.toml"),
    ],
)
def test_machines_that_are_not_there_are_refused(given, told):
    with pytest.raises(UsageError, match=told):
        read_site(given)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cores = 4\n", "lacks the key 'memory'"),
        (MACHINE + "core = 4\n", "unknown key 'core'; did you mean 'cores'"),
        (MACHINE.replace("4", "0", 1), "cores must be at least 1, not 0"),
        (
            'cores = 4\nmemory = "8GiB"\ndisk = "nvm"\n',
            "disk must be a class of disks, not 'nvm'; did you mean 'nvme'",
        ),
        (MACHINE.replace("200MB/s", "200MB"), "'200MB' is not a rate"),
        (MACHINE.replace("200MB/s", "0MB/s"), "must be finite and above 0"),
        ("cores = [", "is not TOML"),
    ],
)
def test_descriptions_that_make_no_sense_are_refused(tmp_path, text, told):
    with pytest.raises(UsageError, match=told):
        read_site(described(tmp_path, text))


def paper_plan(interior, nodes, **options):
    """A plan for the cluster of the paper: 256 steps of two states in blocks."""
    shape = tuple(cells + 2 for cells in interior)
    problem = Problem("heat7", shape, "float64", 256, initial={"u": 0.0})
    chosen = RunOptions.of(memory="60GiB", scheme="overlapped", **options)
    return plan_elsewhere(problem, chosen, replace(read_site("tsubame25"), nodes=nodes))


CUBE, CUBOID = (4096, 4096, 4094), (16384, 2048, 2046)


@pytest.mark.parametrize("nodes", range(1, 7))
def test_fewer_than_seven_nodes_cannot_hold_the_papers_problem(nodes):
    needed = "need 1.00 TiB" if nodes == 1 else "steps has [0-9]+ GiB of working files"
    with pytest.raises(InfeasiblePlan, match=f"{needed}.*153 GiB"):
        paper_plan(CUBE, nodes)


def test_seven_nodes_hold_the_papers_problem():
    plan = paper_plan(CUBE, 7)
    assert plan.depth == 8
    assert plan.volume.disk_bytes <= 153 << 30


def test_depths_of_the_papers_shapes_are_bound_by_the_flash_of_a_node():
    assert paper_plan(CUBOID, 8).depth == 128
    # A node of the cube has a neighbour on one side along an axis of two parts: 32 in the paper,
    # which counts halos on both.
    assert paper_plan(CUBE, 8).depth == 64
    for shape, depth in ((CUBE, 128), (CUBOID, 256)):
        with pytest.raises(InfeasiblePlan, match=f"{depth} steps has .* and 153 GiB are free"):
            paper_plan(shape, 8, depth=depth)


def test_a_node_with_neighbours_on_all_sides_sweeps_as_deep_as_in_the_paper():
    inner = 2 * CUBE[0], 2 * CUBE[1], CUBE[2]
    assert paper_plan(inner, 32).depth == 32
    with pytest.raises(InfeasiblePlan, match=r"64 steps has .* and 153 GiB are free"):
        paper_plan(inner, 32, depth=64)
