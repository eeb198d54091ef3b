"""What some plans say, kept in a file: a change of the planner shows there, or is none.

The machine is a value, so that plans are the same wherever this runs. Of each plan the file has the
figures, a digest of each part that is not a number or a text, and a digest of what the program
does: which rows lie where, in the window and in files, and what every instruction waits for. Where
plans are to differ, `python tests/unit/plan/test_golden.py` writes the file anew.
"""

import hashlib
import json
import math
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from msgspec.structs import replace

import outgrid as og
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.job import load_job
from outgrid.machine import Accelerator, Network
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.commits import Begin
from outgrid.plan.planner import plan
from outgrid.plan.program import (
    Advance,
    Move,
    Receive,
    Send,
    levels,
    program,
)
from outgrid.plan.ranks import Ranks, plan_rank
from outgrid.stencil.catalog import resolve
from outgrid.stencil.problem import Problem
from outgrid.testing.machine import MACHINE

KEPT = Path(__file__).parents[2] / "golden" / "plans.json"
EXAMPLES = Path(__file__).parents[3] / "examples"
FIXED_BYTES = 80 << 20
NETWORK = Network(1e9, 1e-5)
MOST_INSTRUCTIONS = 4000
SLOW_DISK = replace(MACHINE, read_bandwidth=2e8, write_bandwidth=1e8, mixed_bandwidth=1e8)
LARGE = replace(MACHINE, cores=64, memory_bandwidth=4e11, l3_bytes=1 << 28)
SAMPLES = (Sample(1, 4, 1e9), Sample(4, 4, 4e9), Sample(8, 4, 5e9), Sample(4, 2, 3e9))
MEASURED = Calibration(SAMPLES, 1e-12)


@og.stencil
def staggered(e, h, c, *, k):
    """Two stages, each field in place."""
    return [
        {"h": h + k * c * (e[1, 0, 0] - e + e[0, 2, 0] - e[0, -1, 1])},
        {"e": e + k * (h - h[-1, 0, 0] + h[0, 1, 0])},
    ]


@og.stencil(ndim=3)
def oblique(u, c):
    """Farther reads on one side, of two levels, and a coefficient beside the cell."""
    return u + c[-1, 1, 0] * (u[2, 0, 0] - u[-1, 0, 0]) + 0.1 * (u.previous[0, -2, 0] - u[0, 1, 0])


@og.stencil(ndim=3)
def summed(u):
    """A field that diffuses, and its sum."""
    return {"u": u + 0.1 * og.laplacian(u), "total": og.sum(u)}


RULES = {"staggered": staggered, "oblique": oblique, "summed": summed}


def problem(name, shape, steps, dtype="float64", **given):
    """A problem of no particular numbers."""
    rule = (RULES.get(name) or resolve(name)).trace(len(shape))
    named = {*rule.parameters, *(each.name for each in rule.profiles)}
    missing = named - {each for each, _ in rule.defaults}
    initial = dict.fromkeys((field.name for field in rule.fields), 0.0)
    parameters = dict.fromkeys(sorted(missing), 0.1)
    return Problem(
        rule, shape, dtype, steps, **({"parameters": parameters, "initial": initial} | given)
    )


def one(asked, machine=MACHINE, calibration=None, begin=None, accelerator=None, **options):
    """The plan of one process."""
    given = RunOptions.of(**({"memory": "1GiB"} | options))
    return plan(asked, given, machine, FIXED_BYTES, calibration, begin, accelerator=accelerator)


def rank(number, count, asked, **options):
    """The plan of one of several ranks."""
    given = RunOptions.of(**({"memory": "1GiB", "tier": "direct"} | options))
    return plan_rank(asked, given, MACHINE, FIXED_BYTES, Ranks(number, count, NETWORK))


def example(name, **settings):
    """The plan of an example's job."""
    job = load_job(EXAMPLES / name, settings)
    return plan(job.problem, job.options, MACHINE, FIXED_BYTES)


CLOSED = {"z": "periodic", "y": "neumann"}
CIRCLE = {"y": "periodic"}
TORUS = {"z": "periodic", "y": "periodic", "x": "periodic"}
MIRRORED = {"z-": "mirror", "z+": "neumann", "y-": "odd", "y+": 0.5}
UNTIL = {"reduction": "total", "every": 6, "above": 1e300}
STREAMED = {"tier": "direct", "memory": "160MiB"}
GPU = Accelerator(1 << 30, "H200", 4e12, 5e10)

