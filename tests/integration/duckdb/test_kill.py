"""SIGKILL, not an exception: nothing is cleaned up, and the file is what the last commit left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etl.lsn import Lsn, Position
from etl.testing.destination_kit import ITEMS, FileJournal, World, multiset
from etl.testing.destination_rules.crash import arrived, crash_scenario
from etl.testing.duckdb_kit import DuckDBKit

VICTIM = Path(__file__).with_name("victim.py")
POINTS = {
    "copy.mid": 1,
    "copy.before_finish": 2,
    "copy.after_finish": 2,
    "dest.before_write": 2,
    "dest.mid_write": 3,
    "dest.before_commit": 2,
    "dest.after_commit": 2,
    "ddl.before_mark_applying": 1,
    "ddl.after_mark_applying": 1,
    "ddl.after_step": 4,
    "ddl.after_last_step": 1,
    "ddl.after_commit": 1,
    "ddl.after_applied": 1,
}


def victim(mode: str, directory: Path, failpoints: str = "") -> list[str]:
    return ["env", f"ETL_FAILPOINTS={failpoints}", sys.executable, str(VICTIM), mode, str(directory)]


@pytest.mark.chaos
@pytest.mark.parametrize(
    "point", [f"{name}:{nth}" for name, most in POINTS.items() for nth in range(1, most + 1)]
)
def test_a_process_killed_anywhere_is_finished_by_the_next_one(tmp_path: Path, point: str):
    killed = subprocess.run(victim("scenario", tmp_path, f"{point}=kill"), check=False)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run(victim("scenario", tmp_path), check=True)
    reopened = World(DuckDBKit(tmp_path), journal=FileJournal(tmp_path / "journal"))
    _, scenario = crash_scenario("rotation of three")
    arrived(reopened, scenario)
    reopened.destination.close()


@pytest.mark.chaos
@pytest.mark.parametrize("acknowledged", [1, 3, 20])
def test_no_acknowledged_write_is_lost_and_the_watermark_tells_the_rows(tmp_path: Path, acknowledged: int):
    with subprocess.Popen(victim("stream", tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(acknowledged):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    kit = DuckDBKit(tmp_path)
    world = World(kit)
    rows = kit.query("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM public.items")[0]
    assert rows["n"] == rows["ids"] == world.destination.watermarks()[ITEMS.oid].ordinal
    assert rows["n"] >= acknowledged * 100
    world.destination.close()


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("point", "left"), [("copy.mid:2", 1), ("copy.before_finish:2", 1), ("copy.after_finish:2", 2)]
)
def test_a_copy_killed_beside_a_complete_table_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, point: str, left: int
):
    killed = subprocess.run(victim("resync", tmp_path, f"{point}=kill"), check=False)
    assert killed.returncode == -signal.SIGKILL
    world = World(DuckDBKit(tmp_path), journal=FileJournal(tmp_path / "journal"))
    assert world.rows(ITEMS) == multiset({"id": number, "amount": left} for number in range(left))
    assert world.destination.watermarks() == {ITEMS.oid: Position.end_of(Lsn(left))}
    world.copy(ITEMS)
    assert not world.rows(ITEMS)
    tables = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'public'"
    assert DuckDBKit(tmp_path).query(tables) == [{"table_name": "items"}]
    world.destination.close()
