"""The event triggers and functions of ``sql/source``: installing, upgrading, removing, and printing them.

Theory of operation. `etl.source_migrations` records which of the numbered files were applied, with their checksums.
Everything happens in one transaction under an advisory lock, so two processes that start together install once. Only a
superuser can create an event trigger (or the role a managed service names), so what `install` would do can also be
printed for one: the printed script applies what is missing and may be run again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import psycopg
from psycopg import sql

from etl.config.sql_files import SqlFile, sql_files
from etl.errors import DdlTriggerError, SourceError, SourcePrivilegeError, SourceUnavailableError
from etl.source.connection import Connection, is_transient

#: The event triggers, in the order in which one statement fires them.
TRIGGERS = ("supabase_etl_ddl_drop_trigger", "supabase_etl_ddl_message_trigger")

#: Any constant, the same in every version of etl.
_LOCK_KEY = 0x65746C_736F7572

_EXISTS = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'etl' AND c.relname = 'source_migrations')
"""
_APPLIED = "SELECT version, checksum FROM etl.source_migrations ORDER BY version"
_RECORD = "INSERT INTO etl.source_migrations (version, name, checksum) VALUES ({}, {}, {})"
_ENABLED = "SELECT evtname, evtenabled FROM pg_event_trigger WHERE evtname = ANY (%s)"
_KEYS = "SELECT key_id, secret FROM etl.ddl_signing_key"
_FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = 'etl' AND p.proname = ANY (%s)
"""

#: What the role that runs a pipeline needs of ours.
_GRANTS = (
    # CREATE is for the tables of a state store that lives beside the triggers
    "GRANT USAGE, CREATE ON SCHEMA etl TO {}",
    "GRANT SELECT ON etl.source_migrations, etl.ddl_signing_key TO {}",
    "GRANT EXECUTE ON FUNCTION etl.describe_table_schema(oid), etl.describe_table_identity(oid) TO {}",
)
_ROLE_PLACEHOLDER = "role_of_the_pipeline"

_BY_ADMINISTRATOR = (
    "have an administrator run the output of `etl init --print-sql --role ROLE` in this database"
    " (creating an event trigger takes a superuser)"
)


@cache
def source_files() -> tuple[SqlFile, ...]:
    """Every migration this version of etl knows."""
    return tuple(sql_files("source"))


def latest_version() -> int:
    """The version that `install` brings a database to."""
    return source_files()[-1].version


def installed_version(connection: Connection) -> int | None:
    """The version in force; None when nothing is installed, or a trigger is missing or does not fire.

    Raises `SourcePrivilegeError` when the role may not look.
    """
    with _explained(connection):
        if connection.execute(_EXISTS).fetchone() != (True,):
            return None
        versions = [version for version, _ in connection.execute(_APPLIED).fetchall()]
        firing = [name for name, state in _trigger_states(connection).items() if state in {"O", "A"}]
    return max(versions) if versions and len(firing) == len(TRIGGERS) else None


def install(connection: Connection, runtime_role: str | None = None) -> list[int]:
    """Apply what is missing, create triggers that were dropped, grant `runtime_role` what it needs.

    The versions that were applied. Raises `SourcePrivilegeError` when only an administrator can do it, and
    `DdlTriggerError` when the database is newer than this version of etl, holds something else under our names, or has a
    trigger that somebody disabled.
    """
    with _explained(connection), connection.transaction():
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
        missing = _missing(connection)
        for file in missing:
            _apply(connection, file)
        connection.execute("SELECT etl.create_event_triggers()")
        for statement in _grants(runtime_role) if runtime_role else ():
            connection.execute(statement)
        _refuse_disabled(connection)
    return [file.version for file in missing]


def uninstall(connection: Connection) -> None:
    """Remove everything that `install` made, the signing keys included, and the schema when nothing else is in it.

    Raises `SourcePrivilegeError` when only an administrator can do it.
    """
    with _explained(connection), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
        for name in TRIGGERS:
            connection.execute(sql.SQL("DROP EVENT TRIGGER IF EXISTS {}").format(sql.Identifier(name)))
        for (signature,) in connection.execute(_FUNCTIONS, (_created("FUNCTION"),)).fetchall():
            connection.execute(f"DROP FUNCTION {signature}".encode())
        for kind in ("TABLE", "TYPE"):
            for name in reversed(_created(kind)):
                drop = sql.SQL("DROP {} IF EXISTS {}").format(sql.SQL(kind), sql.Identifier("etl", name))
                connection.execute(drop)
        _drop_empty_schema(connection)


def load_signing_keys(connection: Connection) -> dict[int, bytes]:
    """Key id to secret, for `etl.schema.signature.verify`.

    Raises `DdlTriggerError` when nothing is installed, `SourcePrivilegeError` when the role may not read them.
    """
    with _explained(connection):
        if connection.execute(_EXISTS).fetchone() != (True,):
            raise DdlTriggerError(
                "the event triggers that log schema changes are not installed", hint="run `etl init`"
            )
        return {key_id: bytes(secret) for key_id, secret in connection.execute(_KEYS).fetchall()}


def render_sql(role: str | None = None) -> str:
    """The script that does what `install` does, for an administrator; `role` is the one that runs the pipeline."""
    grants = "".join(f"{grant};\n" for grant in _grants(role or _ROLE_PLACEHOLDER))
    if role is None:
        grants = "".join(f"-- {line}\n" for line in grants.splitlines())
    parts = [_HEADER.format(latest=latest_version(), lock_key=_LOCK_KEY)]
    parts += [_conditional(file) for file in source_files()]
    parts.append(_FOOTER.format(grants=grants))
    return "\n".join(parts)


def _missing(connection: Connection) -> list[SqlFile]:
    applied: Mapping[int, str] = {}
    if connection.execute(_EXISTS).fetchone() == (True,):
        applied = dict(connection.execute(_APPLIED).fetchall())
    if applied and max(applied) > latest_version():
        raise DdlTriggerError(
            f"the source has version {max(applied)} of the event triggers, this version of etl knows {latest_version()}",
            hint="upgrade etl",
        )
    for file in source_files():
        if applied.get(file.version, file.checksum) != file.checksum:
            raise DdlTriggerError(
                f"migration {file.version} ({file.name}) of the source is not the file that was applied",
                hint="restore the released file; a released migration is never edited",
            )
    return [file for file in source_files() if file.version not in applied]


def _apply(connection: Connection, file: SqlFile) -> None:
    try:
        connection.execute(file.text.encode())
    except (
        psycopg.errors.DuplicateTable,
        psycopg.errors.DuplicateObject,
        psycopg.errors.DuplicateFunction,
    ) as error:
        raise DdlTriggerError(
            f"schema etl already holds something that migration {file.version} ({file.name}) creates:"
            f" {error.diag.message_primary}",
            hint="remove the other program's event trigger and functions first: two would log every change twice",
        ) from error
    connection.execute(_record(file))


def _record(file: SqlFile) -> sql.Composed:
    return sql.SQL(_RECORD).format(file.version, file.name, file.checksum)


def _grants(role: str) -> list[str]:
    return [sql.SQL(grant).format(sql.Identifier(role)).as_string(None) for grant in _GRANTS]


def _trigger_states(connection: Connection) -> dict[str, str]:
    return dict(connection.execute(_ENABLED, (list(TRIGGERS),)).fetchall())


def _refuse_disabled(connection: Connection) -> None:
    for name, state in _trigger_states(connection).items():
        if state not in {"O", "A"}:
            raise DdlTriggerError(
                f"the event trigger {name} is disabled: schema changes would be lost",
                hint=f"ALTER EVENT TRIGGER {name} ENABLE ALWAYS",
            )


def _created(kind: str) -> list[str]:
    """The names in schema etl that the files create, in order."""
    pattern = re.compile(rf"^CREATE (?:OR REPLACE |UNLOGGED )?{kind} etl\.(\w+)", re.MULTILINE)
    return list(dict.fromkeys(name for file in source_files() for name in pattern.findall(file.text)))


def _drop_empty_schema(connection: Connection) -> None:
    try:
        with connection.transaction():
            connection.execute("DROP SCHEMA IF EXISTS etl")
    except psycopg.errors.DependentObjectsStillExist:
        # the state store lives there too
        return


@contextmanager
def _explained(connection: Connection) -> Iterator[None]:
    """Turn the driver's errors into ours, with the way out."""
    database = connection.info.dbname
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourcePrivilegeError(
            f"{connection.info.user} has not the right to do this in database {database}: {error.diag.message_primary}",
            hint=_BY_ADMINISTRATOR,
        ) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DdlTriggerError(
            f"database {database} is read-only: {error.diag.message_primary}",
            hint="install the event triggers on the primary; a standby has them from there",
        ) from error
    except psycopg.Error as error:
        text = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
        if is_transient(error):
            raise SourceUnavailableError(
                f"database {database}: {text}",
                hint="is the server running and reachable? etl keeps retrying",
            ) from error
        raise SourceError(
            f"database {database}: {text}",
            hint="see the server log for details",
        ) from error


