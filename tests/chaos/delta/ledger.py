"""Three tables that show what is lost or doubled: one with a key, one without, and a log of every change."""

from __future__ import annotations

from itertools import cycle

from etl.testing.daemon import Daemon
from etl.testing.delta_reader import DeltaReader
from etl.testing.harness import PipelineUnderTest

TABLES = ("public.items", "public.bare", "public.changes")

_CREATE = (
    "CREATE TABLE items (id int PRIMARY KEY, n int DEFAULT 0)",
    "CREATE TABLE bare (a text)",
    "ALTER TABLE bare REPLICA IDENTITY FULL",
    "CREATE TABLE changes (id int PRIMARY KEY, a text)",
    "INSERT INTO items VALUES (0, 0)",
    "INSERT INTO bare VALUES ('same'), ('same')",
    "INSERT INTO changes VALUES (0, 'copied')",
)
#: What becomes of the columns, in turn. All rows are touched afterwards, so that both sides read the same.
_ALTERS = (
    "ADD COLUMN x int DEFAULT 5",
    "RENAME COLUMN x TO y",
    "DROP COLUMN y",
    "ALTER COLUMN n SET DEFAULT 1",
)


class Ledger:
    """What was done at the source of a pipeline, one numbered transaction after the other."""

    def __init__(self, pipeline: PipelineUnderTest) -> None:
        """Create the tables and publish them."""
        self._pipeline = pipeline
        self._last = 0
        self._alters = cycle(_ALTERS)
        pipeline.sql(*_CREATE)
        pipeline.publish("items", "bare", "changes")

    def write(self, *, alter: bool = False) -> None:
        """One transaction over all tables, if so with a schema change between the rows of two of them."""
        number = self._last = self._last + 1
        change = next(self._alters) if alter else None
        self._pipeline.transaction(
            f"INSERT INTO items (id) VALUES ({number})",
            f"UPDATE items SET n = n + 1 WHERE id = {number - 1}",
            f"DELETE FROM items WHERE id = {number - 3}",
            *((f"ALTER TABLE items {change}", "UPDATE items SET id = id") if change else ()),
            "INSERT INTO bare VALUES ('same'), ('other')",
            "DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare)",
            f"INSERT INTO changes (id) VALUES ({number})",
            *((f"ALTER TABLE changes ADD COLUMN c{number} int",) if change else ()),
            f"UPDATE changes SET a = 'changed' WHERE id = {number}",
        )

    def write_changes(self) -> None:
        """One transaction over the log alone."""
        number = self._last = self._last + 1
        self._pipeline.transaction(
            f"INSERT INTO changes (id) VALUES ({number})",
            f"UPDATE changes SET a = 'changed' WHERE id = {number}",
        )

    def wait_until_durable(self, daemon: Daemon) -> None:
        """Wait until all that was written before is durable."""
        before = self._pipeline.written()
        self.write()
        daemon.wait_until(lambda: self._pipeline.progress() > before, f"progress beyond {before}")

    def assert_whole(self) -> None:
        """Nothing is lost, doubled or left half done, and no run committed once a newer one had."""
        pipeline = self._pipeline
        pipeline.assert_settled("public.items", "public.bare", changelogs=["public.changes"])
        rows = pipeline.destination(
            'SELECT "_etl_op", id FROM changes ORDER BY "_etl_commit_lsn", "_etl_ordinal", id'
        )
        copied = sum(op == "copy" for op, _ in rows)
        logged = [(op, number) for number in range(copied, self._last + 1) for op in ("insert", "update")]
        assert rows == [*(("copy", number) for number in range(copied)), *logged]
        for table in TABLES:
            runs = runs_of(pipeline, table)
            assert runs == sorted(runs), table


def runs_of(pipeline: PipelineUnderTest, table: str) -> list[int]:
    """The run that made each commit of a table, oldest first."""
    commits = DeltaReader(pipeline.warehouse).commits(table)
    return [commit["etl"]["run"] for commit in commits if commit["etl"]]
