from __future__ import annotations

import io
import threading

import pytest

from etl.cli.progress import CopyBars, copy_bars
from etl.config.progress import CopyProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def test_there_are_no_bars_without_a_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())

    assert copy_bars() is None


def test_a_bar_shows_table_rows_and_bytes_until_the_table_is_copied(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stderr", terminal)
    bars = copy_bars(no_color=True)
    assert bars is not None
    progress: CopyProgress = bars

    progress.start("public.orders", 2000)
    progress.advance("public.orders", 1500, 3 * 1024**2)
    assert bars.snapshot() == {"public.orders": (1500, 2000)}
    progress.finish("public.orders")

    assert "public.orders" in terminal.getvalue()
    assert bars.snapshot() == {}


@pytest.mark.parametrize("estimate", [-1, 0])
def test_a_table_without_estimate_only_counts(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, estimate: int
):
    monkeypatch.setattr("sys.stderr", terminal)
    bars = CopyBars()
    bars.start("public.t", estimate)
    bars.advance("public.t", 5, 10)

    assert bars.snapshot() == {"public.t": (5, None)}
    bars.close()


def test_an_estimate_that_was_too_low_grows_with_the_rows(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stderr", terminal)
    bars = CopyBars()
    bars.start("public.t", 10)
    bars.advance("public.t", 25, 10)

    assert bars.snapshot() == {"public.t": (25, 25)}
    bars.close()


def test_a_copy_that_starts_again_counts_from_zero(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stderr", terminal)
    bars = CopyBars()
    for _ in range(2):
        bars.start("public.t", 10)
    bars.advance("public.t", 1, 1)

    assert bars.snapshot() == {"public.t": (1, 10)}
    bars.close()


def test_news_of_a_table_that_was_never_started_are_ignored(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stderr", terminal)
    bars = CopyBars()
    bars.advance("public.t", 1, 1)
    bars.finish("public.t")
    bars.close()
    bars.close()

    assert terminal.getvalue() == ""


def test_tables_may_report_from_many_threads(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stderr", terminal)
    bars = CopyBars()

    def copy(table: str) -> None:
        bars.start(table, 100)
        for _ in range(100):
            bars.advance(table, 1, 1)
        bars.finish(table)

    threads = [threading.Thread(target=copy, args=(f"public.t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert bars.snapshot() == {}
