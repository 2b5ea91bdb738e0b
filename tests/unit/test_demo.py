"""How the demo lays Delta's history beside the schema log."""

from __future__ import annotations

import json

import pytest

from etl.lsn import Lsn, Position
from examples.warehouse_delta import Commit, schema_versions


def entry(snapshot_id: str, *changes: str) -> dict[str, object]:
    return {
        "commit_lsn": snapshot_id.partition(":")[0],
        "snapshot_id": snapshot_id,
        "changes": list(changes),
    }


def history(*commits: tuple[str, str | None]) -> list[Commit]:
    return [
        Commit(version, operation, Position.parse(watermark) if watermark else None)
        for version, (operation, watermark) in enumerate(commits)
    ]


def test_a_schema_version_begins_with_the_first_operation_that_its_watermark_follows():
    commits = history(
        ("CREATE TABLE", None),
        ("WRITE", None),
        ("SET TBLPROPERTIES", "0/10#4294967295"),
        ("ADD COLUMNS", None),
        ("CHANGE COLUMN", None),
        ("SET TBLPROPERTIES", "0/20#0"),
        ("WRITE", "0/20#1"),
        ("RENAME COLUMN", None),
        ("SET TBLPROPERTIES", "0/30#1"),
    )
    log = [
        entry("0/0:0/0", "initial copy"),
        entry("0/20:0/18", "add a", "default"),
        entry("0/30:0/28", "rename"),
    ]

    assert schema_versions(commits, log) == {
        0: ("0/0:0/0", "initial copy"),
        3: ("0/20:0/18", "add a; default"),
        7: ("0/30:0/28", "rename"),
    }


def test_two_versions_of_one_transaction_begin_in_their_order():
    commits = history(
        ("CREATE TABLE", None),
        ("DROP COLUMNS", None),
        ("SET TBLPROPERTIES", "0/20#0"),
        ("WRITE", "0/20#1"),
        ("ADD COLUMNS", None),
        ("SET TBLPROPERTIES", "0/20#1"),
    )
    log = [entry("0/0:0/0", "initial copy"), entry("0/20:0/18", "drop a"), entry("0/20:0/1A", "add a")]

    begun = schema_versions(commits, log)

    assert (begun[1][1], begun[4][1]) == ("drop a", "add a")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (None, ""),
        ({"etl": {"run": 1}}, ""),
        ({"etl": {"watermark": "0/20#3"}}, "0/20#3"),
        ({"etl": {"watermark": str(Position.end_of(Lsn.parse("0/20")))}}, "0/20, end"),
    ],
)
def test_a_commit_shows_the_watermark_it_carries(said: dict[str, object] | None, shown: str):
    assert Commit.of(1, "WRITE", json.dumps(said) if said else None).position == shown
