"""Numbers of the papers: each can fail, and says what counts as the same."""

import json
import math
from pathlib import Path

import pytest

from outgrid_bench.claims import CLAIMS, OWN, PAPERS
from outgrid_bench.claims.model import (
    at_least,
    at_most,
    between,
    exactly,
    from_range,
    indexed,
    more,
    near,
)
from outgrid_bench.experiments import EXPERIMENTS
from outgrid_bench.experiments.counted import COUNTED
from outgrid_bench.experiments.outcome import Settings, judged

RECORDS = Path(__file__).resolve().parents[1] / "records"


def test_every_claim_names_an_experiment_and_can_fail():
    for paper, claim in CLAIMS.values():
        assert paper in (*PAPERS, OWN)
        assert claim.experiment in EXPERIMENTS
        bounds = [bound for bound in (claim.low, claim.high) if math.isfinite(bound)]
        assert bounds
        assert all(claim.holds(bound) for bound in bounds)
        for bound, away in ((claim.low, -math.inf), (claim.high, math.inf)):
            assert not math.isfinite(bound) or not claim.holds(math.nextafter(bound, away))
        assert claim.low <= claim.high
        assert not claim.holds(math.nan)


def test_tolerances_do_not_reach_across_the_claim():
    text, low, high = near(1.05, 0.02)
    assert text == "1.05 (± 2%)"
    assert low > 1 > 2 - high  # five per cent less is not five per cent more
    assert near(-2, 0.5)[1:] == (-3, -1)
    assert exactly(110.25, 0.01, " GiB") == ("110.25 GiB (± 0.01)", 110.24, 110.26)
    assert between(3.2, 7.6) == ("3.2 to 7.6", 3.2, 7.6)
    assert at_least(53.8) == ("53.8 (at least 53.8)", 53.8, math.inf)
    assert not CLAIMS["weak.8"][1].holds(0.95)


def test_two_claims_of_one_key_are_refused():
    with pytest.raises(ValueError, match="same key"):
        indexed((PAPERS[0], PAPERS[0]))


def test_a_number_is_judged_by_its_bounds():
    assert judged("least.nodes", 7).holds
    assert judged("least.nodes", 8).holds is False
    missing = judged("least.nodes", None)
    assert (missing.holds, missing.here) == (None, "not measured")


def test_what_does_not_hold_in_a_kept_record_has_a_reason():
    for path in RECORDS.glob("*.json"):
        record = json.loads(path.read_text())
        for finding in record.get("findings", ()) if isinstance(record, dict) else ():
            if (key := finding.get("key")) and finding["holds"] is False:
                assert CLAIMS[key][1].reason is not None, key


def test_nothing_is_judged_but_by_the_table_of_claims():
    for path in RECORDS.glob("*.json"):
        record = json.loads(path.read_text())
        for finding in record.get("findings", ()) if isinstance(record, dict) else ():
            assert finding.get("key") or finding["holds"] is None, (path.name, finding)
            if finding["holds"] is not None:
                assert finding["key"] in CLAIMS


def test_gains_and_costs_may_be_better_but_not_worse():
    assert from_range(0.4, 0.65)[1:] == (0.4, math.inf)
    assert at_most(0.3, 1.1)[1:] == (-math.inf, pytest.approx(0.33))
    _, low, _ = more("2")
    assert low > 1


def test_what_needs_no_machine_is_what_the_papers_print(tmp_path):
    outcome = COUNTED.measure(Settings("quick", (tmp_path,), say=lambda text: None))
    verdicts = {finding.key: finding.holds for finding in outcome.findings}
    assert verdicts.pop("cube.planned") is False  # halos on one side take less
    assert len(verdicts) == 29
    assert all(verdicts.values())
    repeated = [row["value"] for row in outcome.rows if row["key"].startswith("repeated")]
    assert repeated == pytest.approx([1.344, 1.498], abs=1e-3)
