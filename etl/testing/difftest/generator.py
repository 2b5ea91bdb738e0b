"""Makes a history up while it happens: several sessions, whose transactions interleave.

One thread drives all sessions, so the order of the statements is the history. What another session's open transaction
has locked is left alone; where that was not foreseen, the lock timeout ends the statement, and its transaction with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etl.telemetry.failpoints import FAILPOINTS
from etl.testing.difftest import changes, publishing, rows
from etl.testing.difftest.catalog import Table, tables
from etl.testing.difftest.chance import Chance
from etl.testing.difftest.history import Deed, Statement, Verb
from etl.testing.difftest.ledger import noted
from etl.testing.difftest.partitions import replace_partition
from etl.testing.difftest.shapes import SHAPES
from etl.testing.difftest.stage import Stage
from etl.testing.harness import PUBLICATION

_ROWS: Sequence[tuple[int, rows.Operation]] = (
    (30, rows.insert),
    (20, rows.update),
    (4, rows.touch),
    (7, rows.move),
    (9, rows.delete),
    (4, rows.put_back),
)
_CHANGES: Sequence[tuple[int, rows.Operation]] = (
    (7, changes.add_column),
    (4, changes.drop_column),
    (4, changes.rename_column),
    (3, changes.pass_names_round),
    (4, changes.replace_column),
    (7, changes.change_default),
    (3, changes.several_at_once),
    (1, changes.change_nothing),
    (2, changes.change_nullability),
    (2, changes.change_type),
    (2, changes.change_identity),
    (2, changes.change_key),
    (1, changes.rename_table),
    (3, changes.between_rows),
    (1, rows.truncate),
)
_PUBLISHING: Sequence[tuple[int, publishing.Change]] = (
    (2, publishing.take_out_or_put_in),
    (3, publishing.list_columns),
    (2, publishing.filter_rows),
    (1, publishing.exchange_table_names),
    (1, publishing.truncate_several),
)
#: The name of a failpoint, and how often it is passed in a short run.
_OFTEN = ("ddl.", "dest.", "stream.", "schema.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a history is to be like.

    `live`: the pipeline runs meanwhile; else it is run now and then. `deeds`: how often something is done to it, in a step
    between transactions. `kills`: it is killed now and then, at one of the failpoints `points` (empty: at any).
    """

    seed: int
    transactions: int = 120
    sessions: int = 3
    tables: int = 6
    deeds: float = 0.06
    kills: bool = False
    points: tuple[str, ...] = ()
    live: bool = False
    publishing: bool = True


@dataclass(slots=True)
class _Session:
    """A session and what its open transaction has touched; oids of tables."""

    number: int
    operations: int = 0
    touched: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    savepoints: int = 0
    focus: int | None = None

    @property
    def is_open(self) -> bool:
        """In a transaction."""
        return self.operations > 0

    def close(self) -> None:
        """Its transaction has ended."""
        self.operations = self.savepoints = 0
        self.touched, self.changed, self.focus = set(), set(), None


