"""The command line of `outgrid bench`: what each measurement takes, shows and refuses."""

import re

import pytest

from outgrid import cli
from outgrid.cli import main
from outgrid_bench.experiments import EXPERIMENTS

PAPER = "scratch also json figure resume stop-after endurance quick full"
DISKS = f"{PAPER} emulate"
LIMITED = f"{DISKS} memory"
BEYOND = f"{LIMITED} factor with-swap"
CHOICES = {"device": "gpu", "stream-axis": "x"}
TAKEN = {
    "core": "memory factor only all plane steps stream-axis resume where scratch json",
    "peers": "memory factor only steps quick python with-swap yask scratch json",
    "tune": "only resume quick scratch json",
    "io": f"{DISKS} price watts",
    "formats": "memory only scratch json",
    "counted": PAPER.removesuffix(" full"),
    "devices": DISKS,
    "ladder": DISKS,
    "blocking": LIMITED,
    "methods": f"{BEYOND} steps",
    "scaling": f"{BEYOND} steps",
    "stream": f"{LIMITED} with-swap",
    "mask": BEYOND,
    "himeno": BEYOND,
    "matvec": f"{LIMITED} device",
    "gpu": PAPER,
    "cluster": PAPER,
    "nodes": DISKS,
    "getput": f"{PAPER} memory",
    "ranks": LIMITED,
    "all": (
        "memory factor only steps resume stop-after quick with-swap full results device endurance "
        "price watts also scratch emulate"
    ),
}
"""Every measurement and the options that it takes, beside --help and --debug."""

SWITCHES = ("all", "with-swap", "quick", "full", "resume", "where")


def taken(name: str) -> set[str]:
    return {f"--{option}" for option in TAKEN[name].split()}


def page(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_slip_of_the_pen_is_answered_with_what_is_near(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "cor"])
    assert ended.value.code == 2
    assert "did you mean 'core'?" in capsys.readouterr().err


def test_the_measurements_are_listed_with_their_purposes(capsys):
    assert set(EXPERIMENTS) < set(TAKEN)
    told = page(capsys)
    listed = re.findall(r"^    ([a-z]+)  +\S", told, re.MULTILINE)
    assert sorted(listed) == sorted(TAKEN)
    assert told.count("  outgrid bench ") == 3
    assert main(["bench"]) == 2
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("name", TAKEN)
def test_a_measurement_shows_its_own_options_alone(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # no option is broken at its dash
    told = page(capsys, name)
    usage, about, options, examples = told.split("\n\n")
    assert usage.startswith(f"usage: outgrid bench {name} ")
    assert about.startswith(("Measures ", "Makes "))
    shown = set(re.findall(r"--[a-z][a-z-]*", told))
    assert shown == taken(name) | {"--help", "--debug"}
    declared = re.findall(r"^  (?:-h, )?(--[a-z-]+)(?: \S+)?  +\S", options, re.MULTILINE)
    assert set(declared) == shown  # each with a text
    commands = [line.split("  ")[1] for line in examples.splitlines()[1:]]
    assert 1 <= len(commands) <= 3
    for command in commands:
        verb, *words = command.split()
        assert verb == "outgrid"
        assert cli._parser(words).parse_args(words).name == name


@pytest.mark.parametrize("name", TAKEN)
def test_a_measurement_takes_its_own_options_alone(name):
    words = ["bench", name]
    parser = cli._parser(words)
    for option in {flag for every in TAKEN.values() for flag in every.split()}:
        value = [] if option in SWITCHES else [CHOICES.get(option, "1")]
        arguments, left = parser.parse_known_args([*words, f"--{option}", *value])
        if f"--{option}" in taken(name):
            assert left == []
            assert getattr(arguments, option.replace("-", "_"))
        else:
            assert left == [f"--{option}", *value]


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("methods", ["--step", "3", "--fulll"], "--fulll; did you mean '--full'?"),
        ("ladder", ["--endurence=6TBW"], "--endurence; did you mean '--endurance'?"),
        ("blocking", ["--memroy", "1GiB"], "--memroy; did you mean '--memory'?"),
    ],
)
def test_an_option_that_is_not_taken_is_refused_with_the_nearest(name, given, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", name, *given])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"outgrid bench {name}: error: unknown option {words}" in told


@pytest.mark.parametrize(
    ("name", "option"),
    [("methods", "--plane"), ("himeno", "--steps"), ("core", "--quick"), ("ladder", "--memory")],
)
def test_an_option_of_another_measurement_is_told_to_be_one(name, option, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", name, option, "3"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"error: {option} is not for 'outgrid bench {name}'; --help lists what is" in told


@pytest.mark.parametrize("option", [["--price", "300"], ["--watts", "5"], ["--resume"]])
def test_io_refuses_what_only_its_experiment_takes(option, capsys):
    assert main(["bench", "io", *option]) == 2
    assert f"{option[0]} goes with --quick or --full" in capsys.readouterr().err


def test_options_belong_behind_the_name(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--quick", "all"])
    assert ended.value.code == 2
    assert "--quick must follow 'outgrid bench all'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--debug", "core"], ["core", "--debug"]])
def test_tracebacks_are_shown_wherever_they_are_asked_for(words, capsys):
    assert main(["bench", *words, "--plane", "eight"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main(["bench", "core", "--plane", "eight"]) == 2
    assert "Traceback" not in capsys.readouterr().err
