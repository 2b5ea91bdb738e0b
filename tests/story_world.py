"""The source database and the pipelines that stories share, and what became of each story; see `tests.stories`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from etl.testing.harness import PUBLICATION, PipelineUnderTest, Row, Run
from etl.testing.postgres import Database
from etl.testing.warm import WarmEtl
from tests.story import Story

#: Killed here, one after the other, before each part of the stories is allowed to finish.
CRASHES = ("dest.after_commit:7=kill", "ddl.after_commit:5=kill", "stream.after_write=kill")

HOSTILE_SETTINGS = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-3",
    "xmlbinary": "hex",
    "lc_messages": "C",
    "quote_all_identifiers": "on",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "session_replication_role": "replica",
    "plpgsql.variable_conflict": "use_variable",
    "plpgsql.extra_errors": "all",
    "work_mem": "64kB",
    "logical_decoding_work_mem": "64kB",
    "search_path": "nowhere",
    "statement_timeout": "20s",
    "lock_timeout": "5s",
    "array_nulls": "off",
    "client_encoding": "LATIN1",
}

_SENTINEL = "sentinel"


class World:
    """Stories that share a source database, and the pipelines that replicate it."""

    def __init__(
        self,
        database: Database,
        directory: Path,
        schemas: dict[Story, str],
        variants: Sequence[str],
        first_id: int,
        warm: WarmEtl,
    ) -> None:
        """`first_id`: the pipelines' ids start there; they name replication slots, which are the server's."""
        self.database = database
        self.schemas = schemas
        self.runs: list[Run] = []
        self.refused: dict[Story, psycopg.Error] = {}
        self.role = f"hostile_{database.name}"
        self._warm = warm
        self.pipelines = {
            variant: self._pipeline(directory / variant, variant, number)
            for number, variant in enumerate(variants, start=first_id)
        }
        self._readers: dict[str, duckdb.DuckDBPyConnection] = {}
        self._disagreements: dict[str, str | None] = {}

    def _pipeline(self, directory: Path, variant: str, number: int) -> PipelineUnderTest:
        directory.mkdir()
        modes = [
            {"name": f"{schema}.{table}", "mode": "changelog"}
            for told, schema in self.schemas.items()
            for table in told.changelog
        ]
        settings: dict[str, Any] = {"tables": modes}
        if variant == "crashed":
            settings |= {"batch": {"max_bytes": "64KiB"}}
        if variant == "live":
            settings |= {"source": {"user": self.role}, "batch": {"max_fill_ms": 1}}
        return PipelineUnderTest(self.database, directory, settings, pipeline_id=number, warm=self._warm)

    # --- what happens ---------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Let all stories happen, and every pipeline replicate them."""
        sound = "live" in self.pipelines
        plain = self.pipelines["plain"]
        plain.sql(
            f"CREATE TABLE {_SENTINEL} (id int PRIMARY KEY)",
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {_SENTINEL} WITH (publish_via_partition_root = true)",
        )
        if sound:
            self._create_hostile_role()
        for told, schema in self.schemas.items():
            plain.sql(f'CREATE SCHEMA "{schema}"')
            self._perform(told, "given")
            self._publish(schema, told)
        self._together(lambda pipeline: pipeline.once(check=sound), "plain", "crashed", "live")
        self._part("when", sound=sound)
        if any(told.later for told in self.schemas):
            self._part("later", sound=sound)

    def _part(self, name: str, *, sound: bool) -> None:
        with self._live(name):
            for told in self.schemas:
                self._perform(told, name)
        self._together(lambda pipeline: self._catch_up(pipeline, sound=sound), "plain", "crashed", "live")

    def _catch_up(self, pipeline: PipelineUnderTest, *, sound: bool) -> Run:
        if pipeline is self.pipelines.get("crashed"):
            for failpoint in CRASHES:
                pipeline.once(failpoints=failpoint, check=False)
        return pipeline.once(check=sound)

    def _together(self, action: Callable[[PipelineUnderTest], Run], *variants: str) -> None:
        present = [self.pipelines[variant] for variant in variants if variant in self.pipelines]
        with ThreadPoolExecutor(len(present)) as pool:
            runs = list(pool.map(action, present))
        self.runs.append(runs[0])

    @contextmanager
    def _live(self, part: str) -> Iterator[None]:
        """The live pipeline while something happens; it has seen all of it at the end."""
        if "live" not in self.pipelines:
            yield
            return
        pipeline = self.pipelines["live"]
        with pipeline.running() as daemon:
            daemon.wait_for_log("tables_settled")
            yield
            pipeline.sql(
                f'ALTER TABLE {_SENTINEL} ADD COLUMN "{part}" int',
                f"INSERT INTO {_SENTINEL} (id) SELECT count(*) FROM {_SENTINEL}",
            )
            seen = re.compile(rf'"event":"schema_change_applied","table":"public\.{_SENTINEL}"')
            daemon.wait_until(lambda: seen.search(daemon.log) is not None, "the end of the stories")
            assert daemon.terminate() == 0, daemon.log[-4000:]

    def _create_hostile_role(self) -> None:
        self.pipelines["plain"].sql(
            f"CREATE ROLE {self.role} SUPERUSER LOGIN",
            *(f"ALTER ROLE {self.role} SET {name} = '{value}'" for name, value in HOSTILE_SETTINGS.items()),
        )

    def _perform(self, told: Story, part: str) -> None:
        """Let a part of a story happen. What Postgres refuses ends the story, not the others."""
        if told in self.refused:
            return
        schema = self.schemas[told]
        try:
            with self._session(schema) as connection:
                for step in getattr(told, part):
                    if isinstance(step, str):
                        self._execute(connection, schema, step)
                        continue
                    with connection.transaction():
                        for statement in step:
                            self._execute(connection, schema, statement)
        except psycopg.Error as error:
            self.refused[told] = error

    @staticmethod
    def _execute(connection: psycopg.Connection[Row], schema: str, statement: str) -> None:
        connection.execute(statement.replace("{schema}", schema).encode())

    def _session(self, schema: str) -> psycopg.Connection[Row]:
        connection = self.database.connect()
        connection.execute(f'SET search_path = "{schema}", public'.encode())
        return connection

    def _publish(self, schema: str, told: Story) -> None:
        with self._session(schema) as connection:
            tables = told.publish
            if tables is None:
                rows = connection.execute(
                    "SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = quote_ident(%s)::regnamespace"
                    " AND relkind IN ('r', 'p') AND relpersistence = 'p' AND NOT relispartition",
                    (schema,),
                ).fetchall()
                tables = tuple(row[0] for row in rows)
            for table in tables:
                statement = f"ALTER PUBLICATION {PUBLICATION} ADD TABLE ONLY {table}"
                self._execute(connection, schema, statement)

    # --- what became of it ----------------------------------------------------------------------------------------

    def read(self, query: str, parameters: Sequence[object] = (), variant: str = "plain") -> list[Row]:
        """Rows of a query at the destination of one pipeline."""
        reader = self._readers.get(variant)
        if reader is None:
            reader = duckdb.connect(str(self.pipelines[variant].warehouse), read_only=True)
            reader.execute("SET TimeZone = 'UTC'")
            self._readers[variant] = reader
        table = reader.execute(query, parameters).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def disagreement(self, schema: str) -> str | None:
        """The pipeline that left other tables, columns or rows than ``plain`` did, and which; None when all agree."""
        if schema not in self._disagreements:
            plain = self._picture(schema, "plain")
            different = {
                variant: [name for name in {**plain, **picture} if plain.get(name) != picture.get(name)]
                for variant in self.pipelines
                if (picture := self._picture(schema, variant)) != plain
            }
            self._disagreements[schema] = str(different) if different else None
        return self._disagreements[schema]

    def _picture(self, schema: str, variant: str) -> dict[str, tuple[list[Row], Counter[Row]]]:
        """Table → its columns (name, type, default, tag) and its rows as text, as one pipeline left them."""
        columns = self.read(
            "SELECT table_name, column_name, data_type, column_default, comment FROM duckdb_columns()"
            " WHERE schema_name = ? ORDER BY table_name, column_index",
            [schema],
            variant,
        )
        return {
            table: (
                [column[1:] for column in columns if column[0] == table],
                Counter(
                    self.read(
                        f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {_quoted(schema, table)}", (), variant
                    )
                ),
            )
            for table in {column[0] for column in columns}
        }

    def close(self) -> None:
        """Let go of the destinations, and of the role, which belongs to the server."""
        for reader in self._readers.values():
            reader.close()
        with self.database.server.connect() as connection:
            connection.execute(f"DROP ROLE IF EXISTS {self.role}".encode())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one story."""

    world: World
    story: Story
    schema: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.world.schemas[self.story])

    def tables(self) -> list[str]:
        """The destination's tables of this story."""
        return [
            row[0]
            for row in self.world.read(
                "SELECT table_name FROM duckdb_tables() WHERE schema_name = ? ORDER BY 1", [self.schema]
            )
        ]

    def columns(self, table: str) -> list[tuple[str, str, str | None]]:
        """(name, type, default) of a destination table's columns in order, our own left out."""
        return [
            (row[0], row[1], row[2])
            for row in self.world.read(
                "SELECT column_name, data_type, column_default FROM duckdb_columns() WHERE schema_name = ?"
                " AND table_name = ? AND NOT starts_with(column_name, '_etl_') ORDER BY column_index",
                [self.schema, table],
            )
        ]

    def names(self, table: str) -> list[str]:
        """The destination table's column names."""
        return [name for name, _, _ in self.columns(table)]

    def types(self, table: str) -> dict[str, str]:
        """The destination table's types by column."""
        return {name: kind for name, kind, _ in self.columns(table)}

    def defaults(self, table: str) -> dict[str, str]:
        """The destination table's defaults by column, columns without one left out."""
        return {name: default for name, _, default in self.columns(table) if default is not None}

    def attnums(self, table: str) -> dict[str, int]:
        """Which attnum of the source the destination's columns say they are."""
        rows = self.world.read(
            "SELECT column_name, comment FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?"
            " AND comment IS NOT NULL ORDER BY column_index",
            [self.schema, table],
        )
        return {name: int(comment.rpartition(".")[2]) for name, comment in rows}

    def rows(self, table: str, columns: str = "*") -> list[Row]:
        """The destination table's rows, sorted by their first columns."""
        rows = self.world.read(f"SELECT {columns} FROM {_quoted(self.schema, table)}")
        return sorted(rows, key=lambda row: [(value is not None, value) for value in row])

    def source(self, query: str) -> list[Row]:
        """Rows of a query at the source, under the story's search path."""
        with self.world.database.connect() as connection:
            connection.execute(f'SET search_path = "{self.schema}", public'.encode())
            return connection.execute(query.replace("{schema}", self.schema).encode()).fetchall()

    def assert_same(self, table: str) -> None:
        """Source and destination have the same columns and rows now."""
        self.world.pipelines["plain"].assert_equal(f"{self.schema}.{table}")

    @property
    def pipeline_id(self) -> int:
        """The id of the ``plain`` pipeline."""
        return self.world.pipelines["plain"].pipeline_id

    # --- what the daemon said and stored --------------------------------------------------------------------------

    def logged(self, event: str, table: str) -> list[dict[str, Any]]:
        """The log lines of one event about a table, over all runs of the plain pipeline."""
        name = f"{self.schema}.{table}"
        return [line for run in self.world.runs for line in run.logged(event) if line.get("table") == name]

    def changes(self, table: str) -> int:
        """How many Relations changed the destination's schema of this table."""
        return sum(line["changes"] for line in self.logged("schema_change_applied", table))

    def skipped(self, table: str) -> set[tuple[str, str]]:
        """(column, change) of the warnings about changes that were detected and not applied."""
        return {(line["column"], line["change"]) for line in self.logged("schema_change_skipped", table)}

    def messages(self, table: str) -> int:
        """How many schema-change messages about this table were believed and stored."""
        return sum(line["outcome"] == "stored" for line in self.logged("schema_message_received", table))

    def versions(self, table: str) -> list[list[str]]:
        """The column names of every schema version that is still stored, oldest first."""
        rows = self.source(
            "SELECT array_agg(c.column_name::text ORDER BY c.ordinal_position)"
            "  FROM etl.table_schemas s JOIN etl.table_columns c ON c.table_schema_id = s.id"
            f' WHERE s.pipeline_id = {self.pipeline_id} AND s.table_id = to_regclass(\'"{{schema}}"."{table}"\')::oid'
            " GROUP BY s.id, s.snapshot_commit_lsn, s.snapshot_message_lsn"
            " ORDER BY s.snapshot_commit_lsn, s.snapshot_message_lsn"
        )
        return [row[0] for row in rows]

    def error(self, table: str) -> str | None:
        """Why the table failed, as the log says it last."""
        lines = self.logged("table_failed", table)
        return f"{lines[-1]['error']} | {lines[-1]['hint']}" if lines else None


def _quoted(schema: str, table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))
