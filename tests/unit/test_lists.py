"""What there is of a kind is listed once; what else names it agrees with that."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from outgrid.config import RunOptions
from outgrid.devices import DEVICES
from outgrid.errors import UsageError
from outgrid.formats.registry import BUILT_IN
from outgrid.schemes import SCHEMES
from outgrid.stencil.boundary import KINDS
from outgrid.stencil.catalog import CATALOG
from outgrid.tiers import (
    COPIED_TIERS,
    MAPPED_TIERS,
    OWN_TIERS,
    PASSING_TIERS,
    SWAPPED_TIERS,
    TIERS,
)

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("tier", TIERS.values(), ids=TIERS)
def test_the_page_of_tiers_has_every_tier(tier):
    assert f"\n| `{tier.name}` |" in (DOCS / "design" / "tiers.md").read_text()


@pytest.mark.parametrize("tier", TIERS.values(), ids=TIERS)
def test_a_tier_is_taken_and_made_by_its_module(tier):
    assert RunOptions.of(memory="1GiB", tier=tier.name).tier == tier.name
    if tier.module:
        module = import_module(f"outgrid.storage.{tier.module}")
        assert hasattr(module, "create")
        assert hasattr(module, "reopen") == tier.files


def test_an_unknown_tier_is_refused_with_all_that_there_are():
    with pytest.raises(UsageError) as caught:
        RunOptions.of(memory="1GiB", tier="mmpa")
    assert f"expected one of auto, {', '.join(TIERS)}; did you mean 'mmap'?" in str(caught.value)


def test_what_follows_from_a_tier():
    assert MAPPED_TIERS == ("mmap", "swap")
    assert COPIED_TIERS == ("mmap", "swap", "remote")
    assert PASSING_TIERS == ("swap", "remote")
    assert SWAPPED_TIERS == ("swap",)
    assert OWN_TIERS == ("swap", "memory")
    assert [name for name, tier in TIERS.items() if not tier.streamed] == ["memory"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_taken_described_and_opened_by_its_module(device):
    assert RunOptions.of(memory="1GiB", device=device).device == device
    module = import_module(f"outgrid.device.{DEVICES[device]}")
    assert hasattr(module, "describe")
    assert hasattr(module, "open_device")


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_scheme_is_taken(scheme):
    assert RunOptions.of(memory="1GiB", scheme=scheme.name).scheme == scheme.name
    with pytest.raises(UsageError, match=f"expected one of auto, {', '.join(SCHEMES)}"):
        RunOptions.of(memory="1GiB", scheme="skew")


def test_the_table_of_files_has_every_format():
    page = (DOCS / "howto" / "initial-values.md").read_text()
    table = page.partition("| file | ends in")[2].partition("\n\n")[0]
    told = re.findall(
        r"`(\.[\w.]+)`", "".join(line.split("|")[2] for line in table.splitlines()[2:])
    )
    assert sorted(told) == sorted(suffix for each in BUILT_IN for suffix in each.suffixes)


def test_the_page_of_the_language_tells_every_boundary():
    text = (DOCS / "reference" / "language.md").read_text()
    table = text.partition("| kind | meaning")[2].partition("\n\n")[0]
    told = [line.split("`")[1] for line in table.splitlines()[2:]]
    assert sorted(told) == sorted(KINDS)


def test_the_page_of_stencils_has_every_name():
    page = (DOCS / "reference" / "stencils.md").read_text()
    text = page.partition("These stencils are known by name")[2]
    told = {name.partition(":")[0] for name in re.findall(r"`([\w:]+)`", text.partition("\n\n")[0])}
    assert told == {name.partition(":")[0] for name in CATALOG}
