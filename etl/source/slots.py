"""Replication slots: names, creation with a snapshot, state, removal (Postgres manual, "Replication Slots")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import errors, sql

from etl.errors import SlotActiveError, SlotLostError, SnapshotOutdatedError, SourceSettingError
from etl.lsn import Lsn
from etl.source.connection import Connection, translated

PLUGIN = "pgoutput"
_FAILOVER_SINCE = 170000
_TABLE_SYNC_SLOT = "supabase_etl_table_sync"


def apply_slot_name(pipeline_id: int) -> str:
    """The slot that the pipeline streams from."""
    return f"supabase_etl_apply_{pipeline_id}"


def table_sync_slot_name(pipeline_id: int, oid: int) -> str:
    """The temporary slot whose snapshot a round of copies reads; `oid` is that of its first table."""
    return f"{_TABLE_SYNC_SLOT}_{pipeline_id}_{oid}"


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A new slot: changes that commit at or above `consistent_point` are streamed, the others are in `snapshot`."""

    name: str
    consistent_point: Lsn
    snapshot: str


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of ``pg_replication_slots`` as far as we read it; `retained_bytes` is the WAL it holds back."""

    name: str
    plugin: str
    database: str
    active: bool
    active_pid: int | None
    restart_lsn: Lsn | None
    confirmed_flush_lsn: Lsn | None
    wal_status: str | None
    retained_bytes: int | None
    lag_bytes: int | None


def current_lsn(connection: Connection, parameters: Mapping[str, str]) -> Lsn:
    """The end of the WAL that a slot can have decoded."""
    with translated(parameters):
        row = connection.execute(
            "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text"
        ).fetchone()
    return Lsn.parse(row[0]) if row else Lsn(0)


def create_slot(
    replication: Connection,
    parameters: Mapping[str, str],
    name: str,
    *,
    temporary: bool = False,
    failover: bool = False,
) -> CreatedSlot:
    """Create a pgoutput slot and export its snapshot. `failover`: keep it on standbys too (Postgres 17).

    The snapshot lives until the next command on `replication`, so import it before using that connection again.
    """
    if failover and replication.info.server_version < _FAILOVER_SINCE:
        raise SourceSettingError(
            "source.failover_slot needs Postgres 17 or newer", hint="upgrade the server, or turn it off"
        )
    options = "(SNAPSHOT 'export', FAILOVER true)" if failover else "EXPORT_SNAPSHOT"
    command = sql.SQL("CREATE_REPLICATION_SLOT {}{} LOGICAL {} {}").format(
        sql.Identifier(name),
        sql.SQL(" TEMPORARY" if temporary else ""),
        sql.Identifier(PLUGIN),
        sql.SQL(options),
    )
    with translated(parameters):
        try:
            row = replication.execute(command).fetchone()
        except errors.DuplicateObject as error:
            raise SlotActiveError(
                f"there is a slot {name} already: the connection that made it is still there",
                hint="it goes with that connection; see pg_stat_activity for what that waits for",
            ) from error
    if row is None:
        raise SlotLostError(f"creating slot {name} returned nothing", hint="see the server log")
    return CreatedSlot(str(row[0]), Lsn.parse(str(row[1])), str(row[2]))


def export_snapshot(holder: Connection, parameters: Mapping[str, str]) -> str:
    """Make the snapshot of `holder`'s transaction importable for as long as that transaction lives."""
    with translated(parameters):
        row = holder.execute("SELECT pg_export_snapshot()").fetchone()
    if row is None:
        raise SnapshotOutdatedError("the server exported no snapshot", hint="see the server log")
    return str(row[0])


def retained_wal(connection: Connection, parameters: Mapping[str, str], pipeline_id: int) -> int:
    """Bytes of WAL that the pipeline's slot holds back; 0 without a slot."""
    state = slot_state(connection, parameters, apply_slot_name(pipeline_id))
    return 0 if state is None else state.retained_bytes or 0


def slot_state(connection: Connection, parameters: Mapping[str, str], name: str) -> SlotState | None:
    """The slot as the server sees it, or None when there is none."""
    query = """
        SELECT slot_name, plugin, database, active, active_pid, restart_lsn::text, confirmed_flush_lsn::text, wal_status,
               pg_wal_lsn_diff(position.lsn, restart_lsn)::bigint,
               pg_wal_lsn_diff(position.lsn, confirmed_flush_lsn)::bigint
          FROM pg_replication_slots,
               LATERAL (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                                    ELSE pg_current_wal_lsn() END AS lsn) AS position
         WHERE slot_name = %s"""
    with translated(parameters):
        row = connection.execute(query, (name,)).fetchone()
    if row is None:
        return None
    return SlotState(
        name=row[0],
        plugin=row[1],
        database=row[2],
        active=row[3],
        active_pid=row[4],
        restart_lsn=_lsn(row[5]),
        confirmed_flush_lsn=_lsn(row[6]),
        wal_status=row[7],
        retained_bytes=row[8],
        lag_bytes=row[9],
    )


def check_ours(state: SlotState, database: str) -> None:
    """Refuse somebody else's slot. Raises `SourceSettingError`."""
    if state.plugin != PLUGIN or state.database != database:
        raise SourceSettingError(
            f"slot {state.name} is not ours: plugin {state.plugin}, database {state.database}",
            hint="choose another pipeline.id, or drop that slot",
        )


def check_usable(state: SlotState) -> None:
    """Refuse a slot that cannot continue our stream. Raises `SlotLostError`."""
    if state.wal_status == "lost" or state.restart_lsn is None:
        raise SlotLostError(
            f"slot {state.name} was invalidated by the server (wal_status {state.wal_status})",
            hint="raise max_slot_wal_keep_size; then `etl destroy` the pipeline and replicate anew, or set"
            " invalidated_slot_behavior: recreate",
        )


def orphaned_slots(connection: Connection, parameters: Mapping[str, str], pipeline_id: int) -> list[str]:
    """Slots of copies of this pipeline that nobody uses: they hold back WAL for ever."""
    with translated(parameters):
        rows = connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE NOT active AND slot_name ~ %s",
            (f"^{_TABLE_SYNC_SLOT}_{pipeline_id}_[0-9]+$",),
        ).fetchall()
    return [str(row[0]) for row in rows]


def drop_slot(connection: Connection, parameters: Mapping[str, str], name: str) -> bool:
    """Drop the slot if it is there; True when it was. Raises `SlotActiveError` while it is in use."""
    with translated(parameters):
        if slot_state(connection, parameters, name) is None:
            return False
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    return True


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)
