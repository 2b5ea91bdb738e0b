"""One session of the state store: how it connects, what its errors mean, and how it survives a broken connection."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from etl.errors import StoreError, StoreUnavailableError

Connection = psycopg.Connection[tuple[Any, ...]]
Conninfo = str | Mapping[str, str]
T = TypeVar("T")

#: Noticing a dead peer within a minute, from both ends, unless the caller wants it otherwise.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

#: Whatever the server, the database or the role has set. `synchronous_commit` only where it is off: the server is told
#: that changes are durable on the strength of what is committed here.
_SETTINGS = """
SET statement_timeout = '30s';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '60s';
SET idle_session_timeout = 0;
SET tcp_keepalives_idle = 30;
SET tcp_keepalives_interval = 10;
SET tcp_keepalives_count = 3;
SET search_path = pg_catalog;
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
SET DateStyle = 'ISO, YMD';
SET array_nulls = on;
SET TimeZone = 'UTC';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""

_TABLE_EXISTS = """
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'etl' AND c.relname = %s)
"""

#: libpq gives no SQLSTATE for a refused connection. These refusals do not go away by waiting.
_REFUSALS = (
    ("password authentication failed", "check the store's user and password"),
    ("no password supplied", "set the store's password, PGPASSWORD or a .pgpass entry"),
    ("pg_hba.conf", "allow this host and role in the server's pg_hba.conf"),
    ("root certificate", "name a file with trusted certificates under sslrootcert"),
    ("certificate verify failed", "check sslrootcert and the server's certificate"),
    ("does not match host name", "the server's certificate names another host; see sslmode"),
    ("server does not support SSL", "TLS was asked for and the server offers none"),
    ("not permitted to log in", "ALTER ROLE … LOGIN"),
    ("invalid connection option", "check the keys of the store's connection"),
    ("does not exist", "check the store's user and dbname"),
)

_NOT_SET_UP = "run `etl init` or `etl replicate` once, or check that this is the database of the state store"


class _ConnectionLostError(StoreUnavailableError):
    """A connection that had been there broke: a new one may do."""


class StoreSession:
    """A connection that is opened when needed and again when it broke. Used by one thread at a time."""

    def __init__(
        self, conninfo: Conninfo, application_name: str, greet: Callable[[Connection], None] | None = None
    ) -> None:
        """`greet` looks at every new connection before it is used. Raises `StoreError` for a malformed `conninfo`."""
        given = _parameters(conninfo)
        self._conninfo = make_conninfo(
            **{**_DEFAULTS, **given, "application_name": application_name, "client_encoding": "UTF8"}
        )
        self._where = _describe(given)
        self._greet = greet
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection, a new one where there is none. Raises `StoreError`s."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def run(self, work: Callable[[Connection], T]) -> T:
        """The result of `work` in one transaction.

        `work` must do the same when done twice: it is repeated once when the connection breaks, also when that was
        at COMMIT and nobody knows the outcome. Raises `StoreError`s.
        """
        try:
            return self._attempt(work)
        except _ConnectionLostError:
            return self._attempt(work)

    def close(self) -> None:
        """Close the connection if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        connection = self.connection
        try:
            with connection.transaction():
                return work(connection)
        except psycopg.Error as error:
            if connection.closed:
                raise self._unavailable(error, _ConnectionLostError) from error
            raise self._translate(error, connection) from error
        except UnicodeEncodeError as error:
            raise StoreError(
                f"state store {self._where}: a name or an expression is not valid Unicode",
                hint="the source database has no encoding that names can be converted from (SQL_ASCII)",
            ) from error

    def _connect(self) -> Connection:
        try:
            connection: Connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            text = _flat(error)
            for phrase, hint in _REFUSALS:
                if phrase in text:
                    raise StoreError(f"state store {self._where}: {text}", hint=hint) from error
            raise self._unavailable(error) from error
        try:
            connection.execute(_SETTINGS)
            if self._greet is not None:
                self._greet(connection)
        except psycopg.Error as error:
            translated = self._translate(error, connection)
            connection.close()
            raise translated from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _unavailable(
        self, error: psycopg.Error, kind: type[StoreUnavailableError] = StoreUnavailableError
    ) -> StoreUnavailableError:
        return kind(f"state store {self._where}: {_flat(error)}", hint="is the server running and reachable?")

    def _translate(self, error: psycopg.Error, connection: Connection) -> StoreError:
        text = f"state store {self._where}: {_flat(error)}"
        match error:
            case psycopg.errors.InsufficientPrivilege():
                return StoreError(text, hint=_grants(connection))
            case psycopg.errors.UndefinedTable() | psycopg.errors.InvalidSchemaName():
                return StoreError(text, hint=_NOT_SET_UP)
            case psycopg.errors.ReadOnlySqlTransaction():
                return StoreError(text, hint="the state store must be writable: name a primary under store")
            case psycopg.errors.UntranslatableCharacter():
                return StoreError(text, hint="keep the state store in a database with encoding UTF8")
            case psycopg.OperationalError() | psycopg.InterfaceError():
                return self._unavailable(error)
        return StoreError(text, hint="see the server's log; report this if it persists")


def table_exists(connection: Connection, name: str) -> bool:
    """Whether schema etl has the table. Asks the catalog: `to_regclass` may answer from before a lock was granted."""
    return connection.execute(_TABLE_EXISTS, (name,)).fetchone() == (True,)


def _parameters(conninfo: Conninfo) -> dict[str, Any]:
    if not isinstance(conninfo, str):
        return dict(conninfo)
    with contextlib.suppress(psycopg.ProgrammingError):
        return conninfo_to_dict(conninfo)
    # the driver's message repeats parts of the string, the password perhaps
    raise StoreError(
        "the state store's connection string cannot be read",
        hint="write postgresql://user@host:5432/dbname or key=value pairs",
    )


def _describe(given: Mapping[str, Any]) -> str:
    host = given.get("host") or given.get("hostaddr") or given.get("service") or "of the environment"
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"


def _flat(error: psycopg.Error) -> str:
    """The first message alone: a DETAIL may hold values."""
    return " ".join((error.diag.message_primary or str(error)).split())


def _grants(connection: Connection) -> str:
    info = connection.info
    template = sql.SQL(
        "as an owner: GRANT CREATE ON DATABASE {database} TO {user} to create it; or, where schema etl is there,"
        " GRANT USAGE, CREATE ON SCHEMA etl TO {user};"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA etl TO {user}"
    )
    return template.format(database=sql.Identifier(info.dbname), user=sql.Identifier(info.user)).as_string()
