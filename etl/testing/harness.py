"""A whole pipeline under test: a real source database, a real `etl replicate`, and what arrived at the destination.

The daemon runs as a process of its own, as it does for users, so that it can be killed. Nothing waits by sleeping for a
fixed time: `Daemon.wait_until` polls a condition with a deadline, and a bounded run (``--once``) ends by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader

from etl.lsn import Lsn
from etl.source.slots import apply_slot_name
from etl.testing.daemon import DEADLINE_S, Daemon, HarnessError, Process, Run
from etl.testing.postgres import Database
from etl.testing.reader import Column, DuckDBReader, Reader, Row
from etl.testing.warm import WarmEtl

__all__ = ["PUBLICATION", "Daemon", "HarnessError", "PipelineUnderTest", "Row", "Run"]

PUBLICATION = "etl_pub"

_STATES = """
SELECT (SELECT schema_name || '.' || table_name FROM etl.table_schemas v
         WHERE v.pipeline_id = s.pipeline_id AND v.table_id = s.table_id ORDER BY v.id DESC LIMIT 1), state::text
  FROM etl.replication_state s WHERE is_current AND pipeline_id = %s"""
_SCHEMAS = """
SELECT schema_status::text, previous_snapshot_commit_lsn IS NOT NULL, count(*)
  FROM etl.destination_tables_metadata d WHERE pipeline_id = %s AND EXISTS (
       SELECT FROM etl.replication_state s
        WHERE s.pipeline_id = d.pipeline_id AND s.table_id = d.table_id AND s.is_current) GROUP BY 1, 2"""


@dataclass(slots=True)
class PipelineUnderTest:
    """One pipeline from `database` into a DuckDB file in `directory`, or into the ``destination`` of its `settings`.

    `settings` are merged into its YAML. With `warm`, its processes are forked from one that has imported everything already.
    """

    database: Database
    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    pipeline_id: int = 1
    warm: WarmEtl | None = None
    _reading: Reader | None = None

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
            "backlog": {"path": str(self.directory / "backlog")},
            "publication_check_ms": 100,
        }
        for key, value in self.settings.items():
            document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(document))
        return path

    @property
    def warehouse(self) -> Path:
        """The DuckDB file, or the folder of the lake."""
        given = self.settings.get("destination", {}).get("path")
        return Path(given) if given else self.directory / "warehouse.duckdb"

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

    def move_on(self) -> None:
        """Write so much WAL of no table's that the pipeline's position follows, however quiet its tables are."""
        self.sql("SELECT pg_logical_emit_message(true, 'tick', repeat('x', 70000))")

    def query(self, query: str, parameters: Sequence[object] | None = None) -> list[Row]:
        """Rows of a query at the source."""
        with self.database.connect() as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    # --- the daemon -----------------------------------------------------------------------------------------------

    def etl(self, *arguments: str, env: Mapping[str, str] | None = None, pipeline: bool = True) -> Run:
        """Run an `etl` verb to its end."""
        given = [*arguments, "--pipeline", str(self.file)] if pipeline else list(arguments)
        if self.warm is not None:
            return self._etl_warm(self.warm, given, env)
        done = subprocess.run(
            [sys.executable, "-m", "etl.cli", *given],
            env=self._environment(env),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def _etl_warm(self, warm: WarmEtl, arguments: Sequence[str], env: Mapping[str, str] | None) -> Run:
        stem = self.directory / f"etl-{time.monotonic_ns()}"
        out, log = stem.with_suffix(".out"), stem.with_suffix(".log")
        process = warm.start(arguments, environment=self._environment(env), out=out, log=log)
        try:
            code = process.wait(DEADLINE_S)
        finally:
            process.kill()
        return Run(code, out.read_text(), log.read_text())

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
        log_path.touch()
        given = ["replicate", *arguments, "--pipeline", str(self.file)]
        environment = self._environment(
            {**({"ETL_FAILPOINTS": failpoints} if failpoints else {}), **(env or {})}
        )
        process: Process
        if self.warm is not None:
            process = self.warm.start(given, environment=environment, out=None, log=log_path)
        else:
            with log_path.open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "etl.cli", *given],
                    env=environment,
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
        # wide, so that no table wraps where the folder of a test has a long name
        return {**kept, "COLUMNS": "400", **(extra or {})}

    # --- what it remembers ----------------------------------------------------------------------------------------

    def progress(self) -> Lsn:
        """The position the pipeline has recorded as durable; 0 before the first."""
        return _lsn(
            self.query(
                "SELECT flush_lsn::text FROM etl.replication_progress WHERE pipeline_id = %s",
                [self.pipeline_id],
            )
        )

    def confirmed(self) -> Lsn:
        """The position up to which the slot lets go of the WAL; 0 without a slot."""
        return _lsn(
            self.query(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
                [apply_slot_name(self.pipeline_id)],
            )
        )

    def written(self) -> Lsn:
        """The end of the source's WAL: once `progress` is here, everything committed until now is durable."""
        return _lsn(self.query("SELECT pg_current_wal_insert_lsn()::text"))

    def states(self) -> dict[str, str]:
        """Table (``schema.name``, as last known) → its state."""
        return dict(self.query(_STATES, [self.pipeline_id]))

    def assert_settled(self, *tables: str, changelogs: Sequence[str] = ()) -> None:
        """Nothing is left of any crash: one slot, tables ready, schemas applied, and both sides equal.

        `changelogs` are tables in that mode, whose rows have no equal at the source.
        """
        replicated = (*tables, *changelogs)
        slots = self.query("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
        if slots != [(apply_slot_name(self.pipeline_id),)]:
            raise HarnessError(f"replication slots left: {slots}")
        if self.states() != dict.fromkeys(replicated, "ready"):
            raise HarnessError(f"table states: {self.states()}")
        schemas = self.query(_SCHEMAS, [self.pipeline_id])
        if schemas != [("applied", False, len(replicated))]:
            raise HarnessError(f"schemas at the destination: {schemas}")
        with self.reading():
            for table in tables:
                self.assert_equal(table)

    # --- the destination ------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """The destination, open once for all that is asked inside; a DuckDB file only while no daemon has it open."""
        if self._reading is not None:
            yield self._reading
            return
        with self._open_reader() as reader:
            self._reading = reader
            try:
                yield reader
            finally:
                self._reading = None

    def _open_reader(self) -> AbstractContextManager[Reader]:
        if self.settings.get("destination", {}).get("type") == "delta":
            from etl.testing.delta_reader import DeltaReader

            return nullcontext(DeltaReader(self.warehouse))
        return DuckDBReader.open(self.warehouse)

    def destination(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Rows of a query at the destination."""
        with self.reading() as reader:
            return reader.query(query, parameters)

    def columns(self, table: str) -> list[Column]:
        """(name, type, default) of a destination table's columns, in order, without metadata columns."""
        with self.reading() as reader:
            return reader.columns(table)

    def names(self, table: str) -> list[str]:
        """The destination table's column names."""
        return [column[0] for column in self.columns(table)]

    def rows(self, table: str, columns: str = "*") -> list[Row]:
        """The destination table's rows, in no particular order."""
        with self.reading() as reader:
            return reader.rows(table, columns)

    def assert_equal(self, table: str) -> None:
        """Source and destination hold the same columns and the same rows, as multisets."""
        with self.reading() as reader:
            columns = sorted(reader.columns(table))
            names = [column[0] for column in columns]
            source = self._source_rows(table, names, ", ".join(map(reader.as_source, columns)))
            found = reader.rows(table, ", ".join(f'"{name}"' for name in names))
        expected = Counter(tuple(map(_comparable, row)) for row in source)
        actual = Counter(tuple(map(_comparable, row)) for row in found)
        if expected != actual:
            missing, surplus = expected - actual, actual - expected
            raise HarnessError(
                f"{table}: {sum(missing.values())} rows missing, {sum(surplus.values())} surplus of"
                f" {sum(expected.values())}; missing {_some(missing)}, surplus {_some(surplus)}"
            )

    def _source_rows(self, table: str, names: list[str], columns: str) -> list[Row]:
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
            if sorted(found) != names:
                raise HarnessError(f"{table}: columns differ: source {sorted(found)}, destination {names}")
            # both drivers' JSON as text: SQL NULL and JSON null are two things
            for json_type in ("json", "jsonb"):
                connection.adapters.register_loader(json_type, TextLoader)
            return connection.execute(
                f'SELECT {columns} FROM "{schema}"."{name}"'.encode()  # noqa: S608 - the names of a test
            ).fetchall()


def _lsn(rows: list[Row]) -> Lsn:
    return Lsn.parse(rows[0][0]) if rows and rows[0][0] is not None else Lsn(0)


def _comparable(value: Any) -> Any:
    """The two drivers' Python values on one footing."""
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN, which is no equal of itself here
        return "NaN"
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
