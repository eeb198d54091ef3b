"""Options that would do nothing are refused, whatever they are."""

import re
from pathlib import Path
from typing import Any

import pytest

from outgrid.config import OPTIONS, RunOptions
from outgrid.errors import UsageError
from outgrid.purposes import GROUPS, Start, check_purposes

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ALONE, SHARED, RESUMED = Start(alone=True), Start(alone=False), Start(alone=True, resumed=True)
IN_PLACE = {"tier": "mmap", "in_place": True}
OVERLAPPED = {"scheme": "overlapped"}
GPU = {"device": "gpu"}


def check(given: dict[str, Any], start: Start | None = None) -> None:
    check_purposes(RunOptions.of(memory="1GiB", **given), start)


def test_every_field_is_an_option_but_for_those_that_another_gives():
    fields = {option.member for option in OPTIONS.values()}
    assert {*RunOptions.__struct_fields__} - fields == {"memory_asked", "scratch"}


def test_every_option_is_in_a_group_with_what_it_sets_and_holds_otherwise():
    for option in OPTIONS.values():
        assert option.group in GROUPS, option.key
        assert option.sets, option.key
        assert option.otherwise, option.key
    page = (REFERENCE / "run-options.md").read_text()
    assert re.findall(r"\{run-options\} (\w+)", page) == [*GROUPS]


def test_links_in_the_texts_of_options_lead_somewhere():
    for option in OPTIONS.values():
        for target in re.findall(r"\]\(([^)#]+)", option.sets + option.otherwise):
            assert (REFERENCE / target).exists(), option.key


