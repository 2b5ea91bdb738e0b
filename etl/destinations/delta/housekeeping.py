"""What belongs to no table: who owns a pipeline's tables here, which table is whose, and exact texts.

Ownership and names are table properties of one empty table, ``_etl.control``: reading them starts no Spark job, so they
can be looked at before and after every write. Exact texts are the rows of ``_etl.unrepresentable``.

Every opening of the destination is a *run* with a number of its own. Commits to tables carry it in their transaction
version, so that a commit of an earlier run which is still under way is refused by Delta itself once the newer run has
claimed the table.
"""

# ruff: noqa: S608 -- names go through `quote`, texts through `literal`
from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from etl.destinations.base import DestinationTable, TableMode
from etl.destinations.delta.dialect import literal, same_name, type_of
from etl.destinations.delta.places import Places
from etl.destinations.delta.session import Session
from etl.destinations.delta.stamp import Stamp
from etl.destinations.naming import split_name
from etl.errors import DestinationFencedError, DestinationVersionError
from etl.lsn import ORDINAL_RULE

FORMAT_VERSION: Final = 1

_VERSIONS: Final = {"etl.format": FORMAT_VERSION, "etl.ordinal_rule": ORDINAL_RULE}
_PROPERTIES: Final = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
_UNREPRESENTABLE: Final = pa.schema(
    {
        "pipeline_id": pa.int64(),
        "table_oid": pa.int64(),
        "column_attnum": pa.int16(),
        "commit_lsn": pa.int64(),
        "ordinal": pa.int64(),
        "value": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may write: the run number `run` of epoch `epoch`."""

    epoch: int
    run: int

    def __str__(self) -> str:
        return f"{self.epoch}/{self.run}"


@dataclass(frozen=True, slots=True)
class Registered:
    """A table that a pipeline has here: its name, its source's for people, and how it is kept."""

    pipeline_id: int
    oid: int
    name: str
    source: str
    mode: TableMode


class Housekeeping:
    """One pipeline's part of ``_etl``. Thread-safe."""

    def __init__(self, session: Session, places: Places, pipeline_id: int, place: str) -> None:
        """`session` is nobody else's."""
        self._session = session
        self._places = places
        self._pipeline_id = pipeline_id
        self._place = place
        self._control = places.housekeeping("control").sql
        self._texts = places.housekeeping("unrepresentable").sql
        self._owner = Owner(0, 0)
        self._committing = threading.Lock()

    @property
    def owner(self) -> Owner:
        """Who we are since `take_ownership`."""
        return self._owner

    def take_ownership(self, epoch: int) -> Owner:
        """Create what is missing and store our epoch and a new run number.

        Raises `DestinationVersionError` and `DestinationFencedError`.
        """
        self._create()
        properties = self._properties()
        self._check_versions(properties)
        stored = _owner(properties.get(self._owner_key))
        if stored is not None and stored.epoch > epoch:
            raise self._fenced(stored, Owner(epoch, stored.run + 1))
        self._owner = Owner(epoch, stored.run + 1 if stored is not None else 1)
        self._set({self._owner_key: str(self._owner)})
        return self._owner

    def fence(self) -> None:
        """Raise `DestinationFencedError` when another run owns the pipeline's tables by now."""
        stored = _owner(self._properties().get(self._owner_key))
        if stored != self._owner:
            raise self._fenced(stored, self._owner)

    # --- whose table is whose -----------------------------------------------------------------------------------

    def tables(self) -> list[Registered]:
        """This pipeline's tables."""
        return [table for table in self._registered() if table.pipeline_id == self._pipeline_id]

    def other_owner(self, table: DestinationTable) -> Registered | None:
        """The source table, not `table`'s own, that already has its name here; None when it is free."""
        wanted = _folded(table.name)
        for other in self._registered():
            is_own = (other.pipeline_id, other.oid) == (self._pipeline_id, table.oid)
            if not is_own and _folded(other.name) == wanted:
                return other
        return None

    def registered(self, table: DestinationTable) -> Registered | None:
        """The table that this source table has here, or None when it has none."""
        return next((known for known in self.tables() if known.oid == table.oid), None)

    def register(self, table: DestinationTable, source_name: str) -> None:
        """Record the name of a table that is about to be created."""
        said = json.dumps({"name": table.name, "source": source_name, "mode": table.mode.value})
        self._set({self._table_key(table.oid): said})

    def forget(self, table: DestinationTable) -> None:
        """Remove everything stored about a table."""
        self._commit(
            f"ALTER TABLE {self._control} UNSET TBLPROPERTIES IF EXISTS ({literal(self._table_key(table.oid))})",
            self._stamp(),
        )
        self.drop_exact(table.oid)

    # --- upkeep -------------------------------------------------------------------------------------------------

    def last_vacuum(self) -> float | None:
        """When this pipeline's tables were last vacuumed, in seconds since 1970; None when never."""
        stored = self._properties().get(self._vacuum_key)
        return float(stored) if stored is not None else None

    def set_last_vacuum(self, when: float) -> None:
        """Record that the tables are being vacuumed."""
        self._set({self._vacuum_key: str(int(when))})

    # --- exact texts --------------------------------------------------------------------------------------------

    def keep_exact(self, oid: int, values: Iterable[tuple[int, int, int, str]]) -> None:
        """Store exact texts: ``(attnum, commit_lsn, ordinal, text)`` each. A replay stores them once more."""
        rows = [(self._pipeline_id, oid, *value) for value in values]
        if not rows:
            return
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), _UNREPRESENTABLE, strict=True)
        ]
        names = ", ".join(_UNREPRESENTABLE.names)
        with self._session.staged(pa.table(columns, schema=_UNREPRESENTABLE)) as view:
            self._commit(f"INSERT INTO {self._texts} ({names}) SELECT {names} FROM {view}", self._stamp())

    def drop_exact(self, oid: int) -> None:
        """Remove the exact texts of a table, or of a copy under way, where there are any."""
        if self._has_exact(oid):
            self._commit(f"DELETE FROM {self._texts} WHERE {self._of(oid)}", self._stamp())

    def take_over_exact(self, oid: int) -> None:
        """The exact texts of a copy under way are those of its table from now on."""
        if self._has_exact(copied(oid)):
            self._commit(
                f"UPDATE {self._texts} SET table_oid = {oid:d} WHERE {self._of(copied(oid))}", self._stamp()
            )

    def _has_exact(self, oid: int) -> bool:
        return bool(self._session.rows(f"SELECT 1 FROM {self._texts} WHERE {self._of(oid)} LIMIT 1"))

    def _of(self, oid: int) -> str:
        return f"pipeline_id = {self._pipeline_id:d} AND table_oid = {oid:d}"

    # --- details ------------------------------------------------------------------------------------------------

    @property
    def _owner_key(self) -> str:
        return f"etl.owner.{self._pipeline_id:d}"

    @property
    def _vacuum_key(self) -> str:
        return f"etl.vacuum.{self._pipeline_id:d}"

    def _table_key(self, oid: int) -> str:
        return f"etl.table.{self._pipeline_id:d}.{oid:d}"

    def _create(self) -> None:
        if self._session.schema(self._control) is not None and self._session.schema(self._texts) is not None:
            return
        namespace = self._places.housekeeping_namespace()
        if namespace is not None:
            self._session.rows(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        columns = ", ".join(f"{field.name} {type_of(field.type)}" for field in _UNREPRESENTABLE)
        stamp = self._stamp()
        self._commit(f"CREATE TABLE IF NOT EXISTS {self._texts} ({columns}) USING delta {_PROPERTIES}", stamp)
        self._commit(
            f"CREATE TABLE IF NOT EXISTS {self._control} (nothing string) USING delta {_PROPERTIES}", stamp
        )
        self._set({name: str(version) for name, version in _VERSIONS.items()})

    def _check_versions(self, properties: Mapping[str, str]) -> None:
        for name, known in _VERSIONS.items():
            stored = properties.get(name, "0")
            if not stored.isdigit() or int(stored) > known:
                what = name.removeprefix("etl.").replace("_", " ")
                raise DestinationVersionError(
                    f"{self._place} was written with {what} {stored}; this version knows {known}",
                    hint="upgrade etl, or name another place",
                )

    def _registered(self) -> list[Registered]:
        found = []
        for key, value in self._properties().items():
            if key.startswith("etl.table."):
                pipeline_id, _, oid = key.removeprefix("etl.table.").partition(".")
                said = json.loads(value)
                found.append(
                    Registered(
                        int(pipeline_id), int(oid), said["name"], said["source"], TableMode(said["mode"])
                    )
                )
        return found

    def _properties(self) -> dict[str, str]:
        return dict(self._session.rows(f"SHOW TBLPROPERTIES {self._control}"))

    def _set(self, properties: Mapping[str, str]) -> None:
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        self._commit(f"ALTER TABLE {self._control} SET TBLPROPERTIES ({pairs})", self._stamp())

    def _commit(self, sql: str, stamp: Stamp) -> None:
        # several threads write, each in a session of its own, and share this one
        with self._committing:
            self._session.commit(sql, stamp)

    def _stamp(self) -> Stamp:
        return Stamp(self._pipeline_id, 0, self._owner.epoch, self._owner.run)

    def _fenced(self, stored: Owner | None, ours: Owner) -> DestinationFencedError:
        return DestinationFencedError(
            f"pipeline {self._pipeline_id} in {self._place} belongs to run {stored}, this is run {ours}",
            hint="a newer process of this pipeline took over; stop this one",
        )


def copied(oid: int) -> int:
    """What exact texts say for the oid of their table while they belong to a copy that is under way beside it."""
    return -oid


def _owner(text: str | None) -> Owner | None:
    if text is None:
        return None
    epoch, _, run = text.partition("/")
    return Owner(int(epoch), int(run))


def _folded(name: str) -> tuple[str, ...]:
    return tuple(map(same_name, split_name(name)))
