"""Where a history happens: a source database, its sessions, and a pipeline; made up now, or once more."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from etl.testing.daemon import Daemon, Run
from etl.testing.difftest import kinds, ledger
from etl.testing.difftest.catalog import Connection, Table, tables
from etl.testing.difftest.history import Deed, Entry, History, Statement, Verb
from etl.testing.difftest.kinds import KEYS, KINDS
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database
from etl.testing.warm import WarmEtl

_LOCK_TIMEOUT = "500ms"
_SETTLING_RUNS = 4
_DDL = re.compile(r"\bALTER TABLE\b|\bTRUNCATE\b|\bALTER PUBLICATION\b")
_KILLED = -9
_TERMINATED = -15
#: How a process may end: done, killed by the history, or stopped before it had read what SIGTERM means.
_GRACEFUL = frozenset({0, _KILLED, _TERMINATED})


class Stage:
    """One source and one pipeline. `counts`: what was done; `complaints`: what a pipeline must never do, in words; `missed`: where it found no old row."""

    def __init__(
        self, database: Database, directory: Path, warm: WarmEtl, settings: dict[str, Any] | None = None
    ) -> None:
        self.pipeline = PipelineUnderTest(database, directory, settings or {}, warm=warm)
        self.counts: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.missed: list[str] = []
        self.history: History = []
        #: The tables of the first run, and the ledger's moment when it ended.
        self.copied_first: frozenset[int] = frozenset()
        self.copied_at = 0
        self._database = database
        self._sessions: dict[int, Connection] = {}
        self._altered: dict[int, int] = {}
        self._daemon: Daemon | None = None
        self._armed = ""
        self._stack = ExitStack()
        self.pipeline.sql(*kinds.PRELUDE, *ledger.PRELUDE)

    def close(self) -> None:
        """End the daemon and all sessions."""
        self._stack.close()
        for session in self._sessions.values():
            session.close()

    # --- what happens ---------------------------------------------------------------------------------------------

    def perform(self, entry: Entry) -> bool:
        """Let it happen, and record it; False for a statement that Postgres refused."""
        self.history.append(entry)
        if isinstance(entry, Statement):
            return self._execute(entry)
        self._do(entry)
        return True

    def replay(self, entries: Sequence[Entry]) -> None:
        """Let a recorded history happen again."""
        for entry in entries:
            self.perform(entry)

    def session(self, number: int) -> Connection:
        """A session's connection, for looking; autocommit, the history says BEGIN."""
        if number not in self._sessions:
            connection = self._database.connect()
            connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'".encode())
            self._sessions[number] = connection
        return self._sessions[number]

    def _execute(self, statement: Statement) -> bool:
        connection = self.session(statement.session)
        try:
            connection.execute(statement.sql.encode())
        except psycopg.Error as error:
            self.counts["refused"] += 1
            self.counts[f"refused: {str(error).splitlines()[0][:90]}"] += 1
            return False
        self._count(statement)
        return True

    def _count(self, statement: Statement) -> None:
        number, sql = statement.session, statement.sql
        if sql == "COMMIT":
            self.counts["transactions"] += 1
            self._altered.pop(number, None)
        elif sql.startswith("ROLLBACK"):
            self.counts["rollbacks"] += 1
            self.counts["ddl rolled back"] += self._altered.pop(number, 0)
        elif found := len(_DDL.findall(sql)):
            self.counts["ddl"] += found
            self._altered[number] = self._altered.get(number, 0) + found
        elif sql.startswith(("INSERT", "UPDATE", "DELETE", "CREATE TEMP")):
            self.counts["row statements"] += 1

    # --- the pipeline ---------------------------------------------------------------------------------------------

    def _do(self, deed: Deed) -> None:
        match deed.verb:
            case Verb.ONCE:
                self._end_transactions()
                self._end_daemon()
                self._once(deed.failpoints)
                if not self.copied_first:
                    self.copied_first = frozenset(self.states())
                    ((self.copied_at,),) = self.pipeline.query("SELECT last_value FROM difftest.moments")
            case Verb.START:
                self._end_daemon()
                self._armed = deed.failpoints
                self._daemon = self._stack.enter_context(self.pipeline.running(failpoints=deed.failpoints))
            case Verb.WAIT:
                self._wait()
            case Verb.STOP:
                self._end_transactions()
                if self._daemon is not None and self._daemon.process.poll() is None:
                    self._daemon.terminate()
                self._end_daemon()
            case Verb.KILL:
                if self._daemon is not None and self._daemon.process.poll() is None:
                    self._daemon.kill()
                    self.kills["at random"] += 1
                    self._armed = ""
                self._end_daemon()

    def _wait(self) -> None:
        """Until the daemon has what was committed before, or has ended."""
        daemon = self._daemon
        if daemon is None or daemon.process.poll() is not None:
            return
        before = self.pipeline.written()
        self.pipeline.move_on()
        daemon.wait_until(
            lambda: daemon.process.poll() is not None or self.pipeline.progress() > before,
            f"progress beyond {before}",
            alive=False,
        )

    def _once(self, failpoints: str = "") -> Run:
        run = self.pipeline.once(failpoints=failpoints, check=False)
        self.counts["runs"] += 1
        self._look_at(run.code, run.log, failpoints)
        return run

    def _end_daemon(self) -> None:
        if self._daemon is None:
            return
        if self._daemon.process.poll() is None:
            self._daemon.kill()
            self.kills["at random"] += 1
            self._armed = ""
        self.counts["runs"] += 1
        self._look_at(int(self._daemon.process.returncode), self._daemon.log, self._armed)
        self._daemon = None
        self._stack.close()

    def _look_at(self, code: int, log: str, failpoints: str) -> None:
        if code == _KILLED and failpoints:
            self.kills[failpoints.partition(":")[0]] += 1
        for line in log.splitlines():
            if '"event":"old_rows_not_found"' in line:
                self.counts["old rows not found"] += 1
                self.missed.append(line)
        self.counts["tables copied"] += log.count('"event":"table_copied"')
        self.counts["schema changes applied"] += log.count('"event":"schema_change_applied"')
        # a table in error is the oracle's to judge
        if code not in _GRACEFUL and not (code == 1 and '"event":"table_failed"' in log):
            self.complaints.append(f"etl ended with {code}: {log[-1500:]}")

    def _end_transactions(self) -> None:
        """Nothing may hold a lock, or an old snapshot, that the pipeline would wait for."""
        for session in self._sessions.values():
            if session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                session.execute("ROLLBACK")

    # --- the end --------------------------------------------------------------------------------------------------

    def settle(self) -> float:
        """Bring everything over that was committed: a last row for each table, and runs until no table moves any more.

        The last row carries the table's last schema change. Returns how long it took, in seconds.
        """
        began = time.monotonic()
        self._end_transactions()
        self._end_daemon()
        with self._database.connect() as connection:
            for table in tables(connection):
                try:
                    last_rows(connection, table)
                except psycopg.Error as error:
                    self.complaints.append(f"no last row for {table.name}: {error}")
        for _ in range(_SETTLING_RUNS):
            run = self._once()
            if run.code == 0 and set(self.states().values()) <= {"ready"}:
                break
        return time.monotonic() - began

    def states(self) -> dict[int, str]:
        """Table oid → state, as the state store has it."""
        rows = self.pipeline.query(
            "SELECT table_id::bigint, state::text FROM etl.replication_state WHERE is_current AND pipeline_id = %s",
            [self.pipeline.pipeline_id],
        )
        return dict(rows)


def last_rows(connection: Connection, table: Table) -> None:
    """Three rows with keys of their own, so that at least one passes every row filter there is."""
    for n in range(3):
        values = {column.sql: _last_value(column.type, n) for column in table.writable if column.is_unique}
        values |= {c.sql: KINDS[c.type].values[0] for c in table.writable if c.not_null and not c.is_unique}
        values |= {c.sql: str(1 + n) for c in table.writable if c.name == "id" and not c.is_unique}
        statement = f"INSERT INTO {table.sql} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        connection.execute(statement.encode())


def _last_value(kind: str, n: int) -> str:
    return KEYS[kind](900_000 + n)
