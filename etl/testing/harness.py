"""A whole pipeline under test: a real source database, a real `etl replicate`, and what arrived at the destination.

The daemon runs as a process of its own, as it does for users, so that it can be killed. Nothing waits by sleeping for a
fixed time: `Daemon.wait_until` polls a condition with a deadline, and a bounded run (``--once``) ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import yaml
from psycopg.conninfo import conninfo_to_dict

from etl.testing.postgres import Database

PUBLICATION = "etl_pub"
_DEADLINE_S = 90.0
_POLL_S = 0.02

Row = tuple[Any, ...]


class HarnessError(AssertionError):
    """The pipeline under test did not do what the test waits for; says what the daemon printed."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished `etl` process. `out` is its standard output, `log` its standard error (JSON lines)."""

    code: int
    out: str
    log: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log's JSON lines."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event name."""
        return [line for line in self.events if line.get("event") == event]


@dataclass(slots=True)
class Daemon:
    """A running `etl replicate`."""

    process: subprocess.Popen[str]
    log_path: Path

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text()

    def wait_until(
        self, condition: Callable[[], bool], what: str = "the condition", *, alive: bool = True
    ) -> None:
        """Poll `condition` until it holds; the daemon must stay alive meanwhile unless `alive` is False."""
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            if alive and self.process.poll() is not None:
                raise HarnessError(
                    f"the daemon ended ({self.process.returncode}) before {what}:\n{self.log[-4000:]}"
                )
            if time.monotonic() > deadline:
                raise HarnessError(f"waited {_DEADLINE_S:.0f} s in vain for {what}:\n{self.log[-4000:]}")
            time.sleep(_POLL_S)

    def wait_for_log(self, event: str, times: int = 1) -> None:
        """Wait until the log has `event` that many times."""
        needle = f'"event":"{event}"'
        self.wait_until(lambda: self.log.replace('": "', '":"').count(needle) >= times, f"log event {event}")

    def wait_for_exit(self) -> int:
        """Wait until it ends by itself; its exit code (negative: the signal)."""
        self.wait_until(lambda: self.process.poll() is not None, "its end", alive=False)
        return int(self.process.returncode)

    def terminate(self) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_exit()

    def kill(self) -> None:
        """SIGKILL and wait."""
        self.process.kill()
        self.process.wait()


