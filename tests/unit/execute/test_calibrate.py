"""What is measured of a kernel is what plans look for."""

import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.execute import calibrate as module
from outgrid.execute.calibrate import calibrate, keep, known
from outgrid.machine import describe_machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.planner import plan
from outgrid.stencil.problem import Problem


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEVELS", {2: (8, 16), 3: (2, 4)})
    monkeypatch.setattr(module, "MOST_PLANES", {2: 64, 3: 32})


def measured(problem, room_bytes=8 << 20):
    kernel = pipeline.load_kernel(problem)
    options = RunOptions.of(memory="1GiB")
    return calibrate(problem, options, describe_machine(), kernel, room_bytes)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("name", "shape"), [("heat7", (512, 24, 64)), ("heat5", (4096, 256)), ("wave:8", (512, 24, 64))]
)
def test_every_plan_finds_the_rate_of_its_tile(name, shape, tmp_path):
    names = ["u", "c"] if name == "wave:8" else ["u"]
    problem = Problem(name, shape, "float32", 40, initial=dict.fromkeys(names, 0.1))
    calibration = measured(problem)
    assert all(sample.updates_per_second > 0 for sample in calibration.samples)
    assert calibration.border_seconds >= 0
    rates = {sample.updates_per_second for sample in calibration.samples}
    for depth in (1, 40):
        options = RunOptions.of(memory="1GiB", tier="direct", depth=depth)
        chosen = plan(problem, options, describe_machine(), 80 << 20, calibration)
        sample = calibration.of(1, 4) if depth == 1 else calibration.best(40)
        assert chosen.tile.planes == sample.planes
        assert chosen.prediction.updates_per_second <= max(rates)
        if depth == 1:
            assert chosen.prediction.updates_per_second in rates
    path = tmp_path / "kept" / "calibration.json"
    keep(calibration, path)
    assert known(path) == calibration


def test_too_little_room_measures_nothing():
    problem = Problem("heat7", (512, 64, 64), "float64", 8, initial={"u": 0.0})
    assert measured(problem, room_bytes=1 << 18) is None


DAMAGE = {
    "nothing": lambda text: b"",
    "half": lambda text: text[: len(text) // 2],
    "zeros": lambda text: bytes(len(text)),
    "no text": lambda text: text.replace(b"samples", b"s\xffmples"),
    "another form": lambda text: b'{"samples": 3}',
    "depth": lambda text: b'{"samples":' + b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_calibration_that_is_not_whole_is_none(damage, tmp_path):
    path, calibration = tmp_path / "kept" / "c.json", Calibration((Sample(8, 2, 1e9),), 1e-12)
    keep(calibration, path)
    assert known(path) == calibration
    path.write_bytes(damage(path.read_bytes()))
    assert known(path) is None
    assert known(tmp_path / "other.json") is None
    assert known(path / "below.json") is None
