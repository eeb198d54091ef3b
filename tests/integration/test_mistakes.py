"""What a user gets for a mistake: one line that says what, the values and the fix; an exit code."""

import os
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.record import read_record

JOB = """
[problem]
stencil = "heat5"
shape = [40, 64]
steps = 6
dtype = "float64"
parameters = {k = 0.2}
initial = {u = "start.npy"}
[run]
memory = "256MiB"
tier = "direct"
depth = 3
slab_planes = 4
threads = 1
"""
VALUES = np.random.default_rng(0).random((40, 64))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("start.npy", VALUES)
    return tmp_path


def run(
    capsys, *changes: tuple[str, str], verb: str = "run", more: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Exit code and standard error of the job with pieces of its text replaced."""
    text = JOB
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("job.toml").write_text(text)
    code = main([verb, "job.toml", *([] if verb == "plan" else ["--quiet"]), *more])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if code:
        assert (captured.out != "") == ("a run would fail: " in captured.err)
        assert captured.err.startswith("outgrid: ")
        assert not Path("job.run/record.json").exists()
    return code, captured.err


@pytest.mark.parametrize("written", ['"/dev/other"', '["/dev/other", "/dev/more"]'])
def test_a_job_file_alone_erases_nothing(written, folder, capsys):
    erase = ("threads = 1", f"threads = 1\nerase = {written}")
    for verb in ("plan", "run"):
        code, said = run(capsys, erase, verb=verb)
        assert code == 2
        assert "erase is not read from a file" in said
        assert "add --erase /dev/other" in said
        assert said.count("--erase") == written.count("/dev/")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("depth = 3", "dept = 3"), ["unknown key 'dept'", "did you mean 'depth'"]),
        (("steps = 6", "steps = 6\nmemory = 3"), ["memory", "belongs in [run]"]),
        (("steps = 6", "steps = -6"), ["not -6", "at least 0"]),
        (("steps = 6\n", ""), ["lacks the key 'steps'"]),
        (("[40, 64]", "[4, 4, 4, 4]"), ["(4, 4, 4, 4)", "4 dimensions", "1 (x), 2 (y, x) or 3"]),
        (("[40, 64]", "[2, 64]"), ["extent 2", "at least 3"]),
        (("[40, 64]", "[4000000000, 4000000000]"), ["cells", "at most"]),
        (("[40, 64]", "[40, 65]"), ["(40, 64)", "(40, 65)"]),
        (('"float64"', '"float16"'), ["float16", "float32"]),
        (('"heat5"', '"heat50"'), ["heat50", "did you mean 'heat5'"]),
        (('"heat5"', '"none.py:rule"'), ["none.py does not exist"]),
        (("k = 0.2", "kk = 0.2"), ["no parameter 'kk'", "'k'"]),
        (("{u =", "{v ="), ["no field for initial values 'v'", "known: u"]),
        (('"start.npy"', '"x +"'), ["x +"]),
        (('"256MiB"', '"256 pounds"'), ["pounds", "1GiB"]),
        (("depth = 3", "depth = 0"), ["depth = 0", "at least 1"]),
        (("slab_planes = 4", "slab_planes = 41"), ["not 41", "1..40"]),
        (("threads = 1", "threads = 0"), ["threads = 0", "at least 1"]),
        (("threads = 1", "threads = 1000000"), ["threads = 1000000", "at most 1024"]),
        (("threads = 1", "queue_depth = 1025"), ["queue_depth = 1025", "at most 1024"]),
        (("depth = 3", "inner_depth = 0"), ["inner_depth = 0", "at least 1"]),
        (("threads = 1", 'require = "bla"'), ["require = 'bla': expected one of io_uring, aio"]),
        (('tier = "direct"', 'tier = "mmap"\nrequire = "aio"'), ["'aio'", "not for tier mmap"]),
        (("threads = 1", 'scheme = "plain"'), ["plain", "depth 3"]),
        (("threads = 1", 'require = "io_urin"'), ["io_urin", "did you mean 'io_uring'"]),
        (("[problem]", "[problem"), ["job.toml is not TOML"]),
    ],
)
def test_a_wrong_job_ends_with_2(change, words, folder, capsys):
    code, said = run(capsys, change)
    assert code == 2
    assert [word for word in words if word not in said] == []
    assert said.count("\n") == 1
    assert not Path("job.run").exists()


@pytest.mark.parametrize("option", ["--set", "--scratch", "--erase", "--machine", "--ranks"])
def test_a_value_of_two_dashes_is_none(option, folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "job.toml", f"{option}=--"])
    assert ended.value.code == 2
    assert f"argument {option}: expected one argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["sweep", "/", "--set", "depth=1,2"], ["show", "field", "."], ["gradient", "/"]]
)
def test_folders_without_a_name_are_no_files(arguments, folder, capsys):
    assert main(arguments) in (2, 4)
    assert "directory" in capsys.readouterr().err


def test_any_number_of_ranks_is_refused_at_once(folder, capsys):
    code, said = run(capsys, verb="plan", more=("--ranks", str(2**62)))
    assert code == 3
    assert "ranks cannot share 40 planes" in said


def test_memory_that_is_not_there_is_told(folder, capsys, monkeypatch):
    def empty(*_, **__):
        raise MemoryError("Unable to allocate 64.0 GiB")

    monkeypatch.setattr("outgrid.pipeline.run", empty)
    code, said = run(capsys)
    assert code == 4
    assert said == "outgrid: out of memory: Unable to allocate 64.0 GiB\n"


def test_a_missing_job_is_named(folder, capsys):
    assert main(["run", "none.toml"]) == 2
    assert "none.toml: No such file" in capsys.readouterr().err


def broken(kind: str) -> None:
    """Put something in the place of the input file."""
    path = Path("start.npy")
    path.unlink()
    match kind:
        case "missing":
            pass
        case "folder":
            path.mkdir()
        case "text":
            path.write_text("these are no values")
        case "empty":
            path.touch()
        case "short":
            np.save(path, VALUES)
            os.truncate(path, 5000)
        case "objects":
            np.save(path, np.array([[None]]), allow_pickle=True)
        case "complex":
            np.save(path, VALUES.astype(np.complex128))
        case "text values":
            np.save(path, VALUES.astype("U4"))
        case "transposed":
            np.save(path, VALUES.T.copy())
        case "columns first":
            np.save(path, np.asfortranarray(VALUES))
        case "three axes":
            np.save(path, VALUES[None])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", ["start.npy does not exist"]),
        ("folder", ["directory"]),
        ("text", ["start.npy"]),
        ("empty", ["start.npy"]),
        ("short", ["5000"]),
        ("objects", ["'|O'", "plain numbers"]),
        ("complex", ["complex128", "float64"]),
        ("text values", ["'<U4'", "plain numbers"]),
        ("transposed", ["(64, 40)", "(40, 64)"]),
        ("columns first", ["Fortran", "ascontiguousarray"]),
        ("three axes", ["(1, 40, 64)", "(40, 64)"]),
    ],
)
def test_a_wrong_input_ends_with_2_before_anything_is_written(kind, words, folder, capsys):
    broken(kind)
    code, said = run(capsys)
    assert code == 2
    assert "start.npy" in said
    assert [word for word in words if word not in said] == []
    assert not Path("job.run").exists()


def test_a_memory_limit_that_is_too_small_names_one_that_fits(folder, capsys):
    code, said = run(capsys, ('"256MiB"', '"40MiB"'))
    assert code == 3
    assert "memory limit of 40.0 MiB" in said
    limit = said.split("a limit of ")[1].split(" fits")[0].replace(" ", "")
    assert run(capsys, ('"256MiB"', f'"{limit}"'))[0] == 0


@pytest.mark.parametrize("steps", [10**7, 10**12, 2**63 - 1])
def test_steps_too_many_to_be_listed_name_how_many_are_not(steps, folder, capsys):
    changes = (("steps = 6", f"steps = {steps}"), ("depth = 3", "depth = 1"))
    code, said = run(capsys, *changes, verb="plan")
    assert code == 3
    assert f"{steps} sweeps" in said
    assert "memory limit of 256 MiB" in said
    fits = said.split("run at most ")[1].split(" steps")[0]
    assert 10**5 < int(fits) < steps


def test_as_many_steps_as_a_message_says_fit(folder, capsys):
    changes = (("steps = 6", "steps = 10000000"), ("depth = 3", "depth = 1"))
    fits = run(capsys, *changes, verb="plan")[1].split("run at most ")[1].split(" steps")[0]
    changes = (("steps = 6", f"steps = {fits}"), ("depth = 3", "depth = 1"))
    assert run(capsys, *changes, verb="plan")[0] == 0
    deeper = (("steps = 6", f"steps = {10**6}"), ("depth = 3\n", ""), ("slab_planes = 4\n", ""))
    assert run(capsys, *deeper, verb="plan")[0] == 0


def test_more_planes_than_any_disk_has_room_for_are_refused_at_once(folder, capsys):
    shape, constant = ("[40, 64]", "[2147483648, 512]"), ('"start.npy"', "0.5")
    steps = (("steps = 6", "steps = 100000"), ("depth = 3\n", 'effort = "estimate"\n'))
    code, said = run(capsys, shape, constant, *steps)
    assert code == 3
    assert "of free space and the run needs 16" in said


def test_values_that_are_not_finite_are_warned_of(folder, capsys):
    VALUES_WITH_HOLES = VALUES.copy()  # noqa: N806
    VALUES_WITH_HOLES[20, 3:5] = [np.nan, np.inf]
    np.save("start.npy", VALUES_WITH_HOLES)
    assert run(capsys)[0] == 0
    # A process that has run other tests may be above the limit, of which it warns too.
    warnings = read_record(Path("job.run")).warnings
    (warning,) = (each for each in warnings if "infinite" in each)
    assert "2 values that are NaN or infinite" in warning
    assert "'u'" in warning


def test_a_disk_without_space_ends_before_anything_is_written(folder, capsys, monkeypatch):
    real = os.statvfs

    def nearly_full(path):
        found = list(real(path))
        found[4] = 3  # f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    code, said = run(capsys)
    assert code == 3
    assert "free space" in said
    assert "48.6 KiB" in said
    assert "scratch" in said
    assert not Path("job.run").exists()


@pytest.mark.parametrize(
    "name", ["u.npy", "scratch/u.0.npy", "manifest.json", "u.npy.new", "samples.npy.new"]
)
def test_what_exists_is_not_overwritten(name, folder, capsys):
    path = Path("job.run") / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"precious")
    code, said = run(capsys)
    assert code == 2
    assert f"{path} exists and is not overwritten" in said
    assert path.read_bytes() == b"precious"
    assert sorted(each for each in Path("job.run").rglob("*") if each.is_file()) == [path]


@pytest.mark.parametrize("name", ["u.npy", "scratch/u.0.npy", "record.json"])
def test_a_link_that_leads_nowhere_is_not_followed(name, folder, capsys):
    path = Path("job.run") / name
    path.parent.mkdir(parents=True)
    path.symlink_to(folder / "elsewhere")
    code, said = run(capsys)
    assert code == 2
    assert f"{path} exists and is not overwritten" in said
    assert not Path("elsewhere").exists()


def test_a_preview_that_exists_is_not_overwritten(folder, capsys):
    path = Path("job.run/preview.npy")
    path.parent.mkdir()
    path.write_bytes(b"precious")
    code, said = run(capsys, ("threads = 1", "threads = 1\npreview = 8"))
    assert code == 2
    assert f"{path} exists and is not overwritten" in said
    assert path.read_bytes() == b"precious"


def test_links_at_names_that_are_written_first_are_not_followed(folder, capsys):
    names = ("manifest.json", "record.json", "receivers.npy", "scratch/owner.json")
    links = [Path("job.run") / f"{name}.new" for name in names]
    Path("precious").write_bytes(b"precious")
    links[-1].parent.mkdir(parents=True)
    for link in links:
        link.symlink_to(folder / "precious")
    assert run(capsys)[0] == 0
    assert Path("precious").read_bytes() == b"precious"
    assert all(link.readlink() == folder / "precious" for link in links)


def test_a_finished_run_is_not_overwritten(folder, capsys):
    assert run(capsys)[0] == 0
    before = Path("job.run/u.npy").stat()
    Path("job.run/record.json").rename("record.json")
    code, said = run(capsys)
    assert code == 2
    assert "--out" in said
    assert "resume" not in said
    assert Path("job.run/u.npy").stat() == before


@pytest.mark.parametrize("key", ["scratch", "out"])
def test_a_file_in_the_place_of_a_folder_is_named(key, folder, capsys):
    Path("taken").write_text("precious")
    code, said = run(capsys, ("threads = 1", f'{key} = "taken"'))
    assert code == 4
    assert "cannot make the folder, file taken" in said
    assert Path("taken").read_text() == "precious"


def test_an_engine_that_is_required_and_not_there_ends_with_4(folder, capsys):
    code, said = run(capsys, ("threads = 1", 'engine = "threads"\nrequire = "io_uring"'))
    assert code == 4
    assert "requires io_uring" in said
    assert "threads" in said
    assert not list(Path().rglob("u*.npy"))


def in_the_way(kind: str, monkeypatch) -> None:
    """Something for which a run is refused."""
    match kind:
        case "a file":
            Path("fast").write_text("precious")
        case "a file above":
            Path("job.run").write_text("precious")
        case "no right to write":
            monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0)
        case "a full disk":
            real = os.statvfs
            full = {4: 3}  # f_bavail
            monkeypatch.setattr(
                os,
                "statvfs",
                lambda path: os.statvfs_result(full.get(i, n) for i, n in enumerate(real(path))),
            )
        case "results":
            Path("job.run").mkdir()
            Path("job.run/u.npy").write_bytes(b"precious")
        case "another run":
            Path("fast").mkdir()
            Path("fast/owner.json").write_text('{"run": "1", "out": "/elsewhere"}')


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("a file", "cannot make the folder, file fast"),
        ("a file above", "cannot make the folder, file job.run"),
        ("no right to write", "Permission denied"),
        ("a full disk", "of free space and the run needs 48.6 KiB"),
        ("results", "job.run/u.npy exists and is not overwritten"),
        ("another run", "fast is in use by the run in /elsewhere"),
        ("devices", "/dev/fast is not a block device"),
        ("erase", "erase names /dev/other, which is not a block device of scratch"),
    ],
)
def test_a_plan_says_what_a_run_would_be_refused_for_and_writes_nothing(
    kind, words, folder, capsys, monkeypatch
):
    in_the_way(kind, monkeypatch)
    place = "/dev/fast" if kind == "devices" else "fast"
    more = ("--erase", "/dev/other") if kind == "erase" else ()
    change = ("threads = 1", f'threads = 1\nscratch = "{place}"')
    before = sorted(Path().rglob("*"))
    code, said = run(capsys, change, verb="plan", more=more)
    assert code == 3
    assert said.startswith("outgrid: a run would fail: ")
    assert words in said
    assert said.count("\n") == 1
    assert sorted({*Path().rglob("*")} - {Path("job.toml")}) == before
    code, refused = run(capsys, change, more=more)
    assert code != 0
    assert refused.removeprefix("outgrid: ") == said.removeprefix("outgrid: a run would fail: ")


def test_a_plan_is_printed_without_the_input_and_writes_nothing(folder, capsys):
    broken("missing")
    assert run(capsys, verb="plan")[0] == 3
    assert sorted(path.name for path in Path().iterdir()) == ["job.toml"]


def test_a_finished_run_is_not_resumed(folder, capsys):
    assert run(capsys)[0] == 0
    assert main(["resume", "job.run"]) == 2
    assert "has no manifest.json: the run in it is finished" in capsys.readouterr().err


def test_a_compiler_that_is_missing_is_told_with_its_remedy(folder, capsys, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("OUTGRID_CACHE", "cache")
    code, said = run(capsys, verb="plan")
    assert code == 3
    refused = said.removeprefix("outgrid: a run would fail: ")
    assert run(capsys) == (4, f"outgrid: {refused}")
    assert "no-such-compiler" in said
    assert "apt-get install g++" in said
    assert not Path("job.run").exists()


def made_without_a_compiler(path: Path, monkeypatch) -> None:
    """From now on there is none to be found."""
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("CXX")


def test_a_kernel_that_was_compiled_once_needs_no_compiler(folder, capsys, monkeypatch):
    monkeypatch.setenv("OUTGRID_CACHE", "cache")
    assert run(capsys) == (0, "")
    Path("job.run").rename("first.run")
    first = Path("first.run/u.npy").read_bytes()
    made_without_a_compiler(folder / "empty", monkeypatch)
    assert run(capsys, verb="plan") == (0, "")
    assert main(["run", "job.toml"]) == 0
    said = capsys.readouterr().err
    assert Path("job.run/u.npy").read_bytes() == first
    (note,) = read_record(Path("job.run")).measured.fallbacks
    assert f"{note}\n" in said
    assert note.startswith("no C++ compiler was found: the kernel is the one in cache/kernels/")
    assert "-march=native" in note


def test_a_kernel_of_another_processor_is_not_loaded(folder, capsys, monkeypatch):
    monkeypatch.setenv("OUTGRID_CACHE", "cache")
    assert run(capsys) == (0, "")
    Path("job.run").rename("first.run")
    made_without_a_compiler(folder / "empty", monkeypatch)
    monkeypatch.setattr("outgrid.build.compiler._processor", lambda: "another one")
    monkeypatch.setattr("outgrid.execute.kernels.REFERENCE_UPDATES", 0)
    code, said = run(capsys, verb="plan")
    assert code == 3
    assert "In cache/kernels the kernel is kept only for other processors" in said
    assert run(capsys)[0] == 4


def test_a_compiler_that_would_change_results_is_refused(folder, capsys, monkeypatch):
    monkeypatch.setenv("CXX", "g++ -ffast-math")
    monkeypatch.setenv("OUTGRID_CACHE", "cache")
    code, said = run(capsys, verb="plan")
    assert code == 3
    assert "-ffast-math allows operations to be reordered" in said
    assert run(capsys)[0] == 4
    assert not list(Path("cache").rglob("*.so"))


ARRAY = np.random.default_rng(1).random((20, 30))


@og.stencil
def heat(u, *, k):
    return u + k * og.laplacian(u)


@og.stencil
def coefficient(u, k):
    return u + k * og.laplacian(u)


def problem(rule: object = heat, **changes) -> og.Problem:
    """The problem of a beginner, with arguments replaced."""
    given = {"shape": (20, 30), "steps": 4, "parameters": {"k": 0.1}, "initial": {"u": ARRAY}}
    return og.Problem(rule, **(given | changes))


def branch(u):
    if u > 0:
        return u
    return -u


def assigned(u):
    u[0, 0] = 1
    return u


def misspelt(u):
    return og.laplacain(u)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda u: np.roll(u, 1), ["numpy.roll", "u[0, -1]"]),
        (lambda u: np.roll(u, 1, axis=0) - u, ["numpy.roll", "u[0, -1]"]),
        (lambda u: np.gradient(u), ["numpy.gradient", "u[0, -1]"]),
        (lambda u: np.diff(u, axis=1), ["numpy.diff", "u[0, -1]"]),
        (lambda u: np.mean(u) * u, ["numpy.mean", "outgrid.sum"]),
        (lambda u: u.max() * u, ["u.max", "outgrid.sum, max or min"]),
        (lambda u: u.clip(0, 1), ["u.clip", "outgrid.clip(u, low, high)"]),
        (lambda u: np.fft.fft2(u), ["numpy.fft2", "where, power"]),
        (lambda u: np.asarray(u) * 2, ["not an array", "SciPy", "u[0, -1]"]),
        (lambda u: max(u, 0), ["cannot branch", "maximum(a, b) for max(a, b)"]),
        (branch, ["cannot branch", "where(condition, a, b)"]),
        (lambda u: u if 0 < u < 1 else 0, ["(a < b) & (b < c)"]),
        (lambda u: u[1:-1, 1:-1], ["u[1:-1, 1:-1]", "no slices", "u[0, -1]"]),
        (lambda u: u[...], ["u[...]", "no slices"]),
        (lambda u: u[1] + u, ["u[1] has 1 offset", "2 are needed (y, x)"]),
        (lambda u: u(0, 1), ["brackets"]),
        (lambda u: (u * u)[1], ["has 1 offset", "2 are needed (y, x)"]),
        (lambda u: (u * u)[0, 0.5], ["must be a whole number, not 0.5"]),
        (lambda u, *, k: u * (2 * k)[0, 1], ["reads no field", "the same for all cells"]),
        (lambda u, *, k: og.laplacian(k) + u, ["reads no field"]),
        (lambda u: u @ u, ["u with u", "+ - * / // % **"]),
        (lambda u: u.shape[0] * u, ["u.shape", "u[0, -1], and u.previous"]),
        (lambda u, *, k: u * k[0], ["k is one number", "before the bare *"]),
        (lambda u: og.laplacian(3), ["needs a field or an expression", "3 (int)"]),
        (lambda u: u + np.ones((20, 30)), ["cannot use an array"]),
        (lambda u: None, ["returns nothing"]),
        (lambda u: kk * u, ["'kk' is not defined"]),  # noqa: F821
        (misspelt, ["'laplacain'", "did you mean 'laplacian'"]),
        (assigned, ["return the new value of 'u'"]),
    ],
)
def test_habits_of_numpy_in_a_stencil_are_told_what_to_write(rule, words):
    names = {"parameters": {"k": 1.0}} if rule.__code__.co_kwonlyargcount else {"parameters": {}}
    with pytest.raises(og.DefinitionError) as caught:
        problem(og.stencil(rule), **names)
    told(caught, words)
    assert type(caught.value) is og.DefinitionError
    assert "test_mistakes.py:" in str(caught.value)


def told(caught: pytest.ExceptionInfo[og.Error], words: list[str]) -> None:
    """Check that a message has all words, and no inner name."""
    said = str(caught.value)
    assert [word for word in words if word not in said] == []
    for inner in (" at 0x", "Symbol", "$.", "NoneType", "null", "outgrid.stencil.", "Error:"):
        if inner != "Error:" or ("NameError" not in said and "AttributeError" not in said):
            assert inner not in said
    assert "\n" not in said


def test_where_of_numpy_is_that_of_a_stencil():
    ours = og.stencil(name="chosen")(lambda u: og.where(u > 0.5, u, 1))
    theirs = og.stencil(name="chosen")(lambda u: np.where(u > 0.5, u, 1))
    assert ours.trace(2) == theirs.trace(2)
    assert (theirs(ARRAY)[1:-1, 1:-1] == np.where(ARRAY > 0.5, ARRAY, 1)[1:-1, 1:-1]).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: problem(coefficient), ["'k' is a field", "bare *: (u, *, k)"]),
        (lambda: problem(lambda u: u), ["outgrid.stencil(lambda"]),
        (lambda: problem(branch), ["function branch", "@outgrid.stencil above"]),
        (lambda: problem("heta5"), ["did you mean 'heat5'"]),
        (lambda: problem(shape=64), ["shape = 64", "(200, 300)"]),
        (lambda: problem(shape="20x30"), ["shape = '20x30'", "(200, 300)"]),
        (lambda: problem(shape=(20.0, 30)), ["20.0", "write 20"]),
        (lambda: problem(shape=(30, 20)), ["(20, 30)", "(30, 20)"]),
        (lambda: problem(steps=1e3), ["not 1000.0", "write 1000"]),
        (lambda: problem(steps=2.5), ["not 2.5", "whole number"]),
        (lambda: problem(dtype=np.int32), ["'int32'", "float32 or float64"]),
        (lambda: problem(dtype="flaot32"), ["did you mean 'float32'"]),
        (lambda: problem(parameters={"k": ARRAY}), ["(20, 30)", "field (before the bare *)"]),
        (lambda: problem(parameters={"k": "0.1"}), ["not '0.1'", "finite number"]),
        (lambda: problem(parameters={}), ["needs a value", "k"]),
        (lambda: problem(parameters=0.1), ["parameters = 0.1", '{"k": 0.1}']),
        (lambda: problem(boundary="wrap"), ["'wrap'", "here it is called 'periodic'"]),
        (lambda: problem(boundary="reflect"), ["here it is called 'mirror'"]),
        (lambda: problem(boundary="Periodic"), ["did you mean 'periodic'"]),
        (lambda: problem(boundary={0: "periodic"}), ["no entry 0", "x-, x+"]),
        (lambda: problem(initial={"U": ARRAY}), ["no field for initial values 'U'", "known: u"]),
        (lambda: problem(initial={}), ["initial values for 'u'", "array"]),
        (lambda: problem(initial=ARRAY), ["initial = an array", '{"u": ...}']),
        (lambda: problem(initial={"u": ARRAY.tolist()}), ["of type list", "array of NumPy"]),
        (lambda: problem(initial={"u": None}), ["'u' are None"]),
        (lambda: problem(initial={"u": ARRAY * 1j}), ["complex128", "real numbers"]),
        (lambda: problem(initial={"u": "start.csv"}), ["start.csv", "files of .npy"]),
        (lambda: problem(initial={"u": "np.exp(x)"}), ["np.exp(x)", "without np"]),
        (lambda: problem(sources=[("u", (1, 1), 1.0)]), ["Source(field, position, values)"]),
        (lambda: problem(snapshots=10), ["not 10", "[Snapshot("]),
        (lambda: problem(until=1e-6), ["Until(reduction, every)"]),
        (lambda: og.plan(heat), ["not <stencil heat>", "og.Problem("]),
        (lambda: og.plan(problem(), machine="here"), ["not 'here'"]),
        (lambda: og.plan(problem(), memory=1.5), ["memory = 1.5", "share"]),
        (lambda: og.plan(problem(), mem="1GiB"), ["unknown option 'mem'", "'memory'"]),
        (lambda: og.run(problem(), out=3), ["out must be a string"]),
        (lambda: og.open("nowhere"), ["no folder nowhere"]),
        (lambda: og.resume("nowhere"), ["there is no folder nowhere"]),
    ],
)
def test_what_a_beginner_writes_is_told_what_is_meant(make, words, folder):
    with pytest.raises(og.Error) as caught:
        make()
    told(caught, words)


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"k": np.float32(0.1)}},
        {"parameters": {"k": np.array(0.1)}},
        {"parameters": {"k": -0.1}},
        {"shape": np.array([20, 30])},
        {"shape": [20, 30]},
        {"steps": np.int16(4)},
        {"dtype": float},
        {"initial": {"u": np.zeros((20, 30), bool)}},
        {"initial": {"u": np.int8(3)}},
    ],
)
def test_what_means_something_is_taken(changes):
    assert og.plan(problem(**changes), depth=np.int64(2)).depth == 2


def test_a_file_that_is_missing_is_told_with_those_that_are_there(folder):
    for given, hint in (("strat.npy", "did you mean 'start.npy'?"), ("data/u.npy", "not exist")):
        with pytest.raises(og.UsageError, match=f"{given} does not exist") as caught:
            og.run(problem(shape=(40, 64), initial={"u": given}), out="run")
        assert str(caught.value).endswith(hint)
    assert not Path("run").exists()


def test_an_unfinished_run_is_told_how_it_goes_on(folder, capsys):
    given = {"out": "run", "tier": "direct", "depth": 1, "stop_after": 0.0}
    with pytest.raises(og.Stopped):
        og.run(problem(steps=400), **given)
    with pytest.raises(og.UsageError) as caught:
        og.open("run")
    told(caught, ["not finished", "outgrid resume run", "og.resume('run')"])
    assert main(["report", "run"]) == 2
    assert "outgrid resume run" in capsys.readouterr().err
    assert main(["resume", "run", "--set", "problem.parameters.k=0.05"]) == 2
    assert "problem.parameters.k is fixed" in capsys.readouterr().err