@dataclass(slots=True)
class PipelineUnderTest:
    """One pipeline from `database` into a DuckDB file in `directory`. `settings` are merged into its YAML."""

    database: Database
    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    pipeline_id: int = 1

    @property
    def file(self) -> Path:
        """The pipeline's YAML; written anew at each use."""
        path = self.directory / "pipeline.yaml"
        source = {
            key: (int(str(value)) if key == "port" else value)
            for key, value in conninfo_to_dict(self.database.dsn).items()
            if key in {"host", "port", "dbname", "user", "password"}
        }
        document: dict[str, Any] = {
            "pipeline": {"id": self.pipeline_id, "name": "under-test", "publication": PUBLICATION},
            "source": source,
            "destination": {"type": "duckdb", "path": str(self.warehouse)},
            "batch": {"max_fill_ms": 50},
            "retry": {"initial_delay_ms": 50, "max_delay_ms": 500},
        }
        for key, value in self.settings.items():
            document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(document))
        return path

    @property
    def warehouse(self) -> Path:
        """The DuckDB file."""
        return self.directory / "warehouse.duckdb"

    # --- the source -----------------------------------------------------------------------------------------------

    def sql(self, *statements: str) -> None:
        """Run each statement in a transaction of its own."""
        with self.database.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def transaction(self, *statements: str) -> None:
        """Run the statements in one transaction."""
        with self.database.connect() as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def publish(self, *tables: str) -> None:
        """Create the publication for these tables, or for all."""
        what = f"TABLE {', '.join(tables)}" if tables else "ALL TABLES"
        self.sql(f"CREATE PUBLICATION {PUBLICATION} FOR {what} WITH (publish_via_partition_root = true)")

    def query(self, query: str) -> list[Row]:
        """Rows of a query at the source."""
        with self.database.connect() as connection:
            return connection.execute(query.encode()).fetchall()

    # --- the daemon -----------------------------------------------------------------------------------------------

    def etl(self, *arguments: str, env: Mapping[str, str] | None = None, pipeline: bool = True) -> Run:
        """Run an `etl` verb to its end."""
        command = [sys.executable, "-m", "etl.cli", *arguments]
        if pipeline:
            command += ["--pipeline", str(self.file)]
        done = subprocess.run(
            command,
            env=self._environment(env),
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def once(self, *, failpoints: str = "", check: bool = True) -> Run:
        """``etl replicate --once``: everything committed until now is applied when it returns."""
        run = self.etl("replicate", "--once", env={"ETL_FAILPOINTS": failpoints} if failpoints else None)
        if check and run.code != 0:
            raise HarnessError(f"etl replicate --once ended with {run.code}:\n{run.log[-6000:]}")
        return run

    @contextmanager
    def running(
        self, *arguments: str, failpoints: str = "", env: Mapping[str, str] | None = None
    ) -> Iterator[Daemon]:
        """A daemon that is killed at the end of the block if it still runs."""
        log_path = self.directory / f"daemon-{time.monotonic_ns()}.log"
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "etl.cli", "replicate", *arguments, "--pipeline", str(self.file)],
                env=self._environment(
                    {**({"ETL_FAILPOINTS": failpoints} if failpoints else {}), **(env or {})}
                ),
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
            )
        daemon = Daemon(process, log_path)
        try:
            yield daemon
        finally:
            if process.poll() is None:
                daemon.kill()

    @staticmethod
    def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "ETL_"))}
        return {**kept, **(extra or {})}

    # --- the destination ------------------------------------------------------------------------------------------

    def destination(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Rows of a query at the destination; only while no daemon has the file open."""
        connection = duckdb.connect(str(self.warehouse), read_only=True)
        try:
            connection.execute("SET TimeZone = 'UTC'")
            # by way of Arrow, because the driver's own rows want pytz for a timestamptz
            table = connection.execute(query, parameters).to_arrow_table()
        finally:
            connection.close()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def columns(self, table: str) -> list[tuple[str, str, str | None]]:
        """(name, type, default) of a destination table's columns, in order, without metadata columns."""
        schema, name = table.split(".", 1)
        return [
            (str(row[0]), str(row[1]), row[2])
            for row in self.destination(
                "SELECT column_name, data_type, column_default FROM duckdb_columns()"
                " WHERE schema_name = ? AND table_name = ? AND NOT starts_with(column_name, '_etl_')"
                " ORDER BY column_index",
                [schema, name],
            )
        ]

    def names(self, table: str) -> list[str]:
        """The destination table's column names."""
        return [column[0] for column in self.columns(table)]

    def rows(self, table: str, columns: str = "*") -> list[Row]:
        """The destination table's rows, in no particular order."""
        schema, name = table.split(".", 1)
        query = f'SELECT {columns} FROM "{schema}"."{name}"'  # noqa: S608 - the names of a test
        return self.destination(query)

    def assert_equal(self, table: str) -> None:
        """Source and destination hold the same columns and the same rows, as multisets."""
        names = sorted(self.names(table))
        columns = ", ".join(f'"{name}"' for name in names)
        schema, name = table.split(".", 1)
        with self.database.connect() as connection:
            found = [
                row[0]
                for row in connection.execute(
                    "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                    " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
                    (f'"{schema}"."{name}"',),
                ).fetchall()
            ]
            source = connection.execute(f'SELECT {columns} FROM "{schema}"."{name}"'.encode()).fetchall()
        if sorted(found) != names:
            raise HarnessError(f"{table}: columns differ: source {sorted(found)}, destination {names}")
        expected = Counter(tuple(map(_comparable, row)) for row in source)
        actual = Counter(tuple(map(_comparable, row)) for row in self.rows(table, columns))
        if expected != actual:
            missing, surplus = expected - actual, actual - expected
            raise HarnessError(
                f"{table}: {sum(missing.values())} rows missing, {sum(surplus.values())} surplus of"
                f" {sum(expected.values())}; missing {_some(missing)}, surplus {_some(surplus)}"
            )


def _comparable(value: Any) -> Any:
    """The two drivers' Python values on one footing."""
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


def _some(rows: Counter[Row]) -> str:
    return str(list(rows.items())[:5])
