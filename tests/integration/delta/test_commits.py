"""What the commits of a Delta table carry, and what they withstand: other writers, earlier runs, a lost history."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl.destinations.base import CopyBatch
from etl.destinations.delta.config import Maintenance
from etl.destinations.delta.destination import DeltaDestination
from etl.destinations.delta.session import Session
from etl.errors import DestinationFencedError, DestinationUnavailableError, DestinationVersionError
from etl.events import Unrepresentable
from etl.lsn import Lsn, Position
from etl.spark.session import new_session
from etl.testing.builders import Insert, Stream, Update, batch
from etl.testing.delta_kit import TEST_SPARK, DeltaKit
from etl.testing.destination_kit import ORDERS, PIPELINE_ID, World, multiset

pytestmark = pytest.mark.spark


@pytest.fixture
def kit(tmp_path: Path) -> DeltaKit:
    return DeltaKit(tmp_path)


@pytest.fixture
def world(kit: DeltaKit) -> World:
    return World(kit)


def place(kit: DeltaKit) -> str:
    return f"delta.`{kit.settings.path}/public/orders`"


def sql(statement: str) -> list[Any]:
    """A statement of somebody else."""
    return new_session(TEST_SPARK).sql(statement).collect()


def test_every_write_says_in_its_commit_how_far_it_came(kit: DeltaKit, world: World) -> None:
    stream = Stream()
    world.copy(ORDERS, [{"id": 1}])
    world.write([stream.rows(ORDERS, Insert({"id": 2})), stream.rows(ORDERS, Update({"id": 1, "note": "n"}))])
    newest = sql(f"DESCRIBE HISTORY {place(kit)} LIMIT 1")[0]
    assert newest.operation == "MERGE"
    assert f'"watermark": "{Position(Lsn(0x1000), 2)}"' in newest.userMetadata
    assert f'"epoch": {world.epoch}' in newest.userMetadata


def test_a_watermark_outlives_commits_of_others_and_the_history_itself(kit: DeltaKit, world: World) -> None:
    stream = Stream()
    world.copy(ORDERS, [{"id": 1}], watermark=Position(Lsn(0x10), 3))
    for number in range(25):
        sql(f"ALTER TABLE {place(kit)} SET TBLPROPERTIES ('somebody' = '{number}')")
    world.restart()
    assert world.destination.watermarks() == {ORDERS.oid: Position(Lsn(0x10), 3)}
    world.write([stream.rows(ORDERS, Insert({"id": 2}))])
    world.restart()
    assert world.destination.watermarks() == {ORDERS.oid: Position(Lsn(0x1000), 1)}
    # what cleaning the log leaves: commits that say nothing, and the properties
    for commit in Path(kit.settings.path or "", "public", "orders", "_delta_log").glob("*.json"):
        commit.with_name(f".{commit.name}.crc").unlink()
        commit.write_text(commit.read_text().replace('\\"etl\\"', '\\"other\\"'))
    world.restart()
    assert world.destination.watermarks() == {ORDERS.oid: Position(Lsn(0x10), 3)}


def test_a_commit_of_an_earlier_run_that_is_under_way_is_refused_once_the_table_is_claimed(
    kit: DeltaKit, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy(ORDERS, [{"id": 1}])
    stream = Stream()
    world.write([stream.rows(ORDERS, Insert({"id": 2}))])
    late = stream.rows(ORDERS, Insert({"id": 3}))
    newer = World(kit, journal=world.journal, epoch=world.epoch)
    newer.write([late])
    # the earlier run had looked before the newer one began
    monkeypatch.setattr(type(_housekeeping(world.destination)), "fence", _once(lambda _: None))
    with pytest.raises(DestinationFencedError):
        world.writer.write([late])
    assert newer.rows(ORDERS) == multiset([{"id": number, "note": None, "doc": None} for number in (1, 2, 3)])


def test_a_commit_of_an_earlier_run_that_comes_in_before_the_claim_is_noticed(
    kit: DeltaKit, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy(ORDERS, [{"id": 1}])
    run = Stream().rows(ORDERS, Insert({"id": 2}))
    newer = World(kit, journal=world.journal, epoch=world.epoch)
    assert newer.destination.watermarks()[ORDERS.oid] == Position.ZERO
    with monkeypatch.context() as patched:
        patched.setattr(type(_housekeeping(world.destination)), "fence", lambda _: None)
        world.write([run])
    with pytest.raises(DestinationUnavailableError, match="earlier run"):
        newer.writer.write([run])
    newer.restart()
    assert not newer.write([run]).rows
    assert sum(newer.rows(ORDERS).values()) == 2


@pytest.mark.parametrize(
    "theirs",
    [
        "INSERT INTO {} (id) VALUES (99)",
        "OPTIMIZE {}",
        "ALTER TABLE {} SET TBLPROPERTIES ('somebody' = 'was here')",
        "ALTER TABLE {} ADD COLUMNS (theirs string)",
    ],
)
def test_a_write_that_loses_against_another_writer_is_made_again(
    kit: DeltaKit, world: World, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy(ORDERS, [{"id": 1, "note": "one"}, {"id": 2}])
    stream = Stream()
    world.write([stream.rows(ORDERS, Update({"id": 2, "note": "two"}))])
    execute = Session._execute
    interfered: list[str] = []

    def beside(session: Session, statement: str) -> list[Any]:
        if statement.startswith("MERGE") and not interfered:
            interfered.append(statement)
            with _running(lambda: sql(theirs.format(place(kit)))):
                return execute(session, statement)
        return execute(session, statement)

    monkeypatch.setattr(Session, "_execute", beside)
    world.write([stream.rows(ORDERS, Update({"id": 1, "note": "uno"}))])
    assert interfered
    notes = {row["id"]: row["note"] for row in kit.rows(world.table(ORDERS))}
    assert (notes[1], notes[2]) == ("uno", "two")


def test_small_files_are_compacted_after_so_many_commits_and_nothing_changes(tmp_path: Path) -> None:
    kit = DeltaKit(tmp_path)
    kit.settings = replace(kit.settings, maintenance=Maintenance(optimize_commits=3, vacuum_hours=0))
    world, stream = World(kit), Stream()
    world.copy(ORDERS)
    for number in range(4):
        world.write([stream.rows(ORDERS, Insert({"id": number}))])
    destination = world.destination
    assert isinstance(destination, DeltaDestination)
    assert destination._opened is not None
    destination._opened.upkeep.wait()
    history = sql(f"DESCRIBE HISTORY {place(kit)}")
    assert [row.operation for row in history].count("OPTIMIZE") == 1
    assert sorted(row["id"] for row in kit.rows(world.table(ORDERS))) == [0, 1, 2, 3]
    world.restart()
    assert world.destination.watermarks()[ORDERS.oid].ordinal == 4


def test_a_new_copy_comes_in_with_one_commit_and_leaves_nothing_beside_the_table(
    kit: DeltaKit, world: World
) -> None:
    lake, watermark = Path(kit.settings.path or ""), Position.end_of(Lsn(0x20))
    for text in ("old", "new"):
        world.copies.create(ORDERS)
        unheld = (Unrepresentable(0, 2, text),)
        world.copies.copy_rows(ORDERS, CopyBatch(batch(ORDERS, [{"id": 1, "doc": text}]), unheld))
        world.finish(ORDERS, 1, watermark)
    property_, swap = sql(f"DESCRIBE HISTORY {place(kit)} LIMIT 2")
    assert (property_.operation, swap.operation) == ("SET TBLPROPERTIES", "WRITE")
    assert swap.operationParameters["mode"] == "Overwrite"
    assert f'"watermark": "{watermark}", "created": true' in swap.userMetadata
    assert [row.value for row in sql(f"SELECT value FROM delta.`{lake}/_etl/unrepresentable`")] == ["new"]
    beside = f"copy_{PIPELINE_ID}_{ORDERS.oid}"
    assert not (lake / "_etl" / beside).exists()
    world.copies.create(ORDERS)
    other = lake / "_etl" / "copy_8_1"
    other.mkdir()
    assert (lake / "_etl" / beside).exists()
    world.restart()
    assert not (lake / "_etl" / beside).exists()
    # another pipeline's may be under way
    assert other.exists()


def test_a_lake_of_a_newer_format_is_refused(kit: DeltaKit, world: World) -> None:
    world.destination.close()
    sql(f"ALTER TABLE delta.`{kit.settings.path}/_etl/control` SET TBLPROPERTIES ('etl.format' = '99')")
    with pytest.raises(DestinationVersionError, match="format 99"):
        kit.connect().open(PIPELINE_ID, 9)


def test_what_a_killed_run_left_in_staging_is_gone_after_the_next_start(kit: DeltaKit, world: World) -> None:
    staging = Path(kit.settings.path or "", "_etl", "staging")
    mine, other = staging / f"{PIPELINE_ID}-1-5.parquet", staging / "8-1-5.parquet"
    mine.write_bytes(b"left")
    other.write_bytes(b"another pipeline's")
    world.restart()
    assert (mine.exists(), other.exists()) == (False, True)


def _housekeeping(destination: object) -> Any:
    assert isinstance(destination, DeltaDestination)
    assert destination._opened is not None
    return destination._opened.housekeeping


def _once(first: Callable[[Any], None]) -> Callable[[Any], None]:
    """`first` at the first call, what was there before afterwards."""
    from etl.destinations.delta.housekeeping import Housekeeping

    before, calls = Housekeeping.fence, []

    def fence(self: Any) -> None:
        calls.append(self)
        (first if len(calls) == 1 else before)(self)

    return fence


class _running:  # noqa: N801 -- reads as a word
    """Something done by another thread meanwhile, and over at the end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
