from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl.cli import output
from etl.config import figures
from etl.config.checks import CheckResult, CheckStatus
from etl.config.reports import CopyStatus, SlotStatus, TablePhase, TableStatus
from etl.lsn import Lsn, SnapshotId

Run = Callable[..., Any]
STREAMING = TablePhase.STREAMING


def test_replicate_runs_until_stopped_and_ends_with_the_applications_code(
    run: Run, application: Any, pipeline: Path
):
    application.exit_code = 1

    assert run("replicate", "-p", pipeline).code == 1
    assert application.asked == [("replicate", "info", "auto", False, None, None)]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--once"], ("info", "auto", True, None)),
        (["--until-lsn", "1/A"], ("info", "auto", False, Lsn.parse("1/A"))),
        (["--log-level", "debug", "--log-format", "console"], ("debug", "console", False, None)),
    ],
)
def test_options_of_replicate_reach_the_application(
    run: Run, application: Any, pipeline: Path, arguments: list[str], asked: tuple[object, ...]
):
    assert run("replicate", "-p", pipeline, *arguments).code == 0
    assert application.asked[0][1:5] == asked


@pytest.mark.parametrize("wrong", ["5", "x/y", "", "1/2/3", "123456789/0"])
def test_a_position_that_is_none_is_wrong_usage(run: Run, application: Any, pipeline: Path, wrong: str):
    assert run("replicate", "-p", pipeline, "--until-lsn", wrong).code == 2
    assert application.asked == []


def test_the_file_may_be_named_by_the_environment(run: Run, application: Any, pipeline: Path):
    assert run("replicate", env={"ETL_PIPELINE": str(pipeline)}).code == 0


def test_check_lists_every_prerequisite_and_how_to_fix_it(run: Run, application: Any, pipeline: Path):
    application.checks = [
        CheckResult("wal_level", CheckStatus.OK, "logical"),
        CheckResult("slot WAL limit", CheckStatus.WARN, "unlimited [1]", "set max_slot_wal_keep_size"),
        CheckResult("publication", CheckStatus.FAIL, "missing", "CREATE PUBLICATION p"),
    ]
    outcome = run("check", "-p", pipeline)

    assert outcome.code == 3
    assert [line.split() for line in outcome.out.splitlines()][1:] == [
        ["ok", "wal_level", "logical"],
        ["warn", "slot", "WAL", "limit", "unlimited", "[1]"],
        ["fix:", "set", "max_slot_wal_keep_size"],
        ["fail", "publication", "missing"],
        ["fix:", "CREATE", "PUBLICATION", "p"],
    ]
    assert outcome.err == "1 ok, 1 warnings, 1 blockers\n"


def test_a_warning_alone_does_not_block(run: Run, application: Any, pipeline: Path):
    application.checks = [CheckResult("slot WAL limit", CheckStatus.WARN, "unlimited")]

    assert run("check", "-p", pipeline).code == 0


def test_check_as_json_is_data_alone(run: Run, application: Any, pipeline: Path):
    application.checks = [CheckResult("publication", CheckStatus.FAIL, "missing", "create it")]
    outcome = run("check", "-p", pipeline, "--json")

    assert outcome.code == 3
    assert json.loads(outcome.out) == [
        {"name": "publication", "status": "fail", "detail": "missing", "fix": "create it"}
    ]


def test_init_says_what_it_does_and_names_the_statement_it_does_not_run(
    run: Run, application: Any, pipeline: Path
):
    outcome = run("init", "-p", pipeline, "--yes")

    assert application.asked == [("init", 7, True), ("init", 7, False)]
    assert outcome.out == "done: install the trigger\ndone: create schema etl\n"
    assert 'CREATE PUBLICATION "we""ird" FOR TABLE' in outcome.err


def test_init_only_says_what_it_would_do_when_asked_to(run: Run, application: Any, pipeline: Path):
    outcome = run("init", "-p", pipeline, "--dry-run")

    assert application.asked == [("init", 7, True)]
    assert outcome.out == "would: install the trigger\nwould: create schema etl\n"


