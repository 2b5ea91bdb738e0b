"""Creating and upgrading the state store: numbered SQL files, applied once, all in one transaction.

Theory of operation. `etl.store_migrations` records which files were applied, with their checksums. A store that is up
to date is only read, so that a role without the right to create anything can run a pipeline. Otherwise an advisory lock
lets one process at a time apply what is missing; the others wait for it and then find nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import psycopg

from etl.config.sql_files import SqlFile, sql_files
from etl.errors import StoreError
from etl.store.connection import Connection, table_exists

#: Any constant, the same in every version of etl.
_LOCK_KEY = 0x65746C_73746F7265

_APPLIED = "SELECT version, checksum FROM etl.store_migrations ORDER BY version"
_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'etl')"
_CREATE_TABLE = """
CREATE TABLE etl.store_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_RECORD = "INSERT INTO etl.store_migrations (version, name, checksum) VALUES (%s, %s, %s)"


@cache
def store_files() -> tuple[SqlFile, ...]:
    """Every migration this version of etl knows."""
    return tuple(sql_files("store"))


def migrate(connection: Connection, known: Sequence[SqlFile] | None = None) -> list[int]:
    """Apply what is missing inside the caller's transaction; the versions that were applied.

    Raises `StoreError` when the store is newer than this version of etl, when a file was changed after it had been
    applied, or when the database refuses.
    """
    known = store_files() if known is None else known
    if not _missing(connection, known):
        return []
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
    missing = _missing(connection, known)
    if missing and len(missing) == len(known):
        _prepare(connection)
    # building an index takes as long as it takes; waiting for a lock stays bounded
    connection.execute("SET LOCAL statement_timeout = 0")
    for file in missing:
        _apply(connection, file)
    return [file.version for file in missing]


def refuse_newer(connection: Connection) -> None:
    """Raise `StoreError` when the store was written by a version of etl that knows more files than this one."""
    _check(_applied(connection), store_files())


def _missing(connection: Connection, known: Sequence[SqlFile]) -> list[SqlFile]:
    applied = _applied(connection)
    _check(applied, known)
    return [file for file in known if file.version not in applied]


def _applied(connection: Connection) -> dict[int, str]:
    if not table_exists(connection, "store_migrations"):
        return {}
    return dict(connection.execute(_APPLIED).fetchall())


def _check(applied: Mapping[int, str], known: Sequence[SqlFile]) -> None:
    newest = max((file.version for file in known), default=0)
    if applied and max(applied) > newest:
        raise StoreError(
            f"the state store has version {max(applied)}, this version of etl knows {newest}",
            hint="upgrade etl",
        )
    for file in known:
        if applied.get(file.version, file.checksum) != file.checksum:
            raise StoreError(
                f"migration {file.version} ({file.name}) of the state store is not the file that was applied",
                hint="restore the released file; a released migration is never edited",
            )


def _prepare(connection: Connection) -> None:
    # CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where there is nothing to do
    if connection.execute(_HAS_SCHEMA).fetchone() != (True,):
        connection.execute("CREATE SCHEMA etl")
    connection.execute(_CREATE_TABLE)


def _apply(connection: Connection, file: SqlFile) -> None:
    try:
        connection.execute(file.text)
    except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject) as error:
        raise StoreError(
            f"schema etl already holds something that migration {file.version} ({file.name}) creates:"
            f" {error.diag.message_primary}",
            hint="another program keeps its state there: name another database under store",
        ) from error
    connection.execute(_RECORD, (file.version, file.name, file.checksum))
