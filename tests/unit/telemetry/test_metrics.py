from __future__ import annotations

import re

import pytest
from prometheus_client import REGISTRY, generate_latest

from etl.ddl.operations import SkipReason
from etl.telemetry.metric_names import (
    ALL_METRICS,
    KNOWN_LABELS,
    OTHER_TABLES,
    TABLE_LABEL_LIMIT,
    BatchStep,
    ChangeOutcome,
    DestinationCall,
    LagStage,
    Metric,
)
from etl.telemetry.metrics import Metrics


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"pipeline": "demo", **labels})


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("demo")


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_practice(metric: Metric):
    assert re.fullmatch(r"etl(_[a-z]+)+", metric.name)
    assert not re.search(r"_(ms|kb|mb|count|milliseconds)\b", metric.name)
    assert metric.help.endswith(".") or metric.help == "1, labelled with what runs."


def test_every_method_moves_the_metric_it_names(metrics: Metrics):  # noqa: PLR0915 - a list
    metrics.lag(LagStage.RECEIVED, 10, 1.5)
    metrics.last_commit(1e9)
    metrics.slot("extended", 20)
    metrics.events("insert", 3)
    metrics.transactions(2)
    metrics.received(100)
    metrics.batch(5, 4096)
    metrics.table_rows("public.t", 4)
    with metrics.batch_step(BatchStep.WRITE), metrics.destination_call(DestinationCall.SCHEMA):
        pass
    metrics.table_state("public.t", "ready")
    metrics.copied("public.t", 7)
    metrics.copies({"public.t": (3, 8)}, {"public.t": 700})
    metrics.backlogs({"public.t": 90})
    metrics.ddl_change("add_column", ChangeOutcome.APPLIED)
    metrics.skipped_default(SkipReason.NOT_LITERAL)
    metrics.ddl_forged()
    metrics.error("apply", "source_unavailable")
    metrics.retry("apply")
    metrics.handoff_queue(50)
    metrics.backpressure(0.25)
    metrics.status_update("timer")

    assert value(metrics, "etl_replication_lag_bytes", stage="received") == 10
    assert value(metrics, "etl_replication_lag_seconds", stage="received") == 1.5
    assert value(metrics, "etl_last_commit_timestamp_seconds") == 1e9
    assert value(metrics, "etl_slot_retained_wal_bytes") == 20
    assert value(metrics, "etl_slot_wal_status", status="extended") == 1
    assert value(metrics, "etl_slot_wal_status", status="lost") == 0
    assert value(metrics, "etl_table_rows_total", table="public.t") == 4
    assert value(metrics, "etl_batch_bytes_sum") == 4096
    assert value(metrics, "etl_destination_duration_seconds_count", call="schema") == 1
    assert value(metrics, "etl_tables", state="ready") == 1
    assert value(metrics, "etl_table_copy_ranges", table="public.t", of="finished") == 3
    assert value(metrics, "etl_table_copy_ranges", table="public.t", of="all") == 8
    assert value(metrics, "etl_table_copy_estimated_rows", table="public.t") == 700
    assert value(metrics, "etl_backlog_bytes", table="public.t") == 90
    assert value(metrics, "etl_ddl_skipped_defaults_total", reason="not_literal") == 1
    assert (value(metrics, "etl_process_resident_memory_bytes") or 0) > 1 << 20
    assert value(metrics, "etl_events_total", op="insert") == 3
    assert value(metrics, "etl_transactions_total") == 2
    assert value(metrics, "etl_received_bytes_total") == 100
    assert value(metrics, "etl_batch_rows_sum") == 5
    assert value(metrics, "etl_batch_duration_seconds_count", step="write") == 1
    assert value(metrics, "etl_table_state", table="public.t", state="ready") == 1
    assert value(metrics, "etl_table_copy_rows_total", table="public.t") == 7
    assert value(metrics, "etl_ddl_changes_total", kind="add_column", outcome="applied") == 1
    assert value(metrics, "etl_ddl_forged_total") == 1
    assert value(metrics, "etl_errors_total", worker="apply", kind="source_unavailable") == 1
    assert value(metrics, "etl_retries_total", worker="apply") == 1
    assert value(metrics, "etl_handoff_queue_bytes") == 50
    assert value(metrics, "etl_backpressure_seconds_total") == 0.25
    assert value(metrics, "etl_status_updates_total", reason="timer") == 1
    assert all(metric.name in exposed(metrics) for metric in ALL_METRICS)


def test_a_table_is_in_one_state_at_a_time(metrics: Metrics):
    for state in ("init", "data_sync", "data_sync", "ready"):
        metrics.table_state("public.t", state)

    assert re.findall(r"^etl_table_state\{.*", exposed(metrics), re.MULTILINE) == [
        'etl_table_state{pipeline="demo",state="ready",table="public.t"} 1.0'
    ]

    metrics.table_gone("public.t")
    metrics.table_gone("public.unknown")
    assert "public.t" not in exposed(metrics)
    assert value(metrics, "etl_tables", state="ready") == 0


def test_tables_beyond_the_limit_share_one_label(metrics: Metrics):
    for number in range(TABLE_LABEL_LIMIT + 5):
        metrics.copied(f"public.t{number}", 1)
        metrics.table_state(f"public.t{number}", "ready")
    metrics.backlogs({f"public.t{number}": 10 for number in range(TABLE_LABEL_LIMIT + 5)})

    assert value(metrics, "etl_table_copy_rows_total", table=OTHER_TABLES) == 5
    assert value(metrics, "etl_backlog_bytes", table=OTHER_TABLES) == 50
    assert value(metrics, "etl_tables", state="ready") == TABLE_LABEL_LIMIT + 5
    assert len(re.findall(r"^etl_table_state\{", exposed(metrics), re.MULTILINE)) == TABLE_LABEL_LIMIT


def test_a_step_that_fails_is_measured_too(metrics: Metrics):
    with pytest.raises(ValueError, match="x"), metrics.batch_step(BatchStep.RECORD):
        raise ValueError("x")

    assert value(metrics, "etl_batch_duration_seconds_count", step="record") == 1


def test_what_is_over_is_shown_no_more(metrics: Metrics):
    metrics.backlogs({"public.t": 90})
    metrics.copies({"public.t": (3, 8)}, {"public.t": 700})
    metrics.backlogs({})
    metrics.copies({}, {})

    assert "public.t" not in exposed(metrics)


def test_label_values_that_are_known_beforehand_begin_at_zero(metrics: Metrics):
    for metric, values in KNOWN_LABELS.items():
        assert [value(metrics, metric.name, **{metric.labels[0]: each}) for each in values] == [0.0] * len(
            values
        )


def test_two_pipelines_of_one_process_do_not_share_a_registry():
    first, second = Metrics("a"), Metrics("b")
    first.transactions()

    assert 'pipeline="a"' not in exposed(second)
    assert not any(name.startswith("etl_") for name in REGISTRY._names_to_collectors)


def test_build_info_names_what_runs(metrics: Metrics):
    assert re.search(
        r'etl_build_info\{pipeline="demo",python="3[^"]+",version="[^"]+"\} 1\.0', exposed(metrics)
    )