def _conditional(file: SqlFile) -> str:
    tag = f"$etl_{file.version:04d}$"
    return f"""DO $etl$
DECLARE
    recorded text;
BEGIN
    IF pg_catalog.to_regclass('etl.source_migrations') IS NOT NULL THEN
        EXECUTE 'SELECT m.checksum FROM etl.source_migrations m WHERE m.version = {file.version}' INTO recorded;
    END IF;
    IF recorded = '{file.checksum}' THEN
        RETURN;
    ELSIF recorded IS NOT NULL THEN
        RAISE EXCEPTION 'migration {file.version} of schema etl is not the one that was applied';
    END IF;
    EXECUTE {tag}
{file.text}{tag};
    {_record(file).as_string(None)};
END
$etl$;
"""  # noqa: S608 - our own files, numbers and hashes: nothing in it comes from outside


_HEADER = """-- Lets etl see schema changes of this database: event triggers, version {latest}, and what they need, in schema etl.
--
-- Run it as a superuser, or as the role that your managed service lets create event triggers, in the database that is
-- replicated, on the primary. It applies what is missing, all or nothing, and may be run again after an upgrade.
--
-- What it does to statements of yours: an ALTER TABLE (and what else can change a table's columns) of a published table
-- writes one message with the table's description into the WAL. It never makes your statement fail. One session can opt
-- out with SET supabase_etl.skip_ddl_log = 'true'; ALTER EVENT TRIGGER … DISABLE turns it off for all.

BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_catalog.pg_advisory_xact_lock({lock_key});
"""

_FOOTER = """SELECT etl.create_event_triggers();

-- The role that runs the pipeline reads the signing keys, may describe tables, and keeps its state in the same schema
-- (leave CREATE out when its state store is another database). CREATE lets it replace nothing of what is here.
{grants}
COMMIT;
"""