CASES = {
    "heat7 in memory": lambda: one(problem("heat7", (128, 128, 128), 64)),
    "heat7 rich": lambda: one(problem("heat7", (1024,) * 3, 64), memory="8GiB"),
    "heat7 tight": lambda: one(problem("heat7", (1024,) * 3, 64), memory="192MiB"),
    "heat7 of many steps": lambda: one(problem("heat7", (600, 512, 512), 1001), memory="512MiB"),
    "heat7 on a slow disk": lambda: one(problem("heat7", (1024,) * 3, 64), SLOW_DISK),
    "heat7 on many cores": lambda: one(problem("heat7", (2048,) * 3, 64), LARGE, memory="64GiB"),
    "heat7 measured": lambda: one(problem("heat7", (1024,) * 3, 64), calibration=MEASURED),
    "heat5": lambda: one(problem("heat5", (40000, 20000), 200, "float32"), memory="256MiB"),
    "box27 plain": lambda: one(problem("box27", (90, 40, 64), 5), scheme="plain", **STREAMED),
    "no steps": lambda: one(problem("box27", (90, 40, 64), 0), **STREAMED),
    "wave:8 in whole planes": lambda: one(
        problem("wave:8", (400, 300, 512), 24, "float32"), strip_rows=2000, memory="512MiB"
    ),
    "wave:4 in 2-D": lambda: one(
        problem("wave:4", (300, 64), 30), depth=6, slab_planes=7, **STREAMED
    ),
    "acoustic_pml:4": lambda: one(problem("acoustic_pml:4", (120, 80, 64), 9), depth=3, **STREAMED),
    "shallow_water": lambda: one(problem("shallow_water", (3000, 4000), 40), memory="160MiB"),
    "heat7.toml": lambda: example("heat7.toml"),
    "wave.toml": lambda: example("wave.toml"),
    "gray_scott.toml": lambda: example("gray_scott.toml", memory="160MiB"),
    "staggered": lambda: one(
        problem("staggered", (70, 30, 24), 11), depth=4, slab_planes=3, tile_rows=8, **STREAMED
    ),
    "fields of several types": lambda: one(
        problem("oblique", (64, 40, 512), 12, dtypes={"c": "int16", "u": "float32"}),
        depth=5,
        **STREAMED,
    ),
    "images at faces": lambda: one(
        problem("oblique", (64, 40, 30), 12, boundary=MIRRORED), depth=5, **STREAMED
    ),
    "strips of heat7": lambda: one(
        problem("heat7", (48, 60, 32), 12), depth=4, strip_rows=13, slab_planes=4, **STREAMED
    ),
    "strips that may be resumed": lambda: one(
        problem("oblique", (48, 60, 32), 10),
        depth=3,
        strip_rows=17,
        commit_every=0,
        slab_planes=2,
        **STREAMED,
    ),
    "strips of fields in place": lambda: one(
        problem("staggered", (40, 50, 16), 7, "float32"), depth=3, strip_rows=20, **STREAMED
    ),
    "strips that are chosen": lambda: one(
        problem("wave:2", (2000, 4000, 1024), 50), memory="600MiB"
    ),
    "closed": lambda: one(
        problem("oblique", (90, 12, 16), 9, boundary=CLOSED), depth=3, slab_planes=2, **STREAMED
    ),
    "closed, kept bit by bit": lambda: one(
        problem("staggered", (90, 20, 16), 9, boundary=CLOSED), depth=3, commit_every=0, **STREAMED
    ),
    "closed in memory": lambda: one(problem("heat7", (90, 20, 16), 9, boundary=CLOSED)),
    "closed, all together": lambda: one(problem("wave:4", (4, 20, 16), 9, boundary=CLOSED)),
    "closed strips": lambda: one(
        problem("oblique", (90, 40, 16), 9, boundary=CLOSED), depth=3, strip_rows=11, **STREAMED
    ),
    "circle": lambda: one(
        problem("oblique", (40, 80, 16), 9, boundary=CIRCLE), depth=3, strip_rows=20, **STREAMED
    ),
    "circle, kept bit by bit": lambda: one(
        problem("staggered", (40, 80, 16), 9, boundary=CIRCLE),
        depth=3,
        strip_rows=26,
        commit_every=0,
        **STREAMED,
    ),
    "torus in strips": lambda: one(
        problem("wave:2", (90, 80, 16), 9, boundary=TORUS), depth=4, strip_rows=24, **STREAMED
    ),
    "blocks": lambda: one(
        problem("heat7", (66, 66, 66), 16), scheme="overlapped", memory="160MiB", tier="direct"
    ),
    "blocks of two levels": lambda: one(
        problem("heat5", (70, 50), 9),
        scheme="overlapped",
        block=[16, 48],
        depth=4,
        inner=[4, 16],
        inner_depth=2,
        commit_every=0,
        **STREAMED,
    ),
    "in the middle of a sweep": lambda: one(
        problem("oblique", (80, 24, 16), 11), begin=Begin(4, 33), depth=3, **STREAMED
    ),
    "in the middle of strips": lambda: one(
        problem("oblique", (80, 60, 16), 11), begin=Begin(4, 33, 2, (17,)), depth=3, **STREAMED
    ),
    "in the middle of a closed sweep": lambda: one(
        problem("heat7", (120, 24, 16), 11, boundary=CLOSED), begin=Begin(4, 33), **STREAMED
    ),
    "in the middle of blocks": lambda: one(
        problem("heat7", (34, 34, 34), 8),
        begin=Begin(4, 0, 3, (8, 16)),
        scheme="overlapped",
        **STREAMED,
    ),
    "mapped": lambda: one(problem("heat7", (256, 256, 256), 9), memory="192MiB", tier="mmap"),
    "mapped in place": lambda: one(
        problem("wave:2", (256, 256, 128), 9), memory="256MiB", tier="mmap", in_place=True
    ),
    "swap": lambda: one(problem("heat7", (256, 256, 256), 9), memory="192MiB", tier="swap"),
    "remote": lambda: one(
        problem("heat7", (80, 60, 32), 12), tier="remote", depth=3, strip_rows=13, memory="160MiB"
    ),
    "remote, kept on disk": lambda: one(
        problem("heat7", (256, 256, 256), 12), tier="remote", keep="disk", memory="192MiB"
    ),
    "on a device": lambda: one(problem("heat7", (1024,) * 3, 64), accelerator=GPU),
    "strips on a device": lambda: one(
        problem("heat7", (60, 60, 32), 12), accelerator=GPU, strip_rows=20, depth=4, tier="direct"
    ),
    "closed on a device": lambda: one(
        problem("wave:2", (256, 256, 256), 12, boundary=CLOSED), accelerator=GPU, tier="direct"
    ),
    "until": lambda: one(problem("summed", (64, 40, 32), 20, until=UNTIL), depth=4, **STREAMED),
    "until, in memory": lambda: one(problem("summed", (64, 40, 32), 20, until=UNTIL)),
    "snapshots and receivers": lambda: one(
        problem(
            "heat7",
            (64, 40, 32),
            20,
            snapshots=[{"field": "u", "every": 5}],
            sources=[{"field": "u", "position": (5, 5, 5), "values": 1.0}],
            receivers=[{"field": "u", "position": (9, 9, 9)}],
        ),
        **STREAMED,
    ),
    "halos": lambda: rank(1, 3, problem("oblique", (90, 20, 16), 9), depth=3, exchange="halos"),
    "halos of thin ranks": lambda: rank(2, 5, problem("heat7", (12, 20, 16), 9), depth=4),
    "halos in z and y": lambda: rank(
        4, 6, problem("staggered", (60, 60, 16), 9), cuts=[25], row_cuts=[22, 39], depth=3
    ),
    "seams of an upright rank": lambda: rank(
        2, 4, problem("oblique", (160, 20, 16), 9), depth=3, exchange="seams"
    ),
    "seams of an inverted rank": lambda: rank(
        1, 4, problem("staggered", (160, 20, 16), 9), depth=3, exchange="seams"
    ),
    "ranks as they are chosen": lambda: rank(3, 8, problem("heat7", (1024,) * 3, 64)),
    "ranks with a circle": lambda: rank(
        0, 2, problem("heat7", (60, 20, 16), 9, boundary=CIRCLE), depth=3, slab_planes=3
    ),
}

