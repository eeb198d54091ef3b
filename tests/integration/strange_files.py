"""Verbs on runs in which something else lies where a file should be: prints what each said.

    strange_files.py FOLDER unfinished|finished STRIDE

Of the trials each STRIDE-th is made.

Each trial is a process of its own, which is killed where it takes longer than PATIENCE; only a wait
without end does.
"""

import contextlib
import importlib
import io
import json
import os
import pkgutil
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import outgrid
from outgrid.cli import main

PATIENCE = 300.0
KINDS = ("FIFO", "directory", "link", "dangling link", "circle", "device", "socket")
JOB = """
[problem]
stencil = "heat5"
shape = [24, 32]
steps = 4
parameters = {k = 0.2}
initial = {u = "start.npy"}
receivers = [{field = "u", position = [3, 4]}]
snapshots = [{field = "u", every = 2}]
[run]
memory = "256MiB"
tier = "direct"
depth = 2
threads = 1
"""
RUN = ("--quiet", "--memory", "256MiB", "--tier", "direct", "--set", "threads=1")


def prepare(folder: Path, state: str) -> None:
    """A job and its input, and what it leaves: finished, or after two steps."""
    import numpy as np

    from outgrid import pipeline
    from outgrid.execute.stop import Stop
    from outgrid.job import load_job

    folder.mkdir()
    (folder / "precious").write_bytes(b"precious")
    np.save(folder / "start.npy", np.ones((24, 32)))
    (folder / "job.toml").write_text(JOB)
    job = load_job(folder / "job.toml")
    stop = Stop()
    if state == "unfinished":
        stop.request("enough")
    with contextlib.suppress(Exception):
        pipeline.run(job.problem, job.options, None, stop)
    if state == "finished":
        main(["report", str(folder / "job.run"), "--json"])


def verbs(folder: Path, state: str) -> dict[str, list[str]]:
    """What is done in a folder, each in a fresh copy of it."""
    out = str(folder / "job.run")
    found = {
        "plan": ["plan", str(folder / "job.toml"), "--set", "out='other.run'"],
        "run": ["run", str(folder / "job.toml"), "--quiet"],
        "verify": ["verify", out],
        "show": ["show", out],
    }
    if state == "unfinished":
        return found | {
            "resume": ["resume", out, *RUN],
            "clean": ["clean", out],
            "delete": ["clean", out, "--delete"],
        }
    return found | {"report": ["report", out], "field": ["show", f"{out}/u.npy"]}


def put(kind: str, path: Path, precious: Path) -> None:
    """Something else in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(precious)
        case "dangling link":
            path.symlink_to(precious.with_name("nowhere"))
        case "circle":
            path.symlink_to(path.name)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            before = os.getcwd()
            os.chdir(path.parent)  # names of sockets are short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
            os.chdir(before)


def said(arguments: list[str]) -> dict[str, object]:
    """What a process that does this says, and how it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        words = io.StringIO()
        code = -1
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = int(ended.code or 0)
            except BaseException:
                traceback.print_exc()
        os.write(writing, json.dumps({"code": code, "said": words.getvalue()[-2000:]}).encode())
        os._exit(0)
    os.close(writing)
    end = time.monotonic() + PATIENCE
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    return json.loads(text) if text else {"code": None, "said": "it took too long, or was killed"}


def import_all() -> None:
    """Import once what every trial would import anew: all modules, and what draws pictures."""
    for module in pkgutil.walk_packages(outgrid.__path__, "outgrid.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for drawing in ("figure", "font_manager", "backends.backend_agg", "image", "colors"):
        importlib.import_module(f"matplotlib.{drawing}")


def tell(folder: Path, state: str, stride: int) -> None:
    """All trials, or some of them."""
    import_all()
    whole = folder / "whole"
    child = os.fork()  # threads of a kernel would be missing in later ones
    if child == 0:
        with contextlib.redirect_stdout(io.StringIO()):
            prepare(whole, state)
        os._exit(0)
    os.waitpid(child, 0)
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    # The coordinates x, y and step are written alike: one of them stands for all.
    alike = ("precious", "job.toml", "job.run/y/", "job.run/step/")
    names = [name for name in names if not name.startswith(alike)]
    names += ["job.toml", "job.run/run.lock", "job.run/ranks.json"]
    names += ["job.run/manifest.json.new", "job.run/record.json.new", "job.run/manifest.json"]
    names += ["job.run/record.json", "job.run/u.npy.new", "job.run/receivers.npy.new"]
    if state == "finished":
        names += ["job.run/report/u.png", "job.run/u.png"]
    trial = folder / "trial"
    for number, name in enumerate(dict.fromkeys(names)):
        for position, verb in enumerate(verbs(trial, state)):  # each verb meets all kinds
            kind = KINDS[(number + position) % len(KINDS)]
            if (number // len(KINDS) + position) % stride:
                continue
            shutil.copytree(whole, trial)
            put(kind, trial / name, trial / "precious")
            found = said(verbs(trial, state)[verb])
            kept = (trial / "precious").read_bytes() == b"precious"
            made = (trial / "nowhere").exists()
            told = {"name": name, "kind": kind, "verb": verb, "kept": kept and not made}
            sys.stdout.write(json.dumps(told | found) + "\n")
            sys.stdout.flush()
            shutil.rmtree(trial)


if __name__ == "__main__":
    tell(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