class Generator:
    """Drives a stage through one history."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._chance = Chance(plan.seed)
        self._sessions = [_Session(number) for number in range(1, plan.sessions + 1)]
        self._transactions = 0

    def run(self) -> Iterator[int]:
        """Let the history happen; yields the number of transactions so far."""
        self._begin()
        while self._transactions < self._plan.transactions:
            session = self._chance.one(self._sessions)
            if session.is_open:
                self._go_on(session)
            elif self._chance.happens(self._plan.deeds):
                self._to_pipeline()
            elif self._plan.publishing and self._chance.happens(0.03):
                self._publish(session)
            else:
                self._do(session, "BEGIN")
                session.operations = self._chance.between(1, 8)
                self._transactions += 1
            yield self._transactions
        self._close_all()

    # --- the beginning --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for shape in self._chance.some(SHAPES, self._plan.tables):
            self._stage.perform(Statement(1, shape.statements()))
        first = tables(self._stage.session(1))
        published = ", ".join(table.sql for table in first)
        self._stage.perform(
            Statement(
                1,
                f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {published} WITH (publish_via_partition_root = true); "
                + noted("publish", *(table.sql for table in first)),
            )
        )
        for table in first:
            for statement in rows.insert(self._chance, table):
                self._stage.perform(Statement(1, statement))
        self._stage.perform(Deed(Verb.ONCE))
        if self._plan.live:
            self._stage.perform(Deed(Verb.START))

    # --- one step -------------------------------------------------------------------------------------------------

    def _go_on(self, session: _Session) -> None:
        session.operations -= 1
        if session.operations == 0:
            self._do(session, "ROLLBACK" if self._chance.happens(0.1) else "COMMIT")
            session.close()
            return
        if self._chance.happens(0.06):
            self._savepoint(session)
            return
        table = self._choose(session)
        if table is None:
            return
        others = [each for each in self._sessions if each is not session]
        alone = not any(table.oid in other.touched for other in others)
        operation = self._chance.weighted(_CHANGES if alone and self._chance.happens(0.25) else _ROWS)
        session.touched.add(table.oid)
        if operation in {change for _, change in _CHANGES}:
            session.changed.add(table.oid)
        for statement in operation(self._chance, table):
            if not self._do(session, statement):
                return

    def _choose(self, session: _Session) -> Table | None:
        """A table that no other session holds for itself; mostly the one of the step before."""
        held = set().union(*(each.changed for each in self._sessions if each is not session))
        there = [table for table in tables(self._stage.session(session.number)) if table.oid not in held]
        focus = next((table for table in there if table.oid == session.focus), None)
        if focus is not None and self._chance.happens(0.6):
            return focus
        chosen = self._chance.one(there) if there else None
        session.focus = chosen.oid if chosen else None
        return chosen

    def _savepoint(self, session: _Session) -> None:
        if session.savepoints and self._chance.happens(0.7):
            verb = "ROLLBACK TO SAVEPOINT" if self._chance.happens(0.7) else "RELEASE SAVEPOINT"
            if self._do(session, f"{verb} s{session.savepoints}") and verb.startswith("RELEASE"):
                session.savepoints -= 1
            return
        session.savepoints += 1
        self._do(session, f"SAVEPOINT s{session.savepoints}")

    def _do(self, session: _Session, statement: str) -> bool:
        """False when Postgres refused it: the transaction is over then, or back at its last savepoint."""
        if self._stage.perform(Statement(session.number, statement)):
            return True
        if session.savepoints:
            self._stage.perform(Statement(session.number, f"ROLLBACK TO SAVEPOINT s{session.savepoints}"))
        else:
            self._stage.perform(Statement(session.number, "ROLLBACK"))
            session.close()
        return False

    def _close_all(self) -> None:
        for session in self._sessions:
            if session.is_open:
                self._do(session, "ROLLBACK" if self._chance.happens(0.2) else "COMMIT")
                session.close()

    # --- the publication and the pipeline -------------------------------------------------------------------------

    def _publish(self, session: _Session) -> None:
        self._close_all()
        connection = self._stage.session(session.number)
        there = tables(connection, filters=True)
        parted = [table for table in there if table.is_partitioned]
        if parted and self._chance.happens(0.4):
            statements = replace_partition(self._chance, connection, self._chance.one(parted))
        else:
            change = self._chance.weighted(_PUBLISHING)
            statements = change(self._chance, self._chance.one(there), there)
        for statement in statements:
            self._stage.perform(Statement(session.number, statement))

    def _to_pipeline(self) -> None:
        """A bounded run, or a start or an end of the daemon; each with a failpoint now and then."""
        failpoints = self._failpoints() if self._plan.kills and self._chance.happens(0.6) else ""
        if not self._plan.live:
            self._close_all()
            self._stage.perform(Deed(Verb.ONCE, failpoints))
            return
        if self._chance.happens(0.5):
            # a copy, and a look at a row filter, wait for whoever changes the table
            self._close_all()
            self._stage.perform(Deed(Verb.WAIT))
            return
        verb = Verb.KILL if self._plan.kills and self._chance.happens(0.7) else Verb.STOP
        if verb is Verb.STOP:
            self._close_all()
        self._stage.perform(Deed(verb))
        self._stage.perform(Deed(Verb.START, failpoints))

    def _failpoints(self) -> str:
        points = self._plan.points or sorted(FAILPOINTS)
        likely = [point for point in points if point.startswith(_OFTEN)]
        point = self._chance.one(likely if likely and self._chance.happens(0.7) else points)
        return f"{point}:{self._chance.between(1, 4)}=kill"
