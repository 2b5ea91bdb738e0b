"""A process that writes to a DuckDB destination and may be killed: ``victim.py scenario|stream|resync DIRECTORY``.

`scenario` starts, recovers, copies what was not copied yet and writes the whole crash scenario; it may be run as often
as it takes. `stream` writes runs of 100 rows and prints the number of each after it is durable, until it is killed.
`resync` copies a table of one row, then anew with two.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from etl.destinations.base import SchemaStatus
from etl.lsn import Lsn, Position
from etl.testing.builders import Insert, Stream
from etl.testing.destination_kit import ITEMS, FileJournal, World
from etl.testing.destination_rules.crash import crash_scenario
from etl.testing.duckdb_kit import DuckDBKit

CHANGE = "rotation of three"


def world(directory: Path) -> World:
    return World(DuckDBKit(directory), journal=FileJournal(directory / "journal"))


def scenario(directory: Path) -> None:
    running = world(directory)
    running.writer.recover(running.journal.recorded)
    copies, events = crash_scenario(CHANGE)
    for schema, rows in copies.values():
        recorded = running.journal.get(schema.oid)
        if recorded is None or recorded.status is SchemaStatus.CREATING:
            running.copy(schema, rows)
    running.write(events.events)
    running.destination.close()


def stream(directory: Path) -> None:
    running = world(directory)
    running.copy(ITEMS)
    rows = Stream()
    for number in count():
        running.write([rows.rows(ITEMS, *(Insert({"id": number * 100 + i}) for i in range(100)))])
        print(number, flush=True)  # noqa: T201 -- how the test knows


def resync(directory: Path) -> None:
    running = world(directory)
    for size in (1, 2):
        rows = [{"id": number, "amount": size} for number in range(size)]
        running.copy(ITEMS, rows, watermark=Position.end_of(Lsn(size)))


if __name__ == "__main__":
    {"scenario": scenario, "stream": stream, "resync": resync}[sys.argv[1]](Path(sys.argv[2]))
