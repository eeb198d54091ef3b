"""Disks that fill up, are slow, cut short, turn read-only or vanish under a run; files that may not
grow; and a limit of memory that sinks.

The disk is a file system in a file; where this process may not mount one, these tests are skipped.
"""

import errno
import fcntl
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.state import RunFolder
from outgrid_bench.limit import limited

SHUTDOWN = 0x8004587D  # an ioctl of ext4 and xfs: the file system stops as if its device had gone
WITHOUT_FLUSH = 2
HELD = 60  # seconds that another process may hold a file system
JOB = """
[problem]
stencil = "wave:4"
shape = [48, 96, 128]
dtype = "float32"
steps = 60
initial = {{u = "exp(-((x - 60)**2 + (y - 30)**2 + (z - 20)**2) / 40)", c = 0.1}}
[run]
memory = "{memory}"
tier = "direct"
depth = 1
slab_planes = 2
threads = 1
commit_every = 0.05
out = "{out}"
"""


class Disk:
    """An ext4 file system in a file, mounted at ``folder``."""

    def __init__(self, place: Path) -> None:
        self.image, self.folder = place / "image", place / "disk"
        self.folder.mkdir()
        with self.image.open("wb") as file:
            file.truncate(64 << 20)
        self._call("mkfs.ext4", "-q", "-F", str(self.image))
        self.mount()

    def mount(self) -> None:
        self._call("mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.folder))

    def unmount(self) -> None:
        """Leave nothing behind: the next mount reads the image.

        A process that was given its own view of all mounts meanwhile (``ip netns exec``) holds
        the file system until it ends; mounting the image again would find it as it was left.
        """
        self._call("umount", str(self.folder))
        deadline = time.monotonic() + HELD
        while self._call("losetup", "--associated", str(self.image)):
            assert time.monotonic() < deadline, f"{self.image} is in use after {HELD} s"
            time.sleep(0.01)

    def fill(self) -> None:
        """Take all the space that is left."""
        with (self.folder / "filler").open("wb", buffering=0) as file:
            size = 1 << 20
            while size >= 512:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def turn_read_only(self) -> None:
        """What the kernel does when it finds the file system damaged."""
        device = Path(os.path.realpath(self._device())).name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("on purpose\n")

    def vanish(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def lose_its_end(self, told: bool) -> None:
        """The file that the disk lies in is cut short.

        The device, unless it is ``told``, reads zeroes beyond that, and an error if it is.
        """
        os.truncate(self.image, 8 << 20)
        if told:
            self._call("losetup", "--set-capacity", self._device())

    @property
    def number(self) -> str:
        """Major and minor number of its device."""
        found = self.folder.stat().st_dev
        return f"{os.major(found)}:{os.minor(found)}"

    def _device(self) -> str:
        lines = Path("/proc/mounts").read_text().splitlines()
        return next(line.split()[0] for line in lines if line.split()[1] == str(self.folder))

    @staticmethod
    def _call(*command: str) -> str:
        try:
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system can be mounted here: {error}")


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("mounting a file system needs root and mkfs.ext4")
    found = Disk(tmp_path)
    try:
        yield found
    finally:
        subprocess.run(["umount", "-l", str(found.folder)], check=False, capture_output=True)


def command_of(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "outgrid", *arguments, "--quiet"]


def start(job: Path, out: Path, memory: str = "256MiB", entering: tuple[str, ...] = ()):
    """A run that is under way."""
    job.write_text(JOB.format(out=out, memory=memory))
    command = [*entering, *command_of("run", str(job))]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and steps_done(out) < 2:
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()
    return process


def steps_done(out: Path) -> int:
    if not (out / MANIFEST_NAME).exists():
        return -1
    return RunFolder.of_manifest(out)[1].steps_done


def fields(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}


@pytest.fixture(scope="module")
def answer(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "job.toml").write_text(JOB.format(out=folder / "run", memory="256MiB"))
    settings = ["--set", "tier=memory", "--set", "commit_every=99"]
    command = command_of("run", str(folder / "job.toml"), *settings)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return fields(folder / "run")


@pytest.mark.parametrize(
    ("happens", "codes"),
    [
        ("fill", (errno.ENOSPC,)),
        ("turn_read_only", (errno.EROFS, errno.EIO)),  # what is under way then gets the latter
        ("vanish", (errno.EIO,)),
    ],
)
def test_what_happens_to_a_disk_ends_in_words_and_the_run_goes_on(
    happens, codes, disk, tmp_path, answer
):
    out = disk.folder / "run"
    process = start(tmp_path / "job.toml", out)
    getattr(disk, happens)()
    _, said = process.communicate(timeout=600)
    if happens == "fill":
        (disk.folder / "filler").unlink()
    else:
        disk.unmount()
        disk.mount()
    if process.returncode != 0:  # the space that a run needs was set aside: it may succeed
        assert process.returncode == 4, said
        assert any(f"{os.strerror(code)} (errno {code})" in said for code in codes), said
        assert "Traceback" not in said
        assert f"file {out}/" in said
        command = command_of("resume", str(out), "--memory", "256MiB")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    else:
        assert happens == "fill"
    assert fields(out) == answer


def test_a_limit_that_is_lowered_under_a_run_is_kept_or_kills_it_and_it_goes_on(tmp_path, answer):
    out = tmp_path / "run"
    with limited(256 << 20) as group:
        if group.folder is None:
            pytest.skip(group.reason)
        process = start(tmp_path / "job.toml", out, "200MiB", group.entering)
        name = next(
            name
            for name in ("memory.limit_in_bytes", "memory.max")
            if (group.folder / name).exists()
        )
        for mebibytes in range(96, 32, -4):
            try:
                (group.folder / name).write_text(str(mebibytes << 20))
            except OSError:  # more than that is in use and cannot be given back
                break
        _, said = process.communicate(timeout=600)
    assert process.returncode in (0, -9), said
    if process.returncode:
        with limited(112 << 20) as group:
            done = group.try_run(command_of("resume", str(out), "--memory", "112MiB"), 60)
            assert done.returncode == 0, done.stderr
    assert fields(out) == answer


BLKIO = Path("/sys/fs/cgroup/blkio")


@contextmanager
def slowed(disk: Disk, limits: dict[str, int]) -> Generator[tuple[str, ...]]:
    """What to start a command with, so that it may move only so much to and from ``disk``."""
    group = BLKIO / f"outgrid-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group that slows disks can be made here: {error}")
    try:
        for name, limit in limits.items():
            file = group / f"blkio.throttle.{name}_device"
            if not file.exists():
                pytest.skip(f"this kernel has no {file.name}")
            file.write_text(f"{disk.number} {limit}")
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        yield ("sh", "-c", enter, "sh")
    finally:
        group.rmdir()


@pytest.mark.parametrize(
    "limits",
    [
        {"read_bps": 24 << 20, "write_bps": 24 << 20},
        {"read_iops": 300, "write_iops": 300},
    ],
    ids=["bytes", "requests"],
)
def test_a_slow_disk_is_waited_for(limits, disk, tmp_path, answer):
    out, job = disk.folder / "run", tmp_path / "job.toml"
    job.write_text(JOB.format(out=out, memory="256MiB"))
    settings = ["--set", "depth=20", "--set", "request_bytes=65536", "--set", "queue_depth=64"]
    with slowed(disk, limits) as entering:
        command = [*entering, *command_of("run", str(job), *settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        counted = (BLKIO / f"outgrid-{os.getpid()}/blkio.throttle.io_serviced").read_text()
    assert f"{disk.number} Read" in counted  # its requests went through the group
    assert fields(out) == answer


@pytest.mark.parametrize("told", [True, False], ids=["errors", "zeroes"])
def test_a_disk_that_is_cut_short_ends_in_words_and_gives_no_wrong_result(
    told, disk, tmp_path, answer
):
    out = disk.folder / "run"
    process = start(tmp_path / "job.toml", out)
    disk.lose_its_end(told)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    # A moment passes before the device is told, so zeroes may come back from both.
    words = [f"{os.strerror(code)} (errno {code})" for code in (errno.EIO, errno.EROFS)]
    words.append("did not match the checksums")
    assert any(each in said for each in words), said
    assert f"file {out}/" in said
    assert "Traceback" not in said
    command = command_of("resume", str(out), "--memory", "256MiB")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (2, 4), done.stderr
    assert str(out) in done.stderr
    assert "Traceback" not in done.stderr
    assert not fields(out)


def test_files_that_may_not_grow_end_in_words_and_nothing_is_left(tmp_path):
    out, job = tmp_path / "run", tmp_path / "job.toml"
    job.write_text(JOB.format(out=out, memory="256MiB"))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

    done = subprocess.run(
        command_of("run", str(job)), capture_output=True, text=True, timeout=60, preexec_fn=limit
    )
    assert done.returncode == 4, done.stderr
    assert f"{os.strerror(errno.EFBIG)} (errno {errno.EFBIG})" in done.stderr
    assert f"file {out}/" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


@pytest.fixture
def mounts(tmp_path) -> Iterator[tuple[Path, Path]]:
    """Two folders of one disk, seen through two mounts, as a container sees them."""
    made = []
    for name in ("scratch", "results"):
        (tmp_path / "disk" / name).mkdir(parents=True)
        place = tmp_path / name
        place.mkdir()
        command = ["mount", "--bind", str(tmp_path / "disk" / name), str(place)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no folder can be mounted here")
        made.append(place)
    try:
        yield made[0], made[1]
    finally:
        for place in made:
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def test_results_are_copied_between_two_mounts_of_one_disk(mounts, tmp_path, answer):
    scratch, results = mounts
    assert scratch.stat().st_dev == results.stat().st_dev
    job, out = tmp_path / "job.toml", results / "run"
    job.write_text(JOB.format(out=out, memory="256MiB") + f'scratch = "{scratch}/run"\n')
    done = subprocess.run(command_of("run", str(job)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert fields(out) == answer
    assert not list(scratch.iterdir())
