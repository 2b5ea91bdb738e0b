"""An open database file: statements, transactions, Arrow tables in, DuckDB's errors out as ours.

An error message of DuckDB may quote a row's value, so only the first line of those that cannot is passed on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

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


@dataclass(eq=False)
class _Link:
    """A connection, and whether it is inside a transaction."""

    connection: duckdb.DuckDBPyConnection
    in_transaction: bool = False


class Session:
    """An open database. Each thread works over a connection of its own, with its own transaction and Arrow tables."""

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
            self._root = duckdb.connect(str(settings.path))
        except duckdb.Error as error:
            raise _translated(error, settings.path) from None
        self._own = threading.local()
        self._links: WeakSet[_Link] = WeakSet()
        self._root_lock = threading.Lock()
        self._connection_settings = settings.connection_settings()
        for name, value in settings.database_settings().items():
            self.run(f"SET {name} = {literal(str(value))}")
        #: The database's own name, for names in three parts: in two parts, a schema of that name is ambiguous.
        self.catalog = str(self.rows("SELECT current_database()")[0][0])

    def close(self) -> None:
        """Close the file, with the connections of all threads; idempotent."""
        for link in (*self._links, _Link(self._root)):
            with suppress(duckdb.Error):
                link.connection.close()

    @property
    def path(self) -> Path:
        """The database file."""
        return self._path

    @property
    def in_transaction(self) -> bool:
        """True inside a `transaction` block of this thread."""
        return self._link.in_transaction

    def run(self, sql: str, parameters: Sequence[object] = (), table: str | None = None) -> int:
        """Execute one statement; returns the number of rows it changed, 0 when DuckDB tells none.

        `table` is the destination table to blame for a value that does not fit. Raises `DestinationError`.
        """
        result = self.rows(sql, parameters, table)
        return int(result[0][0]) if len(result) == 1 and isinstance(result[0][0], int) else 0

    def rows(self, sql: str, parameters: Sequence[object] = (), table: str | None = None) -> list[Row]:
        """Execute one statement and fetch all rows. Raises `DestinationError`."""
        with self._translating(table):
            return self._link.connection.execute(sql, list(parameters)).fetchall()

    def committed_rows(self, sql: str) -> list[Row]:
        """The rows as they are committed by now, which a transaction that runs already does not see."""
        with self._root_lock, self._translating():
            return self._root.execute(sql).fetchall()

    @contextmanager
    def transaction(
        self, committing: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Iterator[None]:
        """One transaction, rolled back by any exception; inside another one it is part of it.

        `committing` is entered for the COMMIT alone; what it raises rolls the transaction back.
        """
        link = self._link
        if link.in_transaction:
            yield
            return
        self.run("BEGIN TRANSACTION")
        link.in_transaction = True
        try:
            yield
            with committing():
                self.run("COMMIT")
        except BaseException:
            # a failed statement leaves the connection aborted until ROLLBACK; a failed COMMIT has rolled back already
            with suppress(duckdb.Error):
                link.connection.execute("ROLLBACK")
            raise
        finally:
            link.in_transaction = False

    @contextmanager
    def arrow(self, name: str, data: pa.Table) -> Iterator[str]:
        """Make `data` readable in SQL under the returned name, with columns ``c0``, ``c1`` and so on."""
        named = data.rename_columns([f"c{index}" for index in range(data.num_columns)])
        connection = self._link.connection
        try:
            connection.register(name, named)
            yield f"temp.main.{quote(name)}"
        finally:
            with suppress(duckdb.Error):
                connection.unregister(name)

    @property
    def _link(self) -> _Link:
        link: _Link | None = getattr(self._own, "link", None)
        return link if link is not None else self._new_link()

    def _new_link(self) -> _Link:
        with self._root_lock, self._translating():
            link = self._own.link = _Link(self._root.cursor())
            self._links.add(link)
            for name, value in self._connection_settings.items():
                link.connection.execute(f"SET {name} = {literal(value)}")
        return link

    @contextmanager
    def _translating(self, table: str | None = None) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise _translated(error, self._path, table) from None


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
