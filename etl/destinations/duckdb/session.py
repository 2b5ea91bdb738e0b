"""The one connection to a database file: statements, transactions, Arrow tables in, DuckDB's errors out as ours.

An error message of DuckDB may quote a row's value, so only the first line of those that cannot is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.dialect import literal, quote
from etl.errors import (
    DestinationError,
    DestinationFullError,
    DestinationTableError,
    DestinationUnavailableError,
    DestinationVersionError,
)

Row = tuple[Any, ...]

#: Errors about a value that a column cannot take. Their text quotes the value.
_VALUE_ERRORS: Final = (
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.ConstraintException,
    duckdb.InvalidInputException,
    duckdb.TypeMismatchException,
)
_FULL: Final = ("No space left on device", "File too large", "Disk quota exceeded", "not enough disk space")
#: What waiting and opening again may help: error classes, what happened, the hint.
_UNAVAILABLE: Final = (
    (
        (duckdb.FatalException, duckdb.InternalException, duckdb.ConnectionException),
        "DuckDB gave up",
        "the database is opened again; if this comes back, restore the file or copy the tables again",
    ),
    (
        (duckdb.TransactionException,),
        "a transaction did not come through",
        "another connection writes to the same rows; the events are written again",
    ),
    (
        (duckdb.OutOfMemoryException,),
        "DuckDB ran out of memory",
        "raise memory_limit, or make batches smaller",
    ),
)


class Session:
    """An open database. Not thread-safe."""

    def __init__(self, settings: DuckDBSettings) -> None:
        """Raises `DestinationUnavailableError` when locked, `DestinationVersionError` when written by a newer DuckDB."""
        self._path = settings.path
        try:
            settings.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DestinationError(
                f"the folder of {settings.path} cannot be created: {error.strerror}",
                hint="choose another path",
            ) from error
        try:
            self._connection = duckdb.connect(str(settings.path))
        except duckdb.Error as error:
            raise _translated(error, settings.path) from None
        self._in_transaction = False
        for name, value in settings.session_settings().items():
            self.run(f"SET {name} = {literal(str(value))}")
        #: The database's own name, for names in three parts: in two parts, a schema of that name is ambiguous.
        self.catalog = str(self.rows("SELECT current_database()")[0][0])

    def close(self) -> None:
        """Close the file; idempotent."""
        with suppress(duckdb.Error):
            self._connection.close()

    @property
    def path(self) -> Path:
        """The database file."""
        return self._path

    @property
    def in_transaction(self) -> bool:
        """True inside a `transaction` block."""
        return self._in_transaction

    def run(self, sql: str, parameters: Sequence[object] = (), table: str | None = None) -> int:
        """Execute one statement; returns the number of rows it changed, 0 when DuckDB tells none.

        `table` is the destination table to blame for a value that does not fit. Raises `DestinationError`.
        """
        result = self.rows(sql, parameters, table)
        return int(result[0][0]) if len(result) == 1 and isinstance(result[0][0], int) else 0

    def rows(self, sql: str, parameters: Sequence[object] = (), table: str | None = None) -> list[Row]:
        """Execute one statement and fetch all rows. Raises `DestinationError`."""
        try:
            return self._connection.execute(sql, list(parameters)).fetchall()
        except duckdb.Error as error:
            raise _translated(error, self._path, table) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction, rolled back by any exception; inside another one it is part of it."""
        if self._in_transaction:
            yield
            return
        self.run("BEGIN TRANSACTION")
        self._in_transaction = True
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # a failed statement leaves the connection aborted until ROLLBACK; a failed COMMIT has rolled back already
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._in_transaction = False

    @contextmanager
    def arrow(self, name: str, data: pa.Table) -> Iterator[str]:
        """Make `data` readable in SQL under the returned name, with columns ``c0``, ``c1`` and so on."""
        named = data.rename_columns([f"c{index}" for index in range(data.num_columns)])
        try:
            self._connection.register(name, named)
            yield f"temp.main.{quote(name)}"
        finally:
            with suppress(duckdb.Error):
                self._connection.unregister(name)


def _translated(error: duckdb.Error, path: Path, table: str | None = None) -> DestinationError:
    text = str(error).partition("\n")[0]
    if any(sign in str(error) for sign in _FULL):
        return DestinationFullError(
            f"no space left to write {path}",
            hint="free some space: nothing undurable was acknowledged, and the pipeline goes on by itself",
        )
    if isinstance(error, _VALUE_ERRORS):
        return _value_error(error, table)
    if isinstance(error, duckdb.IOException):
        return _io_error(text, path)
    for kinds, message, hint in _UNAVAILABLE:
        if isinstance(error, kinds):
            return DestinationUnavailableError(f"{message} on {path}: {text}", hint=hint)
    if table is not None:
        return DestinationTableError(
            f"DuckDB refuses: {text}", hint="see the table's definition", table=table
        )
    return DestinationError(
        f"DuckDB refuses on {path}: {text}", hint="report this with the schema change before it"
    )


def _value_error(error: duckdb.Error, table: str | None) -> DestinationError:
    message = f"a value does not fit the destination ({type(error).__name__})"
    hint = "the source column's type may have changed; copy the table again to take the new type"
    if table is None:
        return DestinationError(message, hint=hint)
    return DestinationTableError(message, hint=hint, table=table)


def _io_error(text: str, path: Path) -> DestinationError:
    if "Could not set lock" in text:
        return DestinationUnavailableError(
            f"{path} is in use: {text}", hint="a DuckDB file has one process; close the other one"
        )
    if "not a valid DuckDB database" in text:
        return DestinationError(
            f"{path} is not a DuckDB database", hint="name another path, or move the file away"
        )
    if "version number" in text or "newer version of DuckDB" in text:
        return DestinationVersionError(
            f"{path} was written by another version of DuckDB: {text}",
            hint="upgrade etl, or name another path",
        )
    return DestinationError(
        f"cannot use {path}: {text}", hint="check the path, its directory and their permissions"
    )
