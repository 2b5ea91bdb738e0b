"""Connections to the source: pinned session settings, names in `pg_stat_activity`, errors in our own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from etl.errors import (
    EtlError,
    PublicationError,
    SlotActiveError,
    SlotLostError,
    SourceAuthenticationError,
    SourceError,
    SourcePrivilegeError,
    SourceSettingError,
    SourceUnavailableError,
)
from etl.telemetry.pulse import Awaited, waiting

Connection = psycopg.Connection[tuple[Any, ...]]

#: Text output must not depend on the settings of the server, the database or the role: the decoder reads exactly
#: these forms (Postgres manual, "Locale and Formatting").
PINNED_SETTINGS: Mapping[str, str] = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    # under another default a statement after a lock would not see what the lock was waited for
    "default_transaction_isolation": "read committed",
    # a role that only reads by default may still install, and create a slot
    "default_transaction_read_only": "off",
}

_TIMEOUTS = {
    "replication": {
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
    },
    "copy": {"statement_timeout": "0", "lock_timeout": "30s", "idle_in_transaction_session_timeout": "0"},
    "query": {
        "statement_timeout": "30s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "60s",
    },
}

_CANCEL_TIMEOUT_S = 2.0
_APPLICATION_PREFIX = "supabase_etl_replicator"
_MAX_APPLICATION_NAME = 63


def connect_query(parameters: Mapping[str, str], role: str) -> Connection:
    """An autocommit connection for catalog queries. Raises a `SourceError`."""
    return _connect(parameters, role, "query")


def connect_copy(parameters: Mapping[str, str], role: str) -> Connection:
    """A connection for reading tables: no statement timeout, row security refused instead of applied."""
    connection = _connect(parameters, role, "copy")
    with translated(parameters):
        connection.execute("SET row_security = off")
    return connection


def connect_replication(parameters: Mapping[str, str], role: str) -> Connection:
    """A walsender connection (``replication=database``), simple query protocol only."""
    return _connect(parameters, role, "replication", replication="database")


def _connect(parameters: Mapping[str, str], role: str, purpose: str, **extra: str) -> Connection:
    settings = {**PINNED_SETTINGS, **_TIMEOUTS[purpose]}
    options = " ".join(f"-c {name}={_escape_option(value)}" for name, value in settings.items())
    merged = {
        "connect_timeout": "10",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        **parameters,
        **extra,
        "application_name": f"{_APPLICATION_PREFIX}_{role}"[:_MAX_APPLICATION_NAME],
        "options": f"{parameters.get('options', '')} {options}".strip(),
    }
    with translated(parameters):
        return psycopg.connect(make_conninfo(**merged), autocommit=True)


def _escape_option(value: str) -> str:
    """Escape a value for libpq's ``options`` (backslash before white space)."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


@contextmanager
def translated(parameters: Mapping[str, str]) -> Iterator[None]:
    """Turn driver errors into ours, naming the server and never the password. What happens inside may take its time."""
    try:
        with waiting(Awaited.SOURCE):
            yield
    except psycopg.Error as error:
        raise translate(error, parameters) from error


def cancel(connection: Connection) -> None:
    """Have the server end what another thread waits for on this connection; harmless when it waits for nothing."""
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)


def is_sql_ascii(connection: Connection) -> bool:
    """True when the database does not know the encoding of its texts."""
    return connection.info.parameter_status("server_encoding") == "SQL_ASCII"


@contextmanager
def raw_bytes(connection: Connection, *, restore: bool = False) -> Iterator[None]:
    """Take the texts of a SQL_ASCII database as they are.

    Under UTF8 the server refuses to send what is not UTF-8. The driver then gives texts of query results as bytes, hence
    `restore` where queries follow.
    """
    ascii_database = is_sql_ascii(connection)
    if ascii_database:
        connection.execute("SET client_encoding = 'SQL_ASCII'")
    yield
    if ascii_database and restore:
        connection.execute("SET client_encoding = 'UTF8'")


def describe(parameters: Mapping[str, str]) -> str:
    """``user@host:port/dbname``, safe to print."""
    user = parameters.get("user", "")
    host = parameters.get("host") or parameters.get("hostaddr") or "the local socket"
    port = parameters.get("port", "5432")
    return f"{user}@{host}:{port}/{parameters.get('dbname', '')}"


