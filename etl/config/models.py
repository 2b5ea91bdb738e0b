"""The configuration of one pipeline. Keys are snake_case with the unit in the name; see docs/reference."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from etl.config.choices import LogFormat, LogLevel, Mode
from etl.config.connection import ConnectionConfig, SourceConfig
from etl.config.destinations import DestinationConfig
from etl.config.values import NO_BOOL, ByteSize, ConfigModel, Milliseconds, RelativePath

_MIB = 1024 * 1024


class PipelineSection(ConfigModel):
    """Which pipeline this is and what it reads."""

    id: Annotated[int, Field(ge=0, le=2**63 - 1), NO_BOOL]
    """Identity of the pipeline: it names the slot `supabase_etl_apply_<id>` and all stored state."""
    name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Name for people, logs and metrics. Default: `pipeline-<id>`."""
    publication: Annotated[str, Field(min_length=1, max_length=63)]
    """Publication at the source. Create it yourself: it decides which tables are replicated."""

    @property
    def display_name(self) -> str:
        """The name, or a stand-in made of the id."""
        return self.name or f"pipeline-{self.id}"


class TableOverride(ConfigModel):
    """What differs for one table."""

    name: Annotated[str, Field(pattern=r"^.+\..+$")]
    """The table as `schema.name`."""
    mode: Mode | None = None
    """Keep the current state (`mirror`) or append every change (`changelog`)."""


class TypesConfig(ConfigModel):
    """How values of some types are kept."""

    numeric: Literal["decimal", "text"] = "decimal"
    """`numeric` with a precision as decimal where it fits, or always as text."""
    arrays: Literal["list", "text"] = "list"
    """Arrays as lists, or as Postgres text."""


class BatchConfig(ConfigModel):
    """When a batch is given to the destination: whichever limit comes first."""

    max_bytes: ByteSize = 64 * _MIB
    """Size of a batch, as a number of bytes or with a unit (`64MiB`)."""
    max_fill_ms: Milliseconds | None = None
    """How long the oldest change of a batch may wait, in milliseconds. It waits that long while the stream is behind, and else
    seven times as long as the last write took, if that is less. Default: what suits the destination, 1000 for duckdb and 5000
    for delta, where every batch is a commit of each table in it."""


class HandoffConfig(ConfigModel):
    """The bounded queue between the reader of the stream and the writer."""

    max_bytes: ByteSize = 64 * _MIB
    """When this much waits, reading stops; the server is still answered."""


class TableSyncConfig(ConfigModel):
    """How the rows that are there already are copied, beside the stream."""

    connections: Annotated[int, Field(ge=1, le=64), NO_BOOL] = 4
    """How many connections read at once, of all tables together."""
    connections_per_table: Annotated[int, Field(ge=1, le=64), NO_BOOL] = 4
    """How many of them one table may take."""
    range_bytes: ByteSize = 32 * _MIB
    """A table is read in ranges of about this size: so much is read again when a connection breaks."""
    read_by: Literal["daemon", "executors"] = "daemon"
    """Who reads the rows: etl itself, or for `delta` the executors of Spark, which then must reach the source and have the
    Python environment of etl. A large table is then copied as fast as the cluster and the source can."""
    max_retained_wal: ByteSize = 16 * 1024 * _MIB
    """Copying pauses while the slot holds back more WAL than this, so that the stream catches up."""


class BacklogConfig(ConfigModel):
    """Where the changes of tables wait that cannot be applied now: they are copied, have failed, or are paused."""

    path: RelativePath | None = None
    """A folder that outlives the process; what is lost with it is copied anew. Relative to the configuration file. Default:
    a folder of the pipeline's own below `$XDG_STATE_HOME/etl`, or `~/.local/state/etl`."""
    max_bytes: ByteSize = 10 * 1024 * _MIB
    """How much may wait for one table. Beyond it the table is copied anew."""


class RetryConfig(ConfigModel):
    """How often and how patiently a failure that may pass by itself is tried again."""

    initial_delay_ms: Milliseconds = 500
    """Delay before the second attempt; it doubles each time."""
    max_delay_ms: Milliseconds = 30_000
    """The longest delay."""
    max_attempts: Annotated[int, Field(ge=1), NO_BOOL] | None = None
    """Give up after this many attempts in a row. Default: never."""

    @model_validator(mode="after")
    def _delays_in_order(self) -> Self:
        if self.initial_delay_ms > self.max_delay_ms:
            raise PydanticCustomError("delays", "has an initial_delay_ms above max_delay_ms")
        return self


