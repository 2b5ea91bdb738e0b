"""Random histories leave source and destination equal; ``make soak`` runs many more of them."""

from __future__ import annotations

import pytest

from etl.testing.difftest.generator import Plan
from etl.testing.difftest.rounds import Theatre

pytestmark = pytest.mark.chaos


def test_a_random_history_in_bounded_runs_leaves_both_sides_equal(theatre: Theatre):
    verdict = theatre.play(Plan(seed=20261201, transactions=80))

    assert verdict.findings == []
    assert verdict.tables > 0


def test_a_random_history_under_a_daemon_that_is_killed_leaves_both_sides_equal(theatre: Theatre):
    verdict = theatre.play(Plan(seed=20261202, transactions=80, kills=True, live=True))

    assert verdict.findings == []
    assert verdict.tables > 0
