"""What every verb that works on a pipeline does first: read its configuration and set up logging."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from etl.config.choices import LogFormat, LogLevel

if TYPE_CHECKING:
    from etl.config.checks import CheckResult
    from etl.config.loader import Flag
    from etl.config.models import PipelineConfig
    from etl.config.progress import CopyProgress
    from etl.config.reports import PipelineStatus, RequestReport, SchemaLogEntry, TableStatus
    from etl.lsn import Lsn
    from etl.spark.jars import JarReport
    from etl.store.base import TableVerb


class Application(Protocol):
    """What the command line needs of `etl.app`, the composition root."""

    def run_replicate(
        self, config: PipelineConfig, *, once: bool, until_lsn: Lsn | None, progress: CopyProgress | None
    ) -> int:
        """Replicate until done or stopped; the exit code."""

    def run_check(self, config: PipelineConfig) -> list[CheckResult]:
        """Check every prerequisite without changing anything."""

    def run_init(self, config: PipelineConfig, *, dry_run: bool) -> list[str]:
        """Install what is missing at the source and in the store; what was, or would be, done."""

    def render_init_sql(self, role: str | None) -> str:
        """The SQL that `run_init` executes, for someone else to run."""

    def run_destroy(self, config: PipelineConfig, *, dry_run: bool, with_trigger: bool) -> list[str]:
        """Remove slot and state; what was, or would be, done."""

    def load_status(self, config: PipelineConfig) -> PipelineStatus:
        """The pipeline as it is now."""

    def load_tables(self, config: PipelineConfig) -> tuple[TableStatus, ...]:
        """The tables of the pipeline as they are now, by name."""

    def request_table(
        self, config: PipelineConfig, names: Sequence[str], verb: TableVerb, *, wait_s: float | None
    ) -> list[RequestReport]:
        """Ask something for tables, without names for every one that it helps; `wait_s` None does not wait."""

    def load_schema_log(self, config: PipelineConfig, table: str) -> list[SchemaLogEntry]:
        """The schema versions of one table, oldest first."""

    def run_jars_fetch(self, directory: Path | None, tell: Callable[[str], None]) -> tuple[Path, ...]:
        """Download the jars of Spark that are missing or corrupt; the files that are new."""

    def load_jars(self, directory: Path | None) -> tuple[JarReport, ...]:
        """The jars of Spark as they are on disk."""


if TYPE_CHECKING:
    import etl.app

    _CONFORMS: Application = etl.app


def application() -> Application:
    """`etl.app`, imported now and no sooner: it brings the engines."""
    return cast("Application", importlib.import_module("etl.app"))


@dataclass(frozen=True, slots=True)
class Terminal:
    """The logging options of a verb."""

    level: LogLevel | None = None
    format: LogFormat | None = None
    no_color: bool = False


def open_pipeline(file: Path, terminal: Terminal) -> PipelineConfig:
    """The configuration of the pipeline, with logging set up as it and the flags say. Raises `ConfigError`."""
    from etl.config.loader import load_config
    from etl.telemetry.logging import configure_logging

    # so that a configuration that cannot be read is told as the flags ask
    configure_logging(terminal.level or "info", terminal.format or "auto", color=has_color(terminal))
    config = load_config(file, flags=log_flags(terminal))
    configure_logging(config.log.level, config.log.format, color=has_color(terminal))
    return config


def log_flags(terminal: Terminal) -> list[Flag]:
    """The logging flags as overrides of the file."""
    from etl.config.loader import Flag

    given = (("--log-level", "log.level", terminal.level), ("--log-format", "log.format", terminal.format))
    return [Flag(name, key, value) for name, key, value in given if value is not None]


def has_color(terminal: Terminal) -> bool:
    """Colours unless a flag or ``NO_COLOR`` says otherwise."""
    return not terminal.no_color and "NO_COLOR" not in os.environ
