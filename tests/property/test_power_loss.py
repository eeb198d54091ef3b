"""The power fails between any two operations of a run; what is left is enough to go on from.

The suite draws some of the operations. OUTGRID_PREFIXES=1 draws three times as many.
"""

import dataclasses
import os
import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from outgrid import pipeline
from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.execute.fill import InitialValues, fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.moves import Hierarchy
from outgrid.execute.streaming import Callbacks, stream
from outgrid.execute.window import Window
from outgrid.plan.commits import Begin
from outgrid.stencil.catalog import resolve
from outgrid.stencil.problem import Problem
from outgrid.storage import MemoryStore
from outgrid.testing.stores import Shuffled, Volatile
from outgrid.testing.strategies import problems, run_options

SEEDS = st.integers(0, 2**32 - 1)
SHARE = settings.default.max_examples
MORE = 3 if os.environ.get("OUTGRID_PREFIXES") == "1" else 1


@stencil
def staggered(e, h):
    """Two stages, each field in place."""
    return [
        {"h": h + 0.2 * (e[1, 0, 0] - e[0, 1, 0])},
        {"e": e + 0.2 * (h - h[-1, 0, 0] + h[0, -2, 0])},
    ]


RULES = [
    *(resolve("heat7").trace(3), resolve("wave:4").trace(3), resolve("wave:4").trace(2)),
    staggered.trace(),
]


@dataclass(frozen=True)
class Left:
    """What a power loss leaves: the manifest's entries, files by field, level and parity, seams."""

    steps_done: int
    parity: int
    begin: Begin | None
    files: dict[tuple[str, int, int], np.ndarray]
    seams: dict[tuple[str, int, int, int], np.ndarray]


