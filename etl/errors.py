"""The error tree. Every error says what happened, where, and what to do next.

The class says who is to blame and what the supervisor does about it: `retry` decides between waiting and
stopping, `exit_code` is what the process ends with when the error ends it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from etl.lsn import Lsn


class RetryPolicy(StrEnum):
    """What may be done about an error without a person."""

    TIMED = "timed_retry"
    MANUAL = "manual_retry"
    NEVER = "no_retry"


class ExitCode:
    """Process exit codes, documented in `etl --help` and the reference."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    CHECK_FAILED = 3
    UNAVAILABLE = 75
    CONFIGURATION = 78


class EtlError(Exception):
    """Base of all errors etl raises on purpose.

    `message` names the thing and the cause; `hint` the next step; `table` is ``schema.name``; `lsn` where in
    the stream. None of them ever carries a row value or a secret.
    """

    kind: ClassVar[str] = "internal"
    retry: ClassVar[RetryPolicy] = RetryPolicy.MANUAL
    exit_code: ClassVar[int] = ExitCode.UNEXPECTED

    def __init__(
        self, message: str, *, hint: str = "", table: str | None = None, lsn: Lsn | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.table = table
        self.lsn = lsn

    def __str__(self) -> str:
        where = [f"table {self.table}"] if self.table else []
        if self.lsn is not None:
            where.append(f"at {self.lsn}")
        text = f"{self.message} ({', '.join(where)})" if where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class ConfigError(EtlError):
    """The configuration is wrong; restarting does not help."""

    kind = "config"
    exit_code = ExitCode.CONFIGURATION


class HttpAddressError(EtlError):
    """The address of the HTTP server is taken, perhaps by a process that is just ending: later it may be free."""

    kind = "http_address"
    exit_code = ExitCode.UNAVAILABLE


# --- source ---------------------------------------------------------------------------------------------------


class SourceError(EtlError):
    """The source database, or what we are allowed to do there, is at fault."""

    kind = "source"


class SourceUnavailableError(SourceError):
    """No connection, or a connection that broke: waiting helps."""

    kind = "source_unavailable"
    retry = RetryPolicy.TIMED
    exit_code = ExitCode.UNAVAILABLE


class SnapshotOutdatedError(SourceUnavailableError):
    """A table changed between the snapshot of its copy and the copy: a new snapshot helps."""

    kind = "snapshot_outdated"


class SourceAuthenticationError(SourceError):
    """The server refuses the user or the password."""

    kind = "source_authentication"
    exit_code = ExitCode.CONFIGURATION


class SourcePrivilegeError(SourceError):
    """A right is missing; the hint names the GRANT."""

    kind = "source_privilege"
    exit_code = ExitCode.CONFIGURATION


class SourceSettingError(SourceError):
    """A server setting rules out logical replication (``wal_level``, slots, senders)."""

    kind = "source_setting"
    exit_code = ExitCode.CONFIGURATION


class PublicationError(SourceError):
    """The publication is missing, empty, or cannot be used."""

    kind = "publication"
    exit_code = ExitCode.CONFIGURATION


class SlotActiveError(SourceError):
    """Another process streams from our slot."""

    kind = "slot_active"
    retry = RetryPolicy.TIMED
    exit_code = ExitCode.UNAVAILABLE


class SlotLostError(SourceError):
    """The slot is gone, invalidated, or stands behind or beyond our progress: data may be missing."""

    kind = "slot_lost"


class DdlTriggerError(SourceError):
    """The event trigger is missing, disabled, outdated, or could not be installed."""

    kind = "ddl_trigger"
    exit_code = ExitCode.CONFIGURATION


class TableSourceError(SourceError):
    """One table of the source cannot be replicated as it is (identity, swap, dropped)."""

    kind = "table_source"


class BacklogOverflowError(TableSourceError):
    """More changes wait for a table than there is room for: they were given up, and the table is copied anew."""

    kind = "backlog_overflow"
    retry = RetryPolicy.TIMED


class BacklogLostError(TableSourceError):
    """The changes that waited for a table are gone with their folder: the table is copied anew."""

    kind = "backlog_lost"
    retry = RetryPolicy.TIMED


# --- stream and schema ----------------------------------------------------------------------------------------


class DecodeError(EtlError):
    """Bytes of the stream are not what the protocol promises."""

    kind = "decode"

    def __init__(
        self, message: str, *, tag: str, offset: int, lsn: Lsn | None = None, hint: str = ""
    ) -> None:
        super().__init__(
            f"{message} (message {tag!r}, byte {offset})",
            hint=hint or "report this with the server version; the slot still holds the data",
            lsn=lsn,
        )
        self.tag = tag
        self.offset = offset


class ValueConversionError(EtlError):
    """A column's text cannot be read as its type; names column and type, never the value."""

    kind = "conversion"


class SchemaError(EtlError):
    """The schema store and the stream disagree, or a version is missing."""

    kind = "schema"


class SchemaDriftError(SchemaError):
    """RELATION does not match the stored schema and cannot be healed provably."""

    kind = "schema_drift"


# --- destination ----------------------------------------------------------------------------------------------


class DestinationError(EtlError):
    """The destination failed or refuses."""

    kind = "destination"


class DestinationUnavailableError(DestinationError):
    """Not reachable, or locked by another process: waiting helps."""

    kind = "destination_unavailable"
    retry = RetryPolicy.TIMED
    exit_code = ExitCode.UNAVAILABLE


class DestinationFullError(DestinationUnavailableError):
    """No space left; nothing undurable was acknowledged, and it resumes by itself."""

    kind = "destination_full"


class DestinationVersionError(DestinationError):
    """Written by a newer version than this one can read."""

    kind = "destination_version"
    exit_code = ExitCode.CONFIGURATION


class SparkSetupError(DestinationError):
    """Java, or a jar that Spark needs, is missing, too old or damaged; the hint names the command that helps."""

    kind = "spark_setup"
    exit_code = ExitCode.CONFIGURATION


class JarDownloadError(SparkSetupError):
    """A jar could not be downloaded: no network, or a repository that does not have it."""

    kind = "jar_download"
    exit_code = ExitCode.UNAVAILABLE


class DestinationFencedError(DestinationError):
    """A newer run of the same pipeline owns the destination; this one must stop."""

    kind = "destination_fenced"
    retry = RetryPolicy.NEVER


class DestinationTableError(DestinationError):
    """One table cannot take its rows or its schema; the other tables can go on."""

    kind = "destination_table"
    retry = RetryPolicy.TIMED


class DestinationTableLostError(DestinationTableError):
    """A table that was complete is not there any more; writing on would make it look complete."""

    kind = "destination_table_lost"
    retry = RetryPolicy.MANUAL


class SchemaAmbiguousError(DestinationTableError):
    """The real table is not explained by exactly one prefix of the plan: a person must decide."""

    kind = "schema_ambiguous"
    retry = RetryPolicy.MANUAL


# --- store ----------------------------------------------------------------------------------------------------


class StoreError(EtlError):
    """The state store is inconsistent or too new."""

    kind = "store"


class StoreUnavailableError(StoreError):
    """No connection to the state store: waiting helps."""

    kind = "store_unavailable"
    retry = RetryPolicy.TIMED
    exit_code = ExitCode.UNAVAILABLE


class PipelineActiveError(StoreError):
    """Another process runs this pipeline."""

    kind = "pipeline_active"
    retry = RetryPolicy.TIMED
    exit_code = ExitCode.UNAVAILABLE


class BacklogError(StoreError):
    """The changes kept on local disk for a table are damaged, too new, or cannot be read or written."""

    kind = "backlog"


class BacklogDamagedError(BacklogError):
    """What was kept for one table cannot be read; it is copied anew."""

    kind = "backlog_damaged"


class BacklogFullError(BacklogError):
    """No space left to keep changes: they are still in the slot, and it resumes by itself."""

    kind = "backlog_full"
    retry = RetryPolicy.TIMED
    exit_code = ExitCode.UNAVAILABLE


def error_class(name: str) -> type[EtlError]:
    """The class of this name; `EtlError` itself when there is none."""
    known = [EtlError]
    for each in known:
        known += each.__subclasses__()
    return next((each for each in known if each.__name__ == name), EtlError)
