"""Every prerequisite by name, what was found, and the fix. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from etl.config.checks import CheckResult, CheckStatus
from etl.errors import EtlError, PublicationError
from etl.source.connection import Connection, connect_query, translated
from etl.source.publication import Publication, PublishedTable, load_publication, published_tables
from etl.source.slots import apply_slot_name, check_ours, check_usable, slot_state

_OLDEST_SERVER = 140000
_TRIGGERS = ("supabase_etl_ddl_message_trigger", "supabase_etl_ddl_drop_trigger")
_OK, _WARN, _FAIL = CheckStatus.OK, CheckStatus.WARN, CheckStatus.FAIL


def check_source(
    parameters: Mapping[str, str], *, pipeline_id: int, publication: str, may_install: bool
) -> list[CheckResult]:
    """All checks in order; the first failed connection ends them."""
    try:
        connection = connect_query(parameters, f"check:{pipeline_id}")
    except EtlError as error:
        return [CheckResult("source connection", _FAIL, error.message, error.hint)]
    with connection:
        results = [CheckResult("source connection", _OK, f"server {connection.info.server_version // 10000}")]
        checks: tuple[Callable[[], Iterator[CheckResult]], ...] = (
            lambda: _server(connection),
            lambda: _rights(connection),
            lambda: _trigger(connection, may_install=may_install),
            lambda: _publication(connection, parameters, publication),
            lambda: _slot(connection, parameters, pipeline_id),
            lambda: _wal_limits(connection),
        )
        for check in checks:
            try:
                with translated(parameters):
                    results.extend(check())
            except EtlError as error:
                results.append(CheckResult("source queries", _FAIL, error.message, error.hint))
    return results


def _setting(connection: Connection, name: str) -> str | None:
    row = connection.execute("SELECT current_setting(%s, true)", (name,)).fetchone()
    return row[0] if row else None


def _count(connection: Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def _server(connection: Connection) -> Iterator[CheckResult]:
    version = connection.info.server_version
    status = _OK if version >= _OLDEST_SERVER else _FAIL
    yield CheckResult(
        "server version", status, str(version), "" if status is _OK else "use Postgres 14 or newer"
    )
    level = _setting(connection, "effective_wal_level") or _setting(connection, "wal_level") or "?"
    yield CheckResult(
        "wal_level",
        _OK if level == "logical" else _FAIL,
        level,
        "" if level == "logical" else "ALTER SYSTEM SET wal_level = logical; then restart the server",
    )
    for name, used in (
        ("max_replication_slots", "SELECT count(*) FROM pg_replication_slots"),
        ("max_wal_senders", "SELECT count(*) FROM pg_stat_replication"),
    ):
        limit, taken = int(_setting(connection, name) or 0), _count(connection, used)
        free = limit - taken
        yield CheckResult(
            name,
            _OK if free >= 2 else (_WARN if free else _FAIL),
            f"{taken} of {limit} in use; a pipeline needs one, and a second one while it copies",
            "" if free >= 2 else f"ALTER SYSTEM SET {name} = {limit + 10}; then restart the server",
        )


def _rights(connection: Connection) -> Iterator[CheckResult]:
    row = connection.execute(
        "SELECT rolreplication OR rolsuper, current_user, has_database_privilege(current_database(), 'CREATE')"
        " FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    may_replicate, user, may_create = row or (False, "?", False)
    yield CheckResult(
        "replication right",
        _OK if may_replicate else _WARN,
        f"role {user} {'has' if may_replicate else 'does not have'} REPLICATION",
        "" if may_replicate else f'ALTER ROLE "{user}" REPLICATION (or the provider\'s replication role)',
    )
    exists = _count(connection, "SELECT count(*) FROM pg_namespace WHERE nspname = 'etl'") > 0
    yield CheckResult(
        "state schema",
        _OK if exists or may_create else _FAIL,
        "schema etl exists"
        if exists
        else "schema etl will be created"
        if may_create
        else "schema etl is missing",
        "" if exists or may_create else "run `etl init --print-sql` as an administrator",
    )


def _trigger(connection: Connection, *, may_install: bool) -> Iterator[CheckResult]:
    rows: dict[str, str] = dict(
        connection.execute(
            "SELECT evtname, evtenabled FROM pg_event_trigger WHERE evtname = ANY(%s)", (list(_TRIGGERS),)
        ).fetchall()
    )
    for name in _TRIGGERS:
        state = rows.get(name)
        if state is None:
            status = _WARN if may_install else _FAIL
            fix = "`etl init` installs it (superuser, or run `etl init --print-sql` as one)"
            yield CheckResult(name, status, "not installed: schema changes are not logged", fix)
        elif state == "D":
            yield CheckResult(
                name, _FAIL, "disabled: schema changes are not logged", f"ALTER EVENT TRIGGER {name} ENABLE"
            )
        elif state == "R":
            yield CheckResult(
                name,
                _WARN,
                "fires only under session_replication_role = replica",
                f"ALTER EVENT TRIGGER {name} ENABLE",
            )
        else:
            yield CheckResult(name, _OK, "installed and enabled")


def _publication(connection: Connection, parameters: Mapping[str, str], name: str) -> Iterator[CheckResult]:
    try:
        publication = load_publication(connection, parameters, name)
    except PublicationError as error:
        yield CheckResult("publication", _FAIL, error.message, error.hint)
        return
    tables = published_tables(connection, parameters, name)
    if not tables:
        fix = f'ALTER PUBLICATION "{name}" ADD TABLE …'
        yield CheckResult("publication", _FAIL, f"{name} has no tables", fix)
        return
    yield CheckResult("publication", _OK, f"{name} publishes {len(tables)} tables")
    yield from _publication_options(publication, tables)
    for table in tables:
        yield from _table(connection, table)


def _publication_options(publication: Publication, tables: list[PublishedTable]) -> Iterator[CheckResult]:
    missing = sorted({"insert", "update", "delete", "truncate"} - publication.operations)
    if missing:
        yield CheckResult(
            "publication operations",
            _WARN,
            f"{publication.name} does not publish {', '.join(missing)}",
            f"ALTER PUBLICATION \"{publication.name}\" SET (publish = 'insert, update, delete, truncate')",
        )
    if publication.all_tables:
        yield CheckResult(
            "publication scope",
            _WARN,
            "FOR ALL TABLES also publishes the pipeline's own state tables, which are ignored",
            "name the tables or the schemas instead, or keep the state in another database (store:)",
        )
    if not publication.via_partition_root and any(table.is_partitioned for table in tables):
        yield CheckResult(
            "publication partitions",
            _WARN,
            "partitions are published one by one",
            f'ALTER PUBLICATION "{publication.name}" SET (publish_via_partition_root = true)',
        )


def _table(connection: Connection, table: PublishedTable) -> Iterator[CheckResult]:
    row = connection.execute(
        """SELECT has_table_privilege(c.oid, 'SELECT'), c.relreplident,
                  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate),
                  ARRAY(SELECT attname::text FROM pg_attribute a
                         WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attgenerated <> '' AND NOT attisdropped),
                  c.relrowsecurity AND NOT row_security_active(c.oid) IS FALSE
             FROM pg_class c WHERE c.oid = %s""",
        (table.oid,),
    ).fetchone()
    if row is None:
        return
    readable, identity, has_key, generated, filtered = row
    name, quoted = f"table {table.qualified_name}", f'"{table.schema}"."{table.name}"'
    if not readable:
        yield CheckResult(name, _FAIL, "not readable", f"GRANT SELECT ON {quoted} TO CURRENT_USER")
    elif filtered:
        yield CheckResult(
            name,
            _FAIL,
            "row security would hide rows from the copy",
            "use a role with BYPASSRLS, or the table's owner",
        )
    elif identity == "n" or (identity == "d" and not has_key):
        yield CheckResult(
            name,
            _WARN,
            "no usable replica identity: only inserts can be replicated",
            f"add a primary key, or ALTER TABLE {quoted} REPLICA IDENTITY FULL",
        )
    elif generated:
        detail = f"generated columns are not replicated: {', '.join(generated)}"
        yield CheckResult(name, _WARN, detail, "compute them at the destination")
    else:
        yield CheckResult(name, _OK, {"d": "primary key", "f": "full rows", "i": "unique index"}[identity])


def _slot(connection: Connection, parameters: Mapping[str, str], pipeline_id: int) -> Iterator[CheckResult]:
    name = apply_slot_name(pipeline_id)
    state = slot_state(connection, parameters, name)
    if state is None:
        yield CheckResult("replication slot", _OK, f"{name} will be created")
        return
    try:
        check_ours(state, connection.info.dbname)
        check_usable(state)
    except EtlError as error:
        yield CheckResult("replication slot", _FAIL, error.message, error.hint)
        return
    retained = f"{name} retains {(state.retained_bytes or 0) >> 20} MiB of WAL"
    if state.active:
        yield CheckResult(
            "replication slot",
            _WARN,
            f"{retained}; active for PID {state.active_pid}",
            "the pipeline runs already",
        )
    else:
        yield CheckResult("replication slot", _OK, retained)


def _wal_limits(connection: Connection) -> Iterator[CheckResult]:
    limit = _setting(connection, "max_slot_wal_keep_size")
    unlimited = limit in (None, "-1")
    yield CheckResult(
        "max_slot_wal_keep_size",
        _WARN if unlimited else _OK,
        "unlimited: a stopped pipeline can fill the disk"
        if unlimited
        else f"{limit}; beyond it the slot is lost",
        "set it to what the disk can spare" if unlimited else "",
    )
    idle = _setting(connection, "idle_replication_slot_timeout")
    if idle not in (None, "0"):
        fix = "make it longer than any stop of the pipeline"
        yield CheckResult(
            "idle_replication_slot_timeout", _WARN, f"{idle}; a stopped pipeline loses its slot", fix
        )
