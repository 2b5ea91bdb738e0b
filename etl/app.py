"""The composition root: the only place that names concrete classes. One function per CLI verb."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import structlog

from etl.config.checks import CheckResult, CheckStatus
from etl.config.destinations import DeltaDestinationConfig, DuckDbDestinationConfig
from etl.config.models import PipelineConfig
from etl.config.progress import CopyProgress
from etl.config.reports import PipelineStatus, RequestReport, SchemaLogEntry, TableStatus
from etl.destinations.base import Destination
from etl.errors import DdlTriggerError, EtlError, ExitCode, SourceSettingError
from etl.lsn import Lsn
from etl.pipeline.asking import ask
from etl.pipeline.context import PipelineContext, type_options
from etl.pipeline.observer import Observer
from etl.pipeline.reports import schema_log, status, tables
from etl.pipeline.supervisor import Supervisor
from etl.source import install
from etl.source.connection import connect_query, translated
from etl.source.preflight import check_source
from etl.source.slots import apply_slot_name, current_lsn, drop_slot
from etl.spark.fetch import fetch_jars
from etl.spark.jars import JarReport, inspect_jars, jars_directory
from etl.store.backlog import Backlogs
from etl.store.base import StateStore, TableVerb
from etl.store.postgres import PostgresStore
from etl.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from etl.destinations.delta.config import DeltaSettings
    from etl.schema.types import TypeOptions

_log = structlog.get_logger()


def run_replicate(
    config: PipelineConfig,
    *,
    once: bool = False,
    until_lsn: Lsn | None = None,
    progress: CopyProgress | None = None,
) -> int:
    """Replicate until stopped, or up to a position. Returns the exit code of a graceful end; raises any `EtlError`."""
    context = _context(config, progress)
    target = _target(context, once=once, until_lsn=until_lsn)
    supervisor = Supervisor(context, prepare_source=lambda: _prepare_source(context), target=target)
    with _watched(context), _signals(context):
        supervisor.run()
    tables = supervisor.tables
    if tables is not None and tables.errors and target is not None:
        for oid, error in tables.errors.items():
            _log.error("table_errored", table=tables.name(oid), error=error.message, hint=error.hint)
        return ExitCode.UNEXPECTED
    return ExitCode.OK


def run_check(config: PipelineConfig) -> list[CheckResult]:
    """Every prerequisite by name; changes nothing."""
    results = check_source(
        config.source.parameters(),
        pipeline_id=config.pipeline.id,
        publication=config.pipeline.publication,
        may_install=config.source.install_trigger,
    )
    if config.store is not None:
        results.append(_attempt("state store", lambda: _ping(config)))
    results.append(_attempt("destination", lambda: build_destination(config).check()))
    return results


def run_init(config: PipelineConfig, *, dry_run: bool) -> list[str]:
    """Install what is missing at the source and in the store; says what was, or would be, done."""
    actions = []
    with connect_query(config.source.parameters(), "migrations") as connection:
        before = install.installed_version(connection)
        latest = install.latest_version()
        if before != latest:
            actions.append(f"event trigger: version {before or 'none'} → {latest}")
            if not dry_run:
                install.install(connection)
    actions.append(f"state store at {config.state_connection.describe()}")
    if not dry_run:
        with _store(config) as store:
            store.acquire()
    return actions


def render_init_sql(role: str | None) -> str:
    """The SQL that an administrator runs in our stead."""
    return install.render_sql(role)


def run_destroy(config: PipelineConfig, *, dry_run: bool, with_trigger: bool) -> list[str]:
    """Remove slot and state, and the trigger when asked; the destination's tables stay."""
    parameters, slot = config.source.parameters(), apply_slot_name(config.pipeline.id)
    actions = [f"drop replication slot {slot}", f"delete the state of pipeline {config.pipeline.id}"]
    if with_trigger:
        actions.append("drop the event trigger and its functions")
    if dry_run:
        return actions
    with _store(config) as store, connect_query(parameters, "migrations") as connection:
        store.acquire()
        drop_slot(connection, parameters, slot)
        store.destroy()
        Backlogs(config.backlog_path).drop_unknown([])
        if with_trigger:
            install.uninstall(connection)
    return actions


def load_status(config: PipelineConfig) -> PipelineStatus:
    """The pipeline as it is now, whether it runs or not."""
    with _store(config) as store:
        return status(config, store)


def load_tables(config: PipelineConfig) -> tuple[TableStatus, ...]:
    """The tables as they are now, whether the pipeline runs or not."""
    with _store(config) as store:
        return tables(config, store)


def request_table(
    config: PipelineConfig, names: Sequence[str], verb: TableVerb, *, wait_s: float | None
) -> list[RequestReport]:
    """Ask whoever runs the pipeline, now or next, to do something with tables, and what became of it.

    Without names it is about every table that the verb helps. `wait_s` bounds the wait for an answer, None waits for none.
    """
    with _store(config) as store:
        return ask(config, store, names, verb, wait_s)


def load_schema_log(config: PipelineConfig, table: str) -> list[SchemaLogEntry]:
    """The schema versions of one table, oldest first."""
    with _store(config) as store:
        return schema_log(store, table)


def run_jars_fetch(directory: Path | None, tell: Callable[[str], None]) -> tuple[Path, ...]:
    """Download the jars of Spark that are missing or corrupt, and return them; `tell` hears of each before."""
    return fetch_jars(directory or jars_directory(os.environ), os.environ, tell)


