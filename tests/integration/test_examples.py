"""The jobs in examples/ and the programs and jobs in the documents do what they say."""

import contextlib
import io
import os
import re
import runpy
import tomllib
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from outgrid import pipeline
from outgrid.cli import SEPARATE, VERBS
from outgrid.job import load_job, read_job_file
from outgrid.machines import read_site
from outgrid.stencil.problem import Problem

ROOT = Path(__file__).parents[2]
JOBS = sorted((ROOT / "examples").glob("*.toml"))
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "tutorials" not in path.parts),
    *sorted((ROOT / "examples").glob("*.md")),
]
FEW_STEPS = 7
LARGEST_CELLS = 2_000_000

# Documents show sizes worth the trouble; the same programs run here on small grids.
SMALLER = {
    "(1026, 2050, 2048)": "(34, 66, 64)",
    "[1026, 2050, 2048]": "[34, 66, 64]",
    "(514, 258, 256)": "(34, 66, 64)",
}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_an_example_plans_and_runs(path, tmp_path):
    job = load_job(path, {"out": str(tmp_path / "out")})
    plan = pipeline.plan(job.problem, job.options)
    assert plan.memory.window_bytes + plan.memory.fixed_bytes <= plan.memory.limit_bytes
    if job.problem.cells > LARGEST_CELLS:
        return
    short = Problem.from_dict({**job.problem.to_dict(), "steps": FEW_STEPS})
    result = pipeline.run(short, job.options)
    for name in result.record.fields:
        assert np.isfinite(result[name]).all()


def blocks(language: str) -> list:
    """Programs: a block of Python that does not import outgrid goes on with the one before it."""
    found = []
    for document in DOCUMENTS:
        texts = list[str]()
        for block in re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S):
            if language == "python" and texts and "import outgrid" not in block:
                texts[-1] += block
            else:
                texts.append(block)
        found += [
            pytest.param(text, id=f"{document.stem}-{number}") for number, text in enumerate(texts)
        ]
    return found


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_in_a_document_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    text = text.replace('"/nvme', f'"{tmp_path}/nvme')
    # A stencil's errors point at its line, so the program needs a file.
    Path("program.py").write_text(text)
    np.save("start.npy", np.ones((34, 66, 64)))
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, "program.py", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_draws(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(path), run_name="__main__")
    if path.stem != "notebook":  # whose values show themselves
        assert plt.get_fignums()
        assert "skewed, depth" in said.getvalue()
    plt.close("all")


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_job_or_a_machine_in_a_document_is_valid(text, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(text)
    if "cores" in tomllib.loads(text):
        assert read_site(str(path)).disk_bytes
        return
    problem, _ = read_job_file(path)
    assert problem.keys() == tomllib.loads(text)["problem"].keys()


@pytest.mark.parametrize("text", blocks("sh"))
def test_commands_in_a_document_exist(text):
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words and words[0] == "outgrid":
            assert words[1] in (*VERBS, *SEPARATE, "--version")
        elif words and words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_between_documents_lead_somewhere(document):
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert os.path.exists(document.parent / target), target