_BY_SQLSTATE: Mapping[str, tuple[type[EtlError], str]] = {
    "28P01": (SourceAuthenticationError, "check source.user and source.password"),
    "28000": (SourceAuthenticationError, "check the role and the server's pg_hba.conf"),
    "3D000": (SourceAuthenticationError, "check source.dbname"),
    "42501": (
        SourcePrivilegeError,
        "grant the right named in the message; `etl check` lists every grant needed",
    ),
    "55006": (
        SlotActiveError,
        "another process streams from this slot; stop it, or give this pipeline its own id",
    ),
    "53400": (
        SourceSettingError,
        "raise max_replication_slots or drop unused slots (SELECT * FROM pg_replication_slots)",
    ),
    "53300": (
        SourceUnavailableError,
        "the server has no free connection or WAL sender; raise max_wal_senders",
    ),
}

_AT_CONNECT: tuple[tuple[str, type[EtlError], str], ...] = (
    ("password authentication failed", SourceAuthenticationError, "check source.user and source.password"),
    ("no password supplied", SourceAuthenticationError, "set source.password, PGPASSWORD or a .pgpass entry"),
    ("pg_hba.conf", SourceAuthenticationError, "allow this host and role in the server's pg_hba.conf"),
    ("must be superuser or replication role", SourcePrivilegeError, "ALTER ROLE … REPLICATION"),
    ("permission denied to start WAL sender", SourcePrivilegeError, "ALTER ROLE … REPLICATION"),
    (
        "certificate verify failed",
        SourceAuthenticationError,
        "check source.sslrootcert and the server's certificate",
    ),
    (
        "does not match host name",
        SourceAuthenticationError,
        "the certificate names another host; see sslmode",
    ),
    (
        "server does not support SSL",
        SourceAuthenticationError,
        "TLS was asked for and the server offers none",
    ),
    ("does not exist", SourceAuthenticationError, "check source.user and source.dbname"),
    ("not permitted to log in", SourceAuthenticationError, "ALTER ROLE … LOGIN"),
    ("invalid connection option", SourceSettingError, "check the keys of source"),
)


def translate(error: psycopg.Error, parameters: Mapping[str, str]) -> EtlError:
    """The `EtlError` for a driver error."""
    where = describe(parameters)
    text = _one_line(str(error), parameters)
    if error.sqlstate and error.sqlstate in _BY_SQLSTATE:
        kind, hint = _BY_SQLSTATE[error.sqlstate]
        return kind(f"{where}: {text}", hint=hint)
    if is_transient(error):
        if error.sqlstate is None:
            for phrase, kind, hint in _AT_CONNECT:
                if phrase in text:
                    return kind(f"{where}: {text}", hint=hint)
        return _slot_error(text, where) or SourceUnavailableError(
            f"{where}: {text}", hint="is the server running and reachable? etl keeps retrying"
        )
    return _slot_error(text, where) or SourceError(f"{where}: {text}", hint="see the server log for details")


def is_transient(error: psycopg.Error) -> bool:
    """True when waiting helps: the connection broke, or the server cannot serve it now.

    libpq's own errors carry no SQLSTATE; where the driver made one of a result, it is of the base class.
    """
    if isinstance(error, psycopg.OperationalError):
        return True
    return (error.sqlstate is None and type(error) is psycopg.DatabaseError) or (
        error.sqlstate or ""
    ).startswith(("08", "57P"))


def _slot_error(text: str, where: str) -> EtlError | None:
    lost = "can no longer" in text or "invalidated" in text or "has been removed" in text
    if "replication slot" in text and (lost or "does not exist" in text):
        return SlotLostError(
            f"{where}: {text}",
            hint="changes since the slot was lost are missing: `etl destroy` the pipeline and replicate anew",
        )
    if "publication" in text and "does not exist" in text:
        return PublicationError(
            f"{where}: {text}",
            hint="the slot cannot pass this point in the WAL without the publication that existed then: create the"
            " publication, then `etl destroy` the pipeline and replicate anew",
        )
    if "logical decoding requires" in text:
        return SourceSettingError(
            f"{where}: {text}", hint="ALTER SYSTEM SET wal_level = logical, then restart"
        )
    return None


def _one_line(text: str, parameters: Mapping[str, str]) -> str:
    flat = " ".join(text.split())
    password = parameters.get("password")
    return flat.replace(password, "***") if password else flat


def identifier(*parts: str) -> sql.Identifier:
    """A quoted, possibly qualified identifier."""
    return sql.Identifier(*parts)
