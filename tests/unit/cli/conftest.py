from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from etl.cli.main import app
from etl.config.checks import CheckResult, CheckStatus
from etl.config.models import PipelineConfig
from etl.config.progress import CopyProgress
from etl.config.reports import PipelineStatus, RequestReport, SchemaLogEntry, SlotStatus, TableStatus
from etl.lsn import Lsn, SnapshotId
from etl.store.base import TableVerb

FILE = """\
pipeline: {id: 7, name: shop, publication: 'we"ird'}
source: {host: localhost, user: etl, dbname: shop}
destination: {type: duckdb, path: shop.duckdb}
"""


@dataclass(slots=True)
class RecordingApplication:
    """Stands where `etl.app` stands, remembers what it was asked, and answers or fails as it is told."""

    error: Exception | None = None
    exit_code: int = 0
    actions: list[str] = field(default_factory=lambda: ["install the trigger", "create schema etl"])
    checks: list[CheckResult] = field(default_factory=list)
    schema_log: list[SchemaLogEntry] = field(default_factory=list)
    tables: tuple[TableStatus, ...] = ()
    requests: list[RequestReport] = field(default_factory=list)
    slot: SlotStatus = field(default_factory=lambda: SlotStatus("supabase_etl_apply_7", exists=False))
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def run_replicate(
        self, config: PipelineConfig, *, once: bool, until_lsn: Lsn | None, progress: CopyProgress | None
    ) -> int:
        self._ask("replicate", config.log.level, config.log.format, once, until_lsn, progress)
        return self.exit_code

    def run_check(self, config: PipelineConfig) -> list[CheckResult]:
        self._ask("check", config.pipeline.id)
        return self.checks

    def run_init(self, config: PipelineConfig, *, dry_run: bool) -> list[str]:
        self._ask("init", config.pipeline.id, dry_run)
        return self.actions

    def render_init_sql(self, role: str | None) -> str:
        self._ask("sql", role)
        return f"GRANT SELECT TO {role};" if role else "CREATE SCHEMA etl;"

    def run_destroy(self, config: PipelineConfig, *, dry_run: bool, with_trigger: bool) -> list[str]:
        self._ask("destroy", config.pipeline.id, dry_run, with_trigger)
        return self.actions

    def load_status(self, config: PipelineConfig) -> PipelineStatus:
        self._ask("status", config.pipeline.id)
        return PipelineStatus(
            config.pipeline.id,
            config.pipeline.display_name,
            self.slot,
            Lsn.parse("0/20"),
            3,
            "pid 9",
            self.tables,
        )

    def load_tables(self, config: PipelineConfig) -> tuple[TableStatus, ...]:
        self._ask("tables", config.pipeline.id)
        return self.tables

    def request_table(
        self, config: PipelineConfig, names: Sequence[str], verb: TableVerb, *, wait_s: float | None
    ) -> list[RequestReport]:
        self._ask("request", config.pipeline.id, list(names), verb, wait_s)
        return self.requests

    def load_schema_log(self, config: PipelineConfig, table: str) -> list[SchemaLogEntry]:
        self._ask("schema_log", config.pipeline.id, table)
        return self.schema_log

    def _ask(self, *question: object) -> None:
        self.asked.append(question)
        if self.error is not None:
            raise self.error


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> RecordingApplication:
    recording = RecordingApplication(
        checks=[CheckResult("wal_level", CheckStatus.OK, "logical")],
        schema_log=[
            SchemaLogEntry(SnapshotId.COPY, Lsn(0), "public.t", ("id int4", "name text"), (), "applied"),
            SchemaLogEntry(
                SnapshotId.parse("0/30:0/20"),
                Lsn.parse("0/30"),
                "public.t",
                ("id int4",),
                ("drop name",),
                "applying",
            ),
        ],
    )
    monkeypatch.setitem(sys.modules, "etl.app", recording)  # type: ignore[arg-type]
    return recording


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run `etl` with arguments in this process; nothing it sets up outlives the test."""
    for name in ("ETL_PIPELINE", "FORCE_COLOR", "GITHUB_ACTIONS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*arguments: str | Path, stdin: str = "", env: dict[str, str] | None = None) -> Outcome:
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin, env=env, prog_name="etl")
        return Outcome(result.exit_code, result.stdout, result.stderr)

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