@pytest.mark.parametrize(
    ("given", "others", "words"),
    [
        ({"msync": "sync"}, {"tier": "swap"}, "msync = 'sync' is for tier mmap, not for tier swap"),
        (
            {"madvise": "random"},
            {"tier": "direct"},
            "is for tier mmap.* swap.*, not for tier direct",
        ),
        ({"in_place": True}, {}, "in_place = true is for tier mmap.* swap.*, not for tier auto"),
        ({"madvise": ["normal", "willneed"]}, IN_PLACE, "madvise = 'willneed' is for a window"),
        ({"keep": "disk"}, {"tier": "swap"}, "for tier remote, not for tier swap"),
        ({"lend": "1MiB"}, {}, "lend = 1048576 is for tier remote, not for tier auto"),
        ({"placement": "contiguous"}, {"tier": "memory"}, "for tier remote, not for tier memory"),
        ({"engine": "io_uring"}, {"tier": "remote"}, "not for tier remote"),
        ({"require": ["threads", "direct"]}, {"tier": "mmap"}, "require = 'direct' is for files"),
        ({"require": "mlock"}, IN_PLACE, "for a window beside the fields, not for sweeps in place"),
        ({"require": "mlock"}, GPU, "for device cpu, not for device gpu"),
        ({"commit_every": "1min"}, {"tier": "swap"}, "for fields that outlive their process"),
        ({"commit_every": 0}, {"tier": "remote"}, "choose tier direct, or keep = 'disk'"),
        (
            {"block": [8, 8, 8]},
            {},
            r"block = \[8, 8, 8\] is for scheme overlapped, not for .* auto",
        ),
        ({"inner": [8, 8, 8]}, {"scheme": "plain"}, "for scheme overlapped, not for scheme plain"),
        ({"inner_depth": 4}, {"scheme": "skewed"}, "for scheme overlapped, not for scheme skewed"),
        ({"slab_planes": 4}, OVERLAPPED, "for scheme auto, skewed or plain, not for .* overlapped"),
        ({"strip_rows": 4}, OVERLAPPED, "not for scheme overlapped"),
        ({"strip_rows": 4}, IN_PLACE, "for grids that are streamed, not for sweeps in place"),
        ({"strip_rows": 4}, {"tier": "memory"}, "for grids that are streamed, not for tier memory"),
        ({"tile_rows": 4}, OVERLAPPED, "not for scheme overlapped"),
        ({"tile_planes": 4}, OVERLAPPED, "not for scheme overlapped"),
        ({"tile_columns": 4}, OVERLAPPED, "not for scheme overlapped"),
        (
            {"tile_band": 4},
            {"scheme": "plain"},
            "for sweeps of several steps, not for scheme plain",
        ),
        ({"tile_columns": 64}, {"depth": 1}, "for sweeps of several steps, not for depth 1"),
        ({"tile_rows": 4}, GPU, "for device cpu, not for device gpu"),
        ({"threads": 2}, GPU, "for device cpu, not for device gpu"),
        ({"pin": True}, GPU, "pin = true is for device cpu"),
        ({"pyramid": True}, GPU, "pyramid = true is for device cpu"),
        ({"preview": True}, GPU, "preview = 512 is for device cpu"),
        ({"scheme": "overlapped"}, GPU, "not for device gpu"),
        ({"scheme": "overlapped"}, {"tier": "memory"}, "for grids that are streamed"),
        ({"tier": "remote"}, GPU, "for device cpu"),
        ({"device_memory": "1GiB"}, {}, "for device gpu, not for device cpu"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(given, others, words):
    check(others)
    with pytest.raises(UsageError, match=words) as caught:
        check(given | others)
    assert str(caught.value).startswith(f"{next(iter(given))} = ")
    assert ": leave it out, or " in str(caught.value)


@pytest.mark.parametrize(
    ("given", "start", "words"),
    [
        ({"cuts": [9]}, ALONE, r"cuts = \[9\] is for ranks that share a grid, not for one rank"),
        ({"row_cuts": [9]}, ALONE, "start several with mpiexec"),
        ({"exchange": "seams"}, ALONE, "exchange = 'seams' is for ranks"),
        ({"pyramid": True}, SHARED, "for runs of one rank, not for ranks that share a grid"),
        ({"preview": True}, SHARED, "for runs of one rank, not for ranks that share a grid"),
        ({"commit_every": "1min"}, SHARED, "start one rank"),
        ({"device": "gpu"}, SHARED, "start one rank"),
        ({"tier": "swap"}, SHARED, "start one rank"),
        ({"tier": "memory"}, SHARED, "start one rank"),
        ({"tier": "remote"}, SHARED, "leave --ranks out"),
        ({"in_place": True, "tier": "swap"}, SHARED, "start one rank"),
        ({"strip_rows": 8}, SHARED, "start one rank"),
        (
            {"erase": "/dev/a"},
            RESUMED,
            r"erase = \['/dev/a'\] is for new runs, not for one that is",
        ),
    ],
)
def test_so_is_one_that_does_nothing_on_so_many_ranks_or_to_a_run_that_goes_on(given, start, words):
    check(given)  # as long as nobody knows
    with pytest.raises(UsageError, match=words):
        check(given, start)


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"require": "mlock"}, ALONE),
        ({"require": ["mlock", "direct", "aio"], "tier": "memory"}, ALONE),
        ({"tile_rows": 4, "scheme": "plain"}, ALONE),
        ({"tile_columns": 64, "tile_band": 2}, SHARED),
        ({"commit_every": 0, "tier": "remote", "keep": "disk"}, ALONE),
        ({"commit_every": 0, "tier": "swap", "in_place": True}, RESUMED),
        ({"engine": "threads", "require": "threads", "tier": "mmap"}, ALONE),
        ({"cuts": [9], "exchange": "seams"}, SHARED),
        ({"tier": "mmap", "msync": "async"}, SHARED),
        ({"scratch": ["a", "b"], "stripe": "1MiB"}, RESUMED),
        ({"madvise": "random", **IN_PLACE}, ALONE),
    ],
)
def test_what_does_something_is_not(given, start):
    check(given, start)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"stripe": "1MiB"},
            r"stripe = 1048576 is for fields that are cut over .* not for one place",
        ),
        ({"scratch": ["a", "b"], "stripe": 0}, "stripe = 0: it must be above 0, or left out"),
        ({"tier": "remote", "lend": "0 MiB"}, "lend = '0 MiB': it must be above 0"),
        ({"device": "gpu", "device_memory": 0}, "device_memory = 0: it must be above 0"),
        ({"out": ""}, "out = '': name a folder"),
        ({"scratch": ["a", ""]}, r"scratch = \['a', ''\]: name a folder"),
    ],
)
def test_values_that_mean_nothing_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        RunOptions.of(memory="1GiB", **given)