def nonsense(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """What no run has written."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


class Rig:
    """A problem and the process that runs it, in which every operation may be the last."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.choose = problem, random.Random(seed)
        self.libraries = {}  # by how rows are folded
        self.left: list[Left] = []

    def kernel(self, rest: Problem, folded) -> Kernel:
        """That of a plan whose rows are folded so."""
        if folded not in self.libraries:
            stencil = self.problem.folding(folded).stencil
            source = generate(stencil, rest.dtype, rest.edges, rest.dtypes)
            self.libraries[folded] = build(source, find_compiler())
        return Kernel.of(self.libraries[folded], rest.folding(folded))

    def files(self, plan) -> dict[tuple[str, int, int], np.ndarray]:
        """State 0 and files of another state's nonsense."""
        made = {}
        with Shuffled(1) as transfers:
            for level in plan.schedule.arrivals:
                array = nonsense(self.problem.shape, self.problem.dtype_of(level.field))
                made[level.field, level.level, 0] = array
                if not level.constant:
                    made[level.field, level.level, 1] = array.copy()

            def store_of(arrival):
                key = arrival.field, arrival.level, 0
                return MemoryStore("m", made[key], transfers)

            fill(InitialValues(self.problem), plan.schedule.arrivals, store_of, transfers)
        return made

    def run(self, left: Left, options: RunOptions, share: float = 0.0):
        """Go on from what is left; after a ``share`` of the operations, note what would be left."""
        rest = self.problem.after(left.steps_done)
        plan = pipeline.plan(rest, options, begin=left.begin)
        plan = replace(plan, flush_bytes=self.choose.choice([0, 1, 4000]))  # 0: in commits alone
        goes_on = plan.schedule.begin.begun
        begin = replace(left.begin, planes=plan.schedule.begin.planes) if goes_on else None
        state = dataclasses.replace(left, begin=begin)
        stores: dict[tuple[str, int, int], Volatile] = {}
        seams: dict[tuple[str, int, int, int], Volatile] = {}

        def happened():
            if self.choose.random() < share:
                files = {
                    (field, level, (number + left.parity) % 2): store.after_power_loss(self.choose)
                    for (field, level, number), store in stores.items()
                }
                kept = {key: store.after_power_loss(self.choose) for key, store in seams.items()}
                self.left.append(dataclasses.replace(state, files=files, seams=kept))

        def committed(point):
            nonlocal state
            sweeps, begin = plan.schedule.states.sweeps_until(point.state), None
            if point.begun > point.state:
                begin = Begin(
                    plan.schedule.depths[sweeps], point.planes, point.part, plan.schedule.cut
                )
            state = Left(
                left.steps_done + sum(plan.schedule.depths[:sweeps]),
                (left.parity + point.state) % 2,
                begin,
                {},
                {},
            )
            happened()

        with Shuffled(self.choose.randrange(1 << 30), haste=0.5) as transfers:
            for (field, level, parity), array in left.files.items():
                constant = (field, level, 1 - parity) not in left.files
                number = 0 if constant else (parity - left.parity) % 2
                stores[field, level, number] = Volatile(
                    f"{field}.{parity}", array.copy(), transfers, happened
                )
            window, kernel = Window(plan), self.kernel(rest, plan.folded)
            for key, shape in plan.schedule.places.items():
                array = nonsense(shape, rest.dtype_of(key[0]))
                if goes_on and key[2] == plan.schedule.depths[0]:
                    array = left.seams[key].copy()
                    assert array.shape == shape
                seams[key] = Volatile("seam", array, transfers, happened)
            hierarchy = Hierarchy(window, stores, transfers, seams)
            stream(plan, kernel, hierarchy, Callbacks(committed))
            transfers.drain()
            window.release()
        last = plan.schedule.states.count % 2
        return {
            (each.field, each.level): stores[each.field, each.level, last].array.tobytes()
            for each in plan.schedule.departures
        }


def check(problem: Problem, options: RunOptions, others: list[RunOptions], share, seed: int) -> int:
    """Let the power fail and go on, perhaps to fail again; the number of restarts."""
    rig = Rig(problem, seed)
    plan = pipeline.plan(problem, options)
    start = Left(0, 0, None, rig.files(plan), {})
    answer = rig.run(start, RunOptions.of(memory="1GiB", tier="memory", depth=1, threads=1))
    assert rig.run(start, options, share) == answer
    first, again = rig.left, []
    assert any(left.begin for left in first) or share < 0.1
    for number, left in enumerate(first):
        rig.left = []
        found = rig.run(left, others[number % len(others)], share / 20)
        assert found == answer, (left.steps_done, left.begin)
        again += rig.left[:1]
    for number, left in enumerate(again):
        assert rig.run(left, others[number % len(others)]) == answer
    return len(first) + len(again)


def options_of(**given) -> RunOptions:
    usual = {"memory": "1GiB", "tier": "direct", "threads": 1, "commit_every": 0}
    return RunOptions.of(**(usual | given))


def test_every_prefix_of_the_operations_of_a_run_is_enough_to_go_on_from():
    values = np.random.default_rng(3).random((22, 5, 9))
    problem = Problem("wave:4", values.shape, "float64", 8, initial={"u": values, "c": 0.1})
    options = options_of(depth=3, slab_planes=2)
    others = [
        options_of(depth=3, slab_planes=2),
        options_of(depth=5, slab_planes=3),
        options_of(depth=2, slab_planes=1),
        options_of(tier="memory"),
        options_of(strip_rows=4, depth=2),
    ]
    assert check(problem, options, others, MORE / 5, seed=7) > 20


CIRCLE = {"y": "periodic"}
CUT = {
    "strips": {"depth": 3, "slab_planes": 2, "strip_rows": 4},
    "strips of two stages": {"depth": 3, "slab_planes": 2, "strip_rows": 4},
    "strips of a circle": {"depth": 3, "slab_planes": 2, "strip_rows": 4},
    "blocks": {"depth": 3, "scheme": "overlapped", "block": [6, 4, 5]},
    "planes that come round": {"depth": 2, "slab_planes": 2},
}


@pytest.mark.parametrize("way", CUT)
def test_so_is_every_prefix_of_one_in_parts(way):
    closed = way == "planes that come round"
    shape = (34, 4, 7) if closed else (18, 11, 7)
    values = np.random.default_rng(3).random(shape)
    rule, initial = "wave:2", {"u": values, "c": 0.1}
    if closed:
        rule, initial = "heat7", {"u": values}
    if way == "strips of two stages":
        rule, initial = staggered.trace(), {"e": values, "h": 0.1}
    problem = Problem(
        rule,
        shape,
        "float64",
        6,
        initial=initial,
        boundary={"planes that come round": {"z": "periodic"}, "strips of a circle": CIRCLE}.get(
            way, "dirichlet"
        ),
    )
    options = options_of(**CUT[way])
    others = [
        options_of(**CUT[way] | {"depth": 2}),
        options_of(depth=4, slab_planes=None if way == "blocks" else 1),
        options_of(tier="memory"),
        options_of(depth=1, commit_every=30),
        options,
    ]
    share = (0.15 if way in ("blocks", "planes that come round") else 0.03) * MORE
    # Some 15 to 60 restarts: how many depends on the order in which threads end.
    assert check(problem, options, others, share, seed=7) > 4


@settings(max_examples=max(4, SHARE // 10))
@given(problems(st.sampled_from(RULES)), st.data(), SEEDS)
def test_so_is_what_any_run_leaves(problem, data, seed):
    assume(problem.steps > 0)
    drawn = [data.draw(run_options(problem, commit_every=0, threads=1)) for _ in range(3)]
    check(problem, drawn[0], drawn, 0.05, seed)