class HttpConfig(ConfigModel):
    """A server that only answers: health, metrics, status and a status page. `http: {}` is enough to have it."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen at. It asks nobody who they are: let only those reach it who may see names of tables and columns."""
    port: Annotated[int, Field(ge=0, le=65535), NO_BOOL] = 8080
    """The port; 0 takes any that is free, and the log tells which."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which it is asked for besides its own, such as that of a proxy. Only checked at a loopback address, where it
    keeps pages of the web from reading it through a visitor's browser."""


class LogConfig(ConfigModel):
    """What is logged, and how."""

    level: LogLevel = "info"
    """The least important level that is logged."""
    format: LogFormat = "auto"
    """`auto` is `console` on a terminal and `json` otherwise."""


class PipelineConfig(ConfigModel):
    """One pipeline: one publication of one Postgres into one destination."""

    pipeline: PipelineSection
    """Which pipeline this is and what it reads."""
    source: SourceConfig = SourceConfig()
    """The Postgres that is replicated."""
    store: ConnectionConfig | None = None
    """The Postgres that keeps the pipeline's state. Default: the source (a standby cannot)."""
    destination: DestinationConfig
    """Where the rows go."""
    tables: tuple[TableOverride, ...] = ()
    """What differs per table. Which tables are replicated is the publication's to say."""
    mode: Mode = "mirror"
    """Mode of tables without their own: current state (`mirror`) or every change (`changelog`)."""
    types: TypesConfig = TypesConfig()
    """How values of some types are kept."""
    batch: BatchConfig = BatchConfig()
    """When a batch is given to the destination."""
    handoff: HandoffConfig = HandoffConfig()
    """The bounded queue between the reader of the stream and the writer."""
    table_sync: TableSyncConfig = TableSyncConfig()
    """How the rows that are there already are copied, beside the stream."""
    backlog: BacklogConfig = BacklogConfig()
    """Where the changes of tables wait that cannot be applied now."""
    publication_check_ms: Annotated[int, Field(ge=10), NO_BOOL] = 2000
    """How often to look who is published, and what `etl tables` asked for, in milliseconds."""
    retry: RetryConfig = RetryConfig()
    """How failures that may pass by themselves are tried again."""
    shutdown_timeout_s: Annotated[int, Field(ge=1), NO_BOOL] = 10
    """How long a stop may take to finish the batch in hand, in seconds."""
    invalidated_slot_behavior: Literal["error", "recreate"] = "error"
    """What to do when the slot is lost, and changes with it: stop with an error, or make a new one and copy every table
    anew, beside what the destination has."""
    http: HttpConfig | None = None
    """A server for health, metrics, status and a status page. Default: none."""
    log: LogConfig = LogConfig()
    """What is logged, and how."""

    @model_validator(mode="after")
    def _executors_are_there(self) -> Self:
        if self.table_sync.read_by == "executors" and not self.destination.has_executors:
            raise PydanticCustomError(
                "executors",
                "has table_sync.read_by: executors, which only a delta destination has, and not by spark.remote",
            )
        return self

    @field_validator("tables")
    @classmethod
    def _each_table_once(cls, tables: tuple[TableOverride, ...]) -> tuple[TableOverride, ...]:
        names = [table.name for table in tables]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PydanticCustomError("table_twice", "names {names} twice", {"names": ", ".join(twice)})
        return tables

    @property
    def max_fill_s(self) -> float:
        """How long the oldest change of a batch may wait, in seconds."""
        given = self.batch.max_fill_ms
        return (self.destination.default_max_fill_ms if given is None else given) / 1000

    @property
    def backlog_path(self) -> Path:
        """The folder of the pipeline's backlogs."""
        if self.backlog.path is not None:
            return self.backlog.path
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        # two pipelines may have one id in two stores
        store = zlib.crc32(self.state_connection.describe().encode())
        return Path(state).expanduser() / "etl" / f"{self.pipeline.id}-{store:08x}"

    @property
    def state_connection(self) -> ConnectionConfig:
        """Where the pipeline's state is kept: `store`, or else the source."""
        return self.store or self.source

    def mode_of(self, table: str) -> Mode:
        """The mode of the table ``schema.name``."""
        return next((t.mode for t in self.tables if t.name == table and t.mode), self.mode)