REFUSED = {
    "too little memory": lambda: one(
        problem("heat7", (1024,) * 3, 64), memory="81MiB", strip_rows=1024
    ),
    "a depth that does not fit": lambda: one(
        problem("heat7", (1024,) * 3, 64), memory="256MiB", depth=64, strip_rows=1024
    ),
    "a list of sweeps": lambda: one(
        problem("heat7", (64, 64, 64), 10**7), memory="160MiB", depth=1, tier="direct"
    ),
    "too thin to go round": lambda: one(
        problem("wave:4", (16, 20, 16), 9, boundary=CLOSED), depth=8, **STREAMED
    ),
    "too few rows for a circle": lambda: one(
        problem("heat7", (20, 20, 16), 9, boundary=CIRCLE), depth=8, strip_rows=7, **STREAMED
    ),
    "too thin for seams": lambda: rank(
        0, 4, problem("oblique", (60, 20, 16), 9), depth=9, exchange="seams"
    ),
    "a device too small": lambda: one(
        problem("heat7", (512,) * 3, 64), accelerator=Accelerator(1 << 20), strip_rows=512
    ),
    "no memory beside a device": lambda: one(
        problem("heat7", (512,) * 3, 64), accelerator=GPU, memory="81MiB", tier="direct"
    ),
    "blocks too large": lambda: one(
        problem("heat7", (512,) * 3, 64),
        scheme="overlapped",
        depth=32,
        memory="82MiB",
        block=[64, 64, 510],
    ),
    "blocks of planes that come round": lambda: one(
        problem("heat7", (8, 64, 64), 40, boundary={"z": "periodic"}), scheme="overlapped", depth=9
    ),
    "too many ranks": lambda: rank(0, 9, problem("heat7", (8, 20, 16), 9), row_cuts=[10]),
    "ranks on small disks": lambda: plan_rank(
        problem("heat7", (64, 64, 64), 8),
        RunOptions.of(memory="1GiB", tier="direct", depth=4),
        MACHINE,
        FIXED_BYTES,
        Ranks(1, 4, NETWORK, 1 << 20),
    ),
}