def test_init_with_nothing_to_do_asks_nothing(run: Run, application: Any, pipeline: Path):
    application.actions = []
    outcome = run("init", "-p", pipeline)

    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith("nothing to do\n")


@pytest.mark.parametrize("verb", ["init", "destroy"])
def test_nothing_is_changed_when_nobody_is_there_to_ask(
    run: Run, application: Any, pipeline: Path, verb: str
):
    outcome = run(verb, "-p", pipeline, stdin="y\n")

    assert outcome.code == 2
    assert "--yes" in outcome.err
    assert len(application.asked) == 1


@pytest.mark.parametrize(("answer", "code", "asked"), [("y\n", 0, 2), ("n\n", 1, 1)])
def test_a_person_is_asked_first(
    run: Run,
    application: Any,
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    asked: int,
):
    monkeypatch.setattr(output, "_is_interactive", lambda: True)

    assert run("destroy", "-p", pipeline, stdin=answer).code == code
    assert len(application.asked) == asked


@pytest.mark.parametrize(
    ("arguments", "sql"), [([], "CREATE SCHEMA etl;\n"), (["--role", "me"], "GRANT SELECT TO me;\n")]
)
def test_the_sql_for_an_administrator_needs_no_pipeline(
    run: Run, application: Any, arguments: list[str], sql: str
):
    outcome = run("init", "--print-sql", *arguments)

    assert (outcome.code, outcome.out, outcome.err) == (0, sql, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["init"],
        ["init", "-p", "x.yaml", "--role", "me"],
        ["replicate"],
        ["schema", "log"],
        ["replicate", "--wat"],
    ],
)
def test_incomplete_commands_are_wrong_usage(run: Run, application: Any, arguments: list[str]):
    assert run(*arguments).code == 2
    assert application.asked == []


def test_once_and_a_position_exclude_each_other(run: Run, application: Any, pipeline: Path):
    assert run("replicate", "-p", pipeline, "--once", "--until-lsn", "0/1").code == 2


@pytest.mark.parametrize("with_trigger", [True, False])
def test_destroy_drops_slot_and_state_and_the_trigger_only_when_told(
    run: Run, application: Any, pipeline: Path, with_trigger: bool
):
    outcome = run("destroy", "-p", pipeline, "--yes", *(["--with-trigger"] if with_trigger else []))

    assert application.asked == [("destroy", 7, True, with_trigger), ("destroy", 7, False, with_trigger)]
    assert outcome.out.startswith("done: ")


def test_status_shows_slot_position_and_tables(run: Run, application: Any, pipeline: Path):
    application.slot = SlotStatus(
        "supabase_etl_apply_7", True, True, Lsn(16), Lsn.parse("0/20"), "reserved", 3 * 1024**2, 512
    )
    application.tables = (
        TableStatus(1, "public.a", "ready", STREAMING, "mirror", "a", "applied", SnapshotId.COPY, 1234),
        TableStatus(
            2, "public.b", "errored", TablePhase.ERROR, "mirror", reason="no key", solution="add one"
        ),
        TableStatus(
            3,
            "public.c",
            "data_sync",
            TablePhase.COPYING,
            "mirror",
            copy=CopyStatus(80, 12, 3_100_000, note="the snapshot ended with the process"),
        ),
    )
    out = run("status", "-p", pipeline).out

    assert "pipeline  shop (id 7)\n" in out
    assert "runs      pid 9\n" in out
    assert "durable   0/20\n" in out
    assert "supabase_etl_apply_7: active, confirmed 0/20, lag 512 B, retains 3.0 MiB, wal reserved\n" in out
    assert ["public.a", "streaming", "mirror", "a", "applied", "0/0:0/0", "1,234"] in map(
        str.split, out.splitlines()
    )
    assert "public.b: no key\n  hint: add one\n" in out
    assert "copying 12/80 ranges, 3.1M rows" in out
    assert "public.c: the snapshot ended with the process\n" in out


def test_status_before_the_first_run(run: Run, application: Any, pipeline: Path):
    out = run("status", "-p", pipeline).out

    assert "slot      supabase_etl_apply_7 does not exist\n" in out
    assert out.endswith("no tables yet\n")


