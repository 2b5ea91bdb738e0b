"""Whatever a name or a literal looks like, DuckDB's own parser sees one statement in what it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from etl.destinations.duckdb.session import Session
from etl.testing.destination_rules import names
from etl.testing.destination_rules.names import NAMES, NameRules
from etl.testing.duckdb_kit import DuckDBKit


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sent: list[str] = []
    execute = Session.rows

    def rows(
        self: Session, sql: str, parameters: Sequence[object] = (), table: str | None = None
    ) -> list[Any]:
        sent.append(sql)
        return execute(self, sql, parameters, table)

    monkeypatch.setattr(Session, "rows", rows)
    return sent


@pytest.mark.parametrize(
    "rule",
    [
        NameRules.test_every_name_can_be_that_of_a_table_a_schema_and_a_column,
        NameRules.test_every_name_can_be_added_and_renamed_to,
        NameRules.test_every_text_can_be_a_default,
    ],
    ids=["create", "add and rename", "default"],
)
def test_every_statement_is_one(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch, rule: Any
):
    # all but the plain words; the destination suite takes the whole corpus
    monkeypatch.setattr(names, "NAMES", tuple(name for name in NAMES if not name.isidentifier()))
    rule(NameRules(), DuckDBKit(tmp_path))
    with duckdb.connect() as parser:
        assert {len(parser.extract_statements(sql)) for sql in dict.fromkeys(counted)} == {1}


def test_the_corpus_is_large_enough_to_mean_something():
    assert len(NAMES) >= 200
