"""A failing history is made short, and stays a history that can happen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etl.testing.difftest.history import Deed, Entry, Statement, Verb, as_sql, load, save
from etl.testing.difftest.matching import unmatched
from etl.testing.difftest.shrink import shrink


def transaction(session: int, *statements: str) -> list[Entry]:
    return [Statement(session, sql) for sql in ("BEGIN", *statements, "COMMIT")]


HISTORY: list[Entry] = [
    Statement(1, "CREATE TABLE a ()"),
    Deed(Verb.ONCE),
    *(entry for n in range(20) for entry in transaction(1 + n % 3, f"step {n}", f"other {n}")),
    Deed(Verb.ONCE, "stream.after_write:1=kill"),
    Statement(1, "ALTER PUBLICATION p"),
]


def test_only_what_the_failure_needs_is_left():
    def fails(entries: Sequence[Entry]) -> bool:
        sql = {entry.sql for entry in entries if isinstance(entry, Statement)}
        return {"step 3", "other 17"} <= sql

    short = shrink(HISTORY, fails)

    assert short == [Statement(1, "step 3"), Statement(3, "other 17")]


def test_what_opens_a_transaction_and_what_ends_it_stay_together():
    tried: list[Sequence[Entry]] = []

    def fails(entries: Sequence[Entry]) -> bool:
        tried.append(entries)
        return any(isinstance(entry, Statement) and entry.sql == "step 7" for entry in entries)

    shrink(HISTORY, fails)

    for entries in tried:
        sql = [entry.sql for entry in entries if isinstance(entry, Statement)]
        assert sql.count("BEGIN") == sql.count("COMMIT")


def test_the_number_of_tries_is_bounded():
    tries = []
    shrink(HISTORY, lambda entries: bool(tries.append(entries)), 5)

    assert len(tries) == 5


def test_a_history_comes_back_from_its_file_as_it_was(tmp_path: Path):
    save(HISTORY, tmp_path / "history.jsonl")

    assert load(tmp_path / "history.jsonl") == HISTORY


def test_a_history_is_told_as_sql_with_its_sessions_and_its_faults():
    told = as_sql([Statement(2, "BEGIN"), Statement(2, "x;"), Deed(Verb.ONCE, "copy.mid=kill")])

    assert told == "-- session 2\nBEGIN;\nx;\n-- pipeline: once with ETL_FAILPOINTS=copy.mid=kill\n"


def test_rows_are_paired_with_patterns_wherever_a_pairing_exists():
    either, one, other = frozenset({"a", None}), frozenset({"a"}), frozenset[str | None]({None})

    assert unmatched([(either,), (one,)], [("a",), (None,)]) == ([], [])
    assert unmatched([(either,), (either,), (other,)], [(None,), ("a",), (None,)]) == ([], [])
    assert unmatched([(one,), (one,)], [("a",), (None,)]) == ([(one,)], [(None,)])