def load_jars(directory: Path | None) -> tuple[JarReport, ...]:
    """The jars of Spark as they are on disk."""
    return inspect_jars((directory or jars_directory(os.environ)).absolute())


def build_destination(config: PipelineConfig) -> Destination:
    """The destination that the configuration names."""
    match config.destination:
        case DuckDbDestinationConfig(path=path):
            from etl.destinations.duckdb.config import DuckDBSettings
            from etl.destinations.duckdb.destination import DuckDBDestination

            return DuckDBDestination(DuckDBSettings(path, types=type_options(config)))
        case DeltaDestinationConfig() as delta:
            from etl.destinations.delta.destination import DeltaDestination

            return DeltaDestination(_delta_settings(delta, type_options(config)))


def _delta_settings(config: DeltaDestinationConfig, types: TypeOptions) -> DeltaSettings:
    from etl.destinations.delta.config import DeltaSettings, Maintenance
    from etl.spark.settings import SparkSettings

    upkeep, spark = config.maintenance, config.spark
    return DeltaSettings(
        path=config.path,
        catalog=config.catalog,
        staging=config.staging,
        parallel_tables=config.parallel_tables,
        deletion_vectors=config.deletion_vectors,
        change_data_feed=config.change_data_feed,
        maintenance=Maintenance(upkeep.optimize_commits, upkeep.vacuum_hours, upkeep.retention_hours),
        types=types,
        spark=SparkSettings(spark.master, spark.remote, spark.conf),
    )


@contextmanager
def _store(config: PipelineConfig) -> Iterator[StateStore]:
    store = PostgresStore(config.state_connection.parameters(), config.pipeline.id)
    try:
        yield store
    finally:
        store.close()


def _context(config: PipelineConfig, progress: CopyProgress | None) -> PipelineContext:
    return PipelineContext(
        config=config,
        parameters=config.source.parameters(),
        store=PostgresStore(config.state_connection.parameters(), config.pipeline.id),
        destination=build_destination(config),
        metrics=Metrics(config.pipeline.display_name),
        progress=progress,
    )


def _target(context: PipelineContext, *, once: bool, until_lsn: Lsn | None) -> Callable[[], Lsn] | None:
    if until_lsn is not None:
        return lambda: until_lsn
    return (lambda: _current_lsn(context)) if once else None


def _current_lsn(context: PipelineContext) -> Lsn:
    with connect_query(context.parameters, f"apply:{context.pipeline_id}") as connection:
        return current_lsn(connection, context.parameters)


def _prepare_source(context: PipelineContext) -> None:
    """The settings without which nothing works, and the trigger without which schema changes go unseen."""
    with connect_query(context.parameters, f"migrations:{context.pipeline_id}") as connection:
        with translated(context.parameters):
            row = connection.execute(
                "SELECT coalesce(current_setting('effective_wal_level', true), current_setting('wal_level')),"
                " pg_is_in_recovery()"
            ).fetchone()
        level, standby = row or ("?", False)
        if level != "logical":
            raise SourceSettingError(
                f"wal_level is {level}; logical replication needs logical",
                hint="ALTER SYSTEM SET wal_level = logical, then restart the server",
            )
        if not standby and install.installed_version(connection) != install.latest_version():
            if not context.config.source.install_trigger:
                raise DdlTriggerError(
                    "the event trigger that logs schema changes is missing or outdated",
                    hint="run the output of `etl init --print-sql` as an administrator",
                )
            install.install(connection)
            _log.info("ddl_trigger_installed", version=install.latest_version())


@contextmanager
def _watched(context: PipelineContext) -> Iterator[None]:
    """Answer who asks over HTTP, where that is configured. The address is taken before anything else is done."""
    config = context.config.http
    if config is None:
        yield
        return
    from etl.http.application import make_application
    from etl.http.server import HttpServer

    server = HttpServer(config.host, config.port)
    store = PostgresStore(context.config.state_connection.parameters(), context.pipeline_id)
    observer = Observer(context, store)
    hosts = (*server.own_names, *config.allowed_hosts) if server.is_local else ("*",)
    application = make_application(
        observer.look, context.metrics.registry, allowed_hosts=hosts, is_stopping=server.is_stopping
    )
    observer.start()
    server.start(application)
    try:
        yield
    finally:
        server.stop()
        observer.close()


@contextmanager
def _signals(context: PipelineContext) -> Iterator[None]:
    """SIGTERM and SIGINT ask for a graceful end with a deadline; a second one ends at once."""

    def stop(number: int, _: FrameType | None) -> None:
        if context.stop.is_set():
            os._exit(128 + number)
        context.stop.set()
        deadline = threading.Timer(context.config.shutdown_timeout_s, _give_up)
        deadline.daemon = True
        deadline.start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up() -> None:
    """The batch in hand did not finish in time. Leaving it is safe: it was not acknowledged."""
    _log.warning("shutdown_deadline_passed")
    os._exit(ExitCode.OK)


def _attempt(name: str, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(name, CheckStatus.OK, check())
    except EtlError as error:
        return CheckResult(name, CheckStatus.FAIL, error.message, error.hint)


def _ping(config: PipelineConfig) -> str:
    connect_query(config.state_connection.parameters(), "check").close()
    return f"reachable: {config.state_connection.describe()}"
