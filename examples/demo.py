"""``make demo``: a real Postgres, a live pipeline into DuckDB or Delta, and a schema that changes underneath it.

Everything it makes lives in one temporary folder and is gone when it ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from rich.columns import Columns
from rich.console import Console
from rich.syntax import Syntax

from etl.telemetry.logging import configure_logging
from etl.testing.postgres import Database, start_postgres
from examples.story import PUBLICATION, SCHEMA, STEPS
from examples.warehouse import Look, Warehouse, table
from examples.warehouse_delta import DeltaWarehouse
from examples.warehouse_duckdb import DuckDbWarehouse

WAREHOUSES: dict[str, Callable[[Path], Warehouse]] = {"duckdb": DuckDbWarehouse, "delta": DeltaWarehouse}


class Demo:
    """One run of the demo; what the daemon logs goes to `log`."""

    def __init__(self, console: Console, database: Database, warehouse: Warehouse, log: Path) -> None:
        self.console = console
        self.database = database
        self.warehouse = warehouse
        self.log = log
        known = conninfo_to_dict(database.dsn)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PG", "ETL_"))},
            **{
                f"ETL__SOURCE__{key.upper()}": str(known[key])
                for key in ("host", "port", "dbname", "user")
                if known.get(key)
            },
            "PGPASSWORD": str(known.get("password") or ""),
            # any port that is free
            "ETL__HTTP__PORT": "0",
            **warehouse.environment(),
        }

    def run(self) -> None:
        """Load, replicate, change, compare."""
        self.title("1. A source database with 50,000 orders")
        self.show_sql(SCHEMA.strip())
        self.execute(SCHEMA)
        self.title("2. Is everything ready?  etl check")
        self.etl("check", allowed=(0, 3))
        self.title("3. etl replicate: copies the tables, then follows every change")
        with self.replicating():
            self.console.print(f"[bold]Status page: {self.address()}[/bold] [dim](while this runs)[/dim]")
            if self.warehouse.notice:
                self.console.print(f"[dim]{self.warehouse.notice}[/dim]")
            self.wait_for_copy()
            for what, statements in STEPS:
                self.console.print(f"\n[bold]→ {what}[/bold]")
                self.show_sql(statements)
                self.execute(statements)
                self.wait_for_stream()
            self.title("4. etl status, while it runs")
            self.etl("status")
        self.title("5. Source and destination, side by side")
        self.compare()
        self.title("6. What happened to the schema, by log position:  etl schema log public.orders")
        self.etl("schema", "log", "public.orders")
        self.show_history()

    # --- doing ----------------------------------------------------------------------------------------------------

    def execute(self, statements: str) -> None:
        """Run statements at the source; several without BEGIN are one transaction."""
        with self.database.connect() as connection:
            connection.execute(statements.encode())

    def etl(self, *arguments: str, allowed: Sequence[int] = (0,)) -> None:
        """Run a verb; its output goes to the terminal."""
        done = subprocess.run(self.command(*arguments), env=self.environment, check=False)
        if done.returncode not in allowed:
            raise SystemExit(f"etl {' '.join(arguments)} ended with {done.returncode}")

    def command(self, *arguments: str) -> list[str]:
        """The command line of a verb."""
        return [sys.executable, "-m", "etl.cli", *arguments, "--pipeline", str(self.warehouse.pipeline)]

    @contextmanager
    def replicating(self) -> Iterator[None]:
        """A daemon; SIGTERM ends it, as any orchestrator would."""
        log = self.log.open("w")
        self.process = subprocess.Popen(self.command("replicate"), env=self.environment, stderr=log)
        try:
            yield
            self.process.send_signal(signal.SIGTERM)
            if self.process.wait(self.warehouse.wait_s):
                raise SystemExit(f"etl replicate ended with {self.process.returncode}")
            self.console.print("[dim]SIGTERM: the daemon finished its batch and ended with 0[/dim]")
        finally:
            log.close()
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    # --- waiting --------------------------------------------------------------------------------------------------

    def wait_for_copy(self) -> None:
        """Until both tables follow the stream."""
        self.wait(
            "SELECT count(*) = 2 FROM etl.replication_state WHERE is_current AND state IN ('sync_done', 'ready')",
            "the initial copy",
        )
        self.console.print("[dim]both tables are copied and follow the stream[/dim]")

    def address(self) -> str:
        """Where the daemon answers; it says so first of all."""
        deadline = time.monotonic() + self.warehouse.wait_s
        while time.monotonic() < deadline:
            for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
                if '"event":"http_serving"' in line:
                    return str(json.loads(line)["address"])
            self.check_alive()
            time.sleep(0.05)
        raise SystemExit(f"waited {self.warehouse.wait_s:.0f} s in vain for the status page")

    def wait_for_stream(self) -> None:
        """A position before the commit of a marker row: progress beyond it means that everything so far is durable."""
        with self.database.connect() as connection, connection.transaction():
            connection.execute("UPDATE customers SET name = name WHERE id = 1")
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        position = row[0] if row else "0/0"
        self.wait(
            f"SELECT coalesce(max(flush_lsn) > '{position}'::pg_lsn, false) FROM etl.replication_progress",
            "the stream",
        )
        self.console.print(f"[green]✓[/green] [dim]durable in {self.warehouse.title}[/dim]")

    def wait(self, query: str, what: str) -> None:
        """Until a query at the source says true."""
        deadline = time.monotonic() + self.warehouse.wait_s
        with self.database.connect() as connection:
            while time.monotonic() < deadline:
                self.check_alive()
                try:
                    row = connection.execute(query.encode()).fetchone()
                except Exception:  # noqa: BLE001 - the state tables appear while the daemon starts
                    row = None
                if row and row[0]:
                    return
                time.sleep(0.05)
        raise SystemExit(f"waited {self.warehouse.wait_s:.0f} s in vain for {what}")

    def check_alive(self) -> None:
        """Ends with what the daemon said last when it has ended."""
        if self.process.poll() is not None:
            said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            raise SystemExit("\n".join([f"etl replicate ended early with {self.process.returncode}:", *said]))

    # --- showing --------------------------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        """A rule with a heading."""
        self.console.print()
        self.console.rule(f"[bold cyan]{text}", align="left")

    def show_sql(self, statements: str) -> None:
        """Print statements before they run."""
        self.console.print(Syntax(statements, "sql", background_color="default", word_wrap=True))

    def compare(self) -> None:
        """The newest orders of both sides, the destination's columns, and a whole-table comparison."""
        name, source, arrived = self.warehouse.title, self.source(), self.warehouse.look()
        sides = (("Postgres: orders", source), (f"{name}: orders", arrived))
        self.console.print(Columns([table(title, side.names, side.newest) for title, side in sides]))
        self.console.print(
            table(
                f"{name}: columns of orders",
                ["column", "type", "default", "identity tag"],
                self.warehouse.columns(),
            )
        )
        equal = source.totals == arrived.totals
        same = "[bold green]equal[/bold green]" if equal else "[bold red]DIFFERENT[/bold red]"
        self.console.print(
            f"orders, sum of ids, sum of amounts, customers: {source.totals} and {arrived.totals}: {same}"
        )
        if not equal:
            raise SystemExit(1)

    def source(self) -> Look:
        """The source's side."""
        with self.database.connect() as connection:
            newest = connection.execute(_NEWEST)
            names = [column.name for column in newest.description or ()]
            return Look(names, newest.fetchall(), connection.execute(_TOTALS).fetchall()[0])

    def show_history(self) -> None:
        """The destination's own history, where it keeps one."""
        arguments = self.command("schema", "log", "public.orders", "--json")
        done = subprocess.run(arguments, env=self.environment, check=True, capture_output=True)
        history = self.warehouse.history(json.loads(done.stdout))
        if history is not None:
            self.console.print(history)