def said(found):
    """The figures of a plan, and digests of all else."""
    figures = {key: figure(value) for key, value in found.to_dict().items()}
    del figures["problem_digest"]  # what a problem is called is no matter of plans
    figures["places"] = digest(sorted(found.schedule.places.items()))
    figures["program"] = digest(list(acts(found)), whole=True)
    figures["instructions"] = dict(Counter(type(each).__name__ for each in first(found)))
    return figures


def figure(value):
    """A number or a text as it is, to what counts of it; all else as a digest."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return list(value)
    return digest(value) if value else None


def digest(value, whole=False):
    """Some digits that differ where a value does; one of ``whole`` numbers needs no rounding."""
    plain = value if whole else rounded(value)
    text = json.dumps(plain, default=rounded, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rounded(value):
    """JSON-able, with floats to what counts of them."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, range):
        return [value.start, value.stop]
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) and math.isfinite(value) else value


def first(found):
    """What a program begins with; all of it, where that is not very much."""
    return islice(program(found), MOST_INSTRUCTIONS)


def acts(found):
    """What instructions do, in numbers."""
    for each in first(found):
        name, waits = (
            type(each).__name__,
            [getattr(each.gate, key) for key in each.gate.__struct_fields__],
        )
        if isinstance(each, Move):
            place = each.seam or (each.field, each.level, each.state % 2)
            there = each.there.planes, each.there.rows
            mine = each.ring, each.first, each.last, each.rows
            passage = found.schedule.passage(each.trip)
            here = passage.slot_origin, passage.row_origin
            act = [each.index, each.trip.index, place, *map(list, there), mine, here]
            act += [each.peer] if isinstance(each, Send | Receive) else []
            act += [each.piece] if isinstance(each, Send) else []
        elif isinstance(each, Advance):
            act = [
                (trip.index, step, stage, planes, rows)
                for trip, step, stage, planes, rows in levels(found, each)
            ]
            act += [(part.first, part.last, part.steps) for part in each.parts]
        else:
            act = [each.point.state, each.point.part, each.point.planes]
        yield [name, waits, *act]


def refusal(make):
    """Why something is not planned."""
    with pytest.raises((InfeasiblePlan, UsageError)) as refused:
        make()
    return str(refused.value)


@pytest.mark.parametrize("name", CASES)
def test_plans_say_what_they_said(name):
    assert rounded(said(CASES[name]())) == json.loads(KEPT.read_text())["plans"][name]


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_they_said(name):
    assert refusal(REFUSED[name]) == json.loads(KEPT.read_text())["refusals"][name]


def test_all_that_is_kept_is_asked_for():
    kept = json.loads(KEPT.read_text())
    assert (kept["plans"].keys(), kept["refusals"].keys()) == (CASES.keys(), REFUSED.keys())


if __name__ == "__main__":
    plans = {name: said(make()) for name, make in CASES.items()}
    refusals = {name: refusal(make) for name, make in REFUSED.items()}
    text = json.dumps({"plans": plans, "refusals": refusals}, indent=1, ensure_ascii=False)
    KEPT.write_text(text + "\n")
