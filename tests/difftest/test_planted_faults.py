"""A tester that finds nothing proves nothing: small faults planted in the product, each of which it must find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.testing.difftest.generator import Plan
from etl.testing.difftest.rounds import Theatre
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl

pytestmark = pytest.mark.chaos

#: Fault → a seed whose history shows it, and what kind of finding it is.
FOUND = {
    "columns_by_name": (1, "columns"),
    "default_fills_old_rows": (1, "rows"),
    "equal_rows_are_one": (3, "rows"),
    "lost_delete": (2, "rows"),
    "lost_schema_message": (1, "set aside"),
    "replay_doubles": (1, "rows"),
    "stale_default": (1, "default"),
    "unsent_value_is_null": (6, "rows"),
}
#: Where a process is killed whose batch is durable and not acknowledged.
AFTER_COMMIT = ("dest.after_commit", "stream.after_write")


@pytest.fixture
def faulty(fault: str, postgres: PostgresServer, tmp_path: Path) -> Iterator[Theatre]:
    warm = WarmEtl("tests.difftest.planted", fault)
    yield Theatre(postgres, warm, tmp_path)
    warm.close()


@pytest.mark.parametrize("fault", sorted(FOUND))
def test_a_planted_fault_is_found(faulty: Theatre, fault: str):
    seed, kind = FOUND[fault]
    kills = fault == "replay_doubles"
    verdict = faulty.play(Plan(seed, transactions=30, deeds=0.15, kills=kills, points=AFTER_COMMIT))

    assert kind in {finding.kind for finding in verdict.findings}