_NEWEST = "SELECT id, customer_id, amount::text AS amount, status, remark FROM public.orders ORDER BY id DESC LIMIT 7"
_TOTALS = "SELECT count(*), sum(id)::bigint, sum(amount)::text, (SELECT count(*) FROM public.customers) FROM public.orders"


def chosen(arguments: Sequence[str], folder: Path) -> Warehouse:
    """The destination that was asked for. Ends with one line when there is none such, or the machine lacks what it needs."""
    name = arguments[0] if arguments else "duckdb"
    if name not in WAREHOUSES:
        raise SystemExit(f"no such destination: {name}; make demo DEST={' or DEST='.join(WAREHOUSES)}")
    warehouse = WAREHOUSES[name](folder)
    if missing := warehouse.missing():
        raise SystemExit(missing)
    return warehouse


def main() -> None:
    """Run the demo on a server of its own."""
    configure_logging("error", "console")
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="etl-demo-") as folder:
        warehouse = chosen(sys.argv[1:], Path(folder))
        with start_postgres(own=True) as server, server.database(PUBLICATION) as database:
            console.print(f"[dim]Postgres: {server.provider}[/dim]")
            Demo(console, database, warehouse, Path(folder, "etl.log")).run()
    console.print("\n[dim]The server and the files of this demo are gone again.[/dim]")


if __name__ == "__main__":
    main()