def test_status_as_json_has_positions_as_text(run: Run, application: Any, pipeline: Path):
    application.tables = (
        TableStatus(1, "public.a", "ready", STREAMING, "mirror", snapshot_id=SnapshotId.COPY),
    )
    report = json.loads(run("status", "-p", pipeline, "--json").out)

    assert (report["pipeline_id"], report["progress_lsn"], report["epoch"]) == (7, "0/20", 3)
    assert report["slot"]["exists"] is False
    assert report["tables"][0]["snapshot_id"] == "0/0:0/0"
    assert (report["tables"][0]["state"], report["tables"][0]["phase"]) == ("ready", "streaming")


def test_the_schema_log_tells_what_changed_where(run: Run, application: Any, pipeline: Path):
    outcome = run("schema", "log", "public.t", "-p", pipeline)

    assert application.asked == [("schema_log", 7, "public.t")]
    assert [line.split() for line in outcome.out.splitlines()][1:] == [
        ["0/0", "0/0:0/0", "applied", "columns:", "id", "int4,", "name", "text"],
        ["0/30", "0/30:0/20", "applying", "drop", "name"],
    ]


def test_the_schema_log_as_json_has_columns_and_changes(run: Run, application: Any, pipeline: Path):
    entries = json.loads(run("schema", "log", "public.t", "-p", pipeline, "--json").out)

    assert entries[1] == {
        "snapshot_id": "0/30:0/20",
        "commit_lsn": "0/30",
        "table": "public.t",
        "columns": ["id int4"],
        "changes": ["drop name"],
        "status": "applying",
    }


def test_a_table_without_versions_is_no_data(run: Run, application: Any, pipeline: Path):
    application.schema_log = []
    outcome = run("schema", "log", "public.t", "-p", pipeline)

    assert (outcome.code, outcome.out) == (0, "")
    assert "public.t" in outcome.err


def test_config_show_tells_values_and_their_origin(run: Run, pipeline: Path):
    out = run(
        "config", "show", "-p", pipeline, "--log-level", "error", env={"ETL__SOURCE__PASSWORD": "canary-pw"}
    ).out
    lines = [line.split() for line in out.splitlines()]

    assert ["source.host", "localhost", "file:2"] in lines
    assert ["source.password", "********", "env", "ETL__SOURCE__PASSWORD"] in lines
    assert ["log.level", "error", "flag", "--log-level"] in lines
    assert ["source.install_trigger", "true", "default"] in lines
    assert "canary" not in out


def test_config_show_as_json(run: Run, pipeline: Path):
    shown = json.loads(run("config", "show", "-p", pipeline, "--json").out)

    assert shown["pipeline.id"] == {"value": 7, "origin": "file:1"}
    assert shown["source.password"] == {"value": None, "origin": "default"}


def test_config_schema_is_a_json_schema_that_knows_every_section(run: Run):
    schema = json.loads(run("config", "schema").out)

    assert schema["$schema"].endswith("2020-12/schema")
    assert {"pipeline", "source", "destination", "tables"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_version_names_etl_and_its_engines(run: Run):
    found = json.loads(run("version", "--json").out)

    assert {"etl", "python", "psycopg", "duckdb", "pyspark"} <= set(found)
    assert run("--version").out == run("version").out
    assert run("version").out.startswith(f"etl {found['etl']}\n")


def test_names_from_a_database_cannot_steer_the_terminal(run: Run, application: Any, pipeline: Path):
    application.tables = (TableStatus(1, "public.\x1b]0;owned\x07[red]x", "ready", STREAMING, "mirror"),)
    application.checks = [CheckResult("table", CheckStatus.FAIL, "public.\x1b[2J[bold]", "\x1b[31mdrop")]

    shown = run("status", "-p", pipeline).out + run("check", "-p", pipeline).out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]x" in shown


@pytest.mark.parametrize(
    ("count", "text"), [(None, ""), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**4, "5.0 TiB")]
)
def test_bytes_are_readable(count: int | None, text: str):
    assert figures.human_bytes(count) == text
