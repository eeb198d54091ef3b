"""Ranks on two hosts: network namespaces, each with a name of its own, and TCP between them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

BIN = Path(sys.executable).parent
NAME = f"og{os.getpid() % 100000}"  # links have names of 15 letters at most
ADDRESSES = ("10.213.77.1", "10.213.77.2")
# Memory that both could share would hide what is tested.
OVER_TCP = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "MPIR_CVAR_ENABLE_BUSY_WAIT_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "OMP_NUM_THREADS": "1",
}
SLOW = (  # the first that the kernel knows, if any
    "netem delay 300us rate 1gbit",
    "tbf rate 1gbit burst 256kb latency 50ms",
)
# Stands in for ssh: `LAUNCH [-x] HOST COMMAND...` runs the command on that host.
LAUNCH = """#!/bin/sh
[ "$1" = -x ] && shift
host=${{1##*.}}; shift
exec ip netns exec {name}h$host unshare --uts sh -c "hostname {name}h$host; $*"
"""
JOB = """
[problem]
stencil = "heat7"
dtype = "float64"
shape = [48, 20, 24]
steps = 9
initial = { u = "start.npy" }
parameters = { k = 0.1 }
"""


def ip(*words, program="ip"):
    return subprocess.run([program, *words], capture_output=True, text=True)


def slowed(space, link, kind):
    words = ["-n", space, "qdisc", "add", "dev", link, "root", *kind.split()]
    return shutil.which("tc") is not None and ip(*words, program="tc").returncode == 0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """A function that runs a command with MPI on one rank of each host."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("network namespaces are made by root, with ip and unshare")
    spaces, links = [f"{NAME}h1", f"{NAME}h2"], [f"{NAME}l1", f"{NAME}l2"]
    try:
        steps = [["netns", "add", space] for space in spaces]
        steps.append(["link", "add", links[0], "type", "veth", "peer", "name", links[1]])
        for space, link, address in zip(spaces, links, ADDRESSES, strict=True):
            steps.append(["link", "set", link, "netns", space])
            steps.append(["-n", space, "address", "add", f"{address}/24", "dev", link])
            steps += [["-n", space, "link", "set", each, "up"] for each in (link, "lo")]
        for step in steps:
            if (done := ip(*step)).returncode:
                pytest.skip(f"no network namespaces: ip {' '.join(step)}: {done.stderr.strip()}")
        for space, link in zip(spaces, links, strict=True):
            any(slowed(space, link, kind) for kind in SLOW)
        launch = tmp_path_factory.mktemp("launch") / "launch"
        launch.write_text(LAUNCH.format(name=NAME))
        launch.chmod(0o755)
        first = ["ip", "netns", "exec", spaces[0], "unshare", "--uts", "sh", "-c"]
        mpiexec = [str(BIN / "mpiexec"), "-launcher", "ssh", "-launcher-exec", str(launch)]
        mpiexec += ["-localhost", ADDRESSES[0], "-hosts", ",".join(ADDRESSES), "-ppn", "1"]

        def run(*command):
            return subprocess.run(
                [*first, f'hostname {spaces[0]}; exec "$@"', "sh", *mpiexec, *map(str, command)],
                env=os.environ | OVER_TCP,
                capture_output=True,
                text=True,
                timeout=100,
            )

        def sent():
            where = f"/sys/class/net/{links[0]}/statistics/tx_bytes"
            return int(ip("netns", "exec", spaces[0], "cat", where).stdout)

        run.sent_bytes = sent
        yield run
    finally:
        ip("link", "delete", links[0])
        for space in spaces:
            ip("netns", "delete", space)  # with the link that is in it


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job file, and the answer of one process."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.toml").write_text(JOB)
    np.save(folder / "start.npy", np.random.default_rng(3).random((48, 20, 24)))
    command = ["run", folder / "job.toml", "--tier", "memory", "--memory", "200MiB"]
    line = [BIN / "outgrid", *command, "--out", folder / "whole", "--quiet"]
    subprocess.run(line, check=True, capture_output=True)
    return folder / "job.toml", np.load(folder / "whole" / "u.npy")


@pytest.mark.parametrize("tier", ["direct", "remote"])
def test_a_run_between_hosts_leaves_the_same_bytes(tier, hosts, job, tmp_path):
    path, expected = job
    command = ["run", path, "--tier", tier, "--memory", "400MiB", "--out", tmp_path / "run"]
    settings = ["--set", "depth=3", "--set", "threads=1"]
    if tier == "remote":
        settings += ["--set", "lend=64MiB"]
    done = hosts("-n", "2", BIN / "outgrid", *command, *settings, "--quiet", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    read = "import outgrid, sys, numpy; numpy.save(sys.argv[2], outgrid.open(sys.argv[1])['u'][:])"
    subprocess.run([sys.executable, "-c", read, tmp_path / "run", tmp_path / "u.npy"], check=True)
    assert np.load(tmp_path / "u.npy").tobytes() == expected.tobytes()
    assert f"{NAME}h2" in done.stdout  # the other host took part


def test_arrays_of_another_host_are_got_put_and_paged(hosts, tmp_path):
    script = Path(__file__).with_name("remote_ranks.py")
    before = hosts.sent_bytes()
    done = hosts("-n", "2", sys.executable, script, "arrays", tmp_path)
    assert (done.returncode, done.stdout) == (0, "arrays agree\n"), done.stderr
    assert hosts.sent_bytes() - before > 20 << 20  # of arrays of 8 MiB, twice, and of pages
