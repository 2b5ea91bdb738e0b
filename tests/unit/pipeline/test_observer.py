"""What an observer makes of what it reads: rates from counters, a history from stored versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from etl.config.reports import PHASES, TableStatus
from etl.lsn import Lsn, SnapshotId
from etl.pipeline.observation import RATE_STEPS
from etl.pipeline.observer import Rates, SchemaVersions
from etl.schema.table import TableSchema
from etl.telemetry.pulse import SchemaOutcome
from etl.testing.builders import INT8, column, table_schema

OID = 16384
NOW = datetime(2030, 1, 2, tzinfo=UTC)
FIRST, SECOND = (SnapshotId(Lsn(at), Lsn(at - 1)) for at in (100, 200))


def version(snapshot_id: SnapshotId, *names: str) -> TableSchema:
    columns = [
        column("id", 1, INT8),
        *(replace(column(name, at), type_name="text") for at, name in enumerate(names, 2)),
    ]
    return table_schema(*columns, oid=OID, name="orders").schema.at(snapshot_id)


COPY = version(SnapshotId.COPY)


def status(snapshot_id: SnapshotId | None, schema_status: str | None = "applied") -> TableStatus:
    return TableStatus(
        OID,
        "public.orders",
        "ready",
        PHASES["ready"],
        "mirror",
        snapshot_id=snapshot_id,
        schema_status=schema_status,
    )


# --- rates --------------------------------------------------------------------------------------------------------


def test_rates_are_what_counters_grew_by_a_second():
    rates = Rates()
    rates.note({1: 100}, 10.0)
    rates.note({1: 150, 2: 4}, 12.0)
    rates.note({1: 150, 2: 8}, 13.0)

    assert rates.by_table() == {1: (25.0, 0.0), 2: (2.0, 4.0)}
    assert rates.total() == (27.0, 4.0)


def test_a_counter_that_began_anew_is_no_negative_rate():
    rates = Rates()
    for at, rows in enumerate([{1: 100}, {}, {1: 3}]):
        rates.note(rows, float(at))

    assert rates.total() == (0, 3.0)


def test_a_table_that_is_quiet_for_long_is_left_out():
    rates = Rates()
    for at in range(RATE_STEPS + 2):
        rates.note({1: min(at, 1)}, float(at))

    assert (rates.by_table(), len(rates.total())) == ({}, RATE_STEPS)


# --- schema versions ----------------------------------------------------------------------------------------------


def history(
    versions: SchemaVersions, table: TableStatus, *outcomes: SchemaOutcome
) -> list[tuple[str, list[str]]]:
    steps = versions.steps([table], outcomes).get(OID, ())
    return [(step.status, [change.public for change in step.changes]) for step in steps]


def test_versions_are_told_in_order_with_what_is_new_in_each():
    versions = SchemaVersions()
    versions.update([version(SECOND, "b"), COPY, version(FIRST, "a")])

    assert history(versions, status(FIRST)) == [
        ("passed", ["initial copy"]),
        ("applied", ["add a text"]),
        ("pending", ["rename a to b"]),
    ]


def test_a_version_is_pending_until_the_destination_is_at_it():
    versions = SchemaVersions()
    versions.update([COPY, version(FIRST, "a")])

    assert [state for state, _ in history(versions, status(None, None))] == ["pending", "pending"]
    assert [state for state, _ in history(versions, status(FIRST, "applying"))] == ["passed", "applying"]


def test_versions_that_the_store_has_forgotten_are_still_told():
    versions = SchemaVersions()
    versions.update([COPY, version(FIRST, "a")])
    versions.update([version(FIRST, "a")])

    assert len(history(versions, status(FIRST))) == 2


def test_a_new_copy_begins_a_new_history():
    versions = SchemaVersions()
    versions.update([COPY, version(FIRST, "a")])
    versions.update([version(SnapshotId.COPY, "a")])

    assert history(versions, status(SnapshotId.COPY)) == [("applied", ["initial copy"])]


def test_an_outcome_belongs_to_its_version_and_its_table():
    versions = SchemaVersions()
    versions.update([COPY, version(FIRST, "a")])
    outcome = SchemaOutcome(OID, FIRST, NOW, ("add a",))
    steps = versions.steps([status(FIRST)], [outcome, replace(outcome, oid=1)])[OID]

    assert [step.outcome for step in steps] == [None, outcome]


def test_a_table_that_is_gone_has_no_history():
    versions = SchemaVersions()
    versions.update([COPY])

    assert versions.steps([], []) == {}


def test_no_literal_of_a_default_is_told_in_public():
    versions = SchemaVersions()
    before, after = COPY, version(FIRST)
    defaulted = replace(after.columns[0], default_expression="'geheim'")
    versions.update([before, replace(after, columns=(defaulted,))])
    change = versions.steps([status(FIRST)], [])[OID][-1].changes[0]

    assert change.text == "default of id: none → 'geheim'"
    assert change.public == "set the default of id"
