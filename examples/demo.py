"""``make demo``: a real Postgres, a live pipeline into DuckDB, and a schema that changes underneath it.

Everything it makes lives in one temporary folder and is gone when it ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from psycopg.conninfo import conninfo_to_dict
from rich.columns import Columns
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from etl.testing.postgres import Database, start_postgres

QUICKSTART = Path(__file__).with_name("quickstart.yaml")
PUBLICATION = "etl_quickstart"
WAIT_S = 60.0

SCHEMA = f"""
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id int NOT NULL REFERENCES customers,
    note text DEFAULT 'none',
    amount numeric(10,2) NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO customers SELECT i, 'customer ' || i, (ARRAY['Berlin','Lyon','Porto'])[1 + i % 3] FROM generate_series(1, 500) i;
INSERT INTO orders (customer_id, amount) SELECT 1 + i % 500, (i % 9000) / 100.0 FROM generate_series(1, 50000) i;
CREATE PUBLICATION {PUBLICATION} FOR TABLE customers, orders WITH (publish_via_partition_root = true);
"""

STEPS: tuple[tuple[str, str], ...] = (
    (
        "plain changes",
        "INSERT INTO orders (customer_id, amount) VALUES (7, 19.99);\nUPDATE customers SET city = 'Oslo' WHERE id = 7;",
    ),
    (
        "a new column with a literal default: future rows carry it, existing rows are not rewritten",
        "ALTER TABLE orders ADD COLUMN status text DEFAULT 'pending';\nINSERT INTO orders (customer_id, amount) VALUES (8, 5.00);",
    ),
    (
        "a rename, in the same transaction as the rows around it",
        (
            "BEGIN;\nINSERT INTO orders (customer_id, amount, note) VALUES (9, 7.50, 'before the rename');\n"
            "ALTER TABLE orders RENAME COLUMN note TO remark;\n"
            "INSERT INTO orders (customer_id, amount, remark) VALUES (9, 8.50, 'after the rename');\nCOMMIT;"
        ),
    ),
    (
        "the default changes, then becomes one no other system can evaluate: the stale default is removed",
        (
            "ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'new';\nINSERT INTO orders (customer_id, amount) VALUES (10, 1.00);\n"
            "ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'r' || random()::text;\n"
            "INSERT INTO orders (customer_id, amount) VALUES (11, 2.00);"
        ),
    ),
    (
        "a column goes, and comes back under the same name: a new column, not the old one",
        (
            "ALTER TABLE orders DROP COLUMN remark;\nINSERT INTO orders (customer_id, amount) VALUES (12, 3.00);\n"
            "ALTER TABLE orders ADD COLUMN remark text;\nINSERT INTO orders (customer_id, amount, remark) VALUES (13, 4.00, 'again');"
        ),
    ),
    ("rows go", "DELETE FROM orders WHERE id BETWEEN 10 AND 20;"),
)


class Demo:
    """One run of the demo in `folder`."""

    def __init__(self, console: Console, database: Database, folder: Path) -> None:
        self.console = console
        self.database = database
        self.warehouse = folder / "warehouse.duckdb"
        known = conninfo_to_dict(database.dsn)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PG", "ETL_"))},
            **{
                f"ETL__SOURCE__{key.upper()}": str(known[key])
                for key in ("host", "port", "dbname", "user")
                if known.get(key)
            },
            "PGPASSWORD": str(known.get("password") or ""),
            "ETL__DESTINATION__PATH": str(self.warehouse),
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

    # --- doing ----------------------------------------------------------------------------------------------------

    def execute(self, statements: str) -> None:
        """Run statements at the source; several without BEGIN are one transaction."""
        with self.database.connect() as connection:
            connection.execute(statements.encode())

    def etl(self, *arguments: str, allowed: Sequence[int] = (0,)) -> None:
        """Run a verb; its output goes to the terminal."""
        command = [sys.executable, "-m", "etl.cli", *arguments, "--pipeline", str(QUICKSTART)]
        done = subprocess.run(command, env=self.environment, check=False)
        if done.returncode not in allowed:
            raise SystemExit(f"etl {' '.join(arguments)} ended with {done.returncode}")

    @contextmanager
    def replicating(self) -> Iterator[None]:
        """A daemon; SIGTERM ends it, as any orchestrator would."""
        log = self.warehouse.with_suffix(".log").open("w")
        command = [sys.executable, "-m", "etl.cli", "replicate", "--pipeline", str(QUICKSTART)]
        self.process = subprocess.Popen(command, env=self.environment, stderr=log)
        try:
            yield
            self.process.send_signal(signal.SIGTERM)
            if self.process.wait(WAIT_S):
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
        self.console.print("[green]✓[/green] [dim]durable in DuckDB[/dim]")

    def wait(self, query: str, what: str) -> None:
        """Until a query at the source says true."""
        deadline = time.monotonic() + WAIT_S
        with self.database.connect() as connection:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise SystemExit(f"etl replicate ended early with {self.process.returncode}")
                try:
                    row = connection.execute(query.encode()).fetchone()
                except Exception:  # noqa: BLE001 - the state tables appear while the daemon starts
                    row = None
                if row and row[0]:
                    return
                time.sleep(0.05)
        raise SystemExit(f"waited {WAIT_S:.0f} s in vain for {what}")

    # --- showing --------------------------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        """A rule with a heading."""
        self.console.print()
        self.console.rule(f"[bold cyan]{text}", align="left")

    def show_sql(self, statements: str) -> None:
        """Print statements before they run."""
        self.console.print(Syntax(statements, "sql", background_color="default", word_wrap=True))

    def compare(self) -> None:
        """The newest orders of both sides, and a whole-table comparison."""
        names = "id, customer_id, amount::text AS amount, status, remark"
        query = f"SELECT {names} FROM public.orders ORDER BY id DESC LIMIT 7"
        with self.database.connect() as connection:
            cursor = connection.execute(query.encode())
            source = ([c.name for c in cursor.description or ()], cursor.fetchall())
            totals = connection.execute(_TOTALS.encode()).fetchone()
        with duckdb.connect(str(self.warehouse), read_only=True) as warehouse:
            cursor_ = warehouse.execute(query)
            destination = ([c[0] for c in cursor_.description], cursor_.fetchall())
            arrived = warehouse.execute(_TOTALS).fetchone()
            described = warehouse.execute(_COLUMNS).fetchall()
        self.console.print(
            Columns([_table("Postgres: orders", *source), _table("DuckDB: orders", *destination)])
        )
        self.console.print(
            _table("DuckDB: columns of orders", ["column", "type", "default", "identity tag"], described)
        )
        same = "[bold green]equal[/bold green]" if totals == arrived else "[bold red]DIFFERENT[/bold red]"
        self.console.print(f"orders, sum of ids, sum of amounts, customers: {totals} and {arrived}: {same}")
        if totals != arrived:
            raise SystemExit(1)


_TOTALS = "SELECT count(*), sum(id)::bigint, sum(amount)::text, (SELECT count(*) FROM public.customers) FROM public.orders"
_COLUMNS = (
    "SELECT column_name, data_type, column_default, comment FROM duckdb_columns()"
    " WHERE schema_name = 'public' AND table_name = 'orders' ORDER BY column_index"
)


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*("[dim]NULL[/dim]" if value is None else str(value) for value in row))
    return table


def main() -> None:
    """Run the demo on a server of its own."""
    console = Console(highlight=False)
    with (
        start_postgres(own=True) as server,
        server.database(PUBLICATION) as database,
        tempfile.TemporaryDirectory(prefix="etl-demo-") as folder,
    ):
        console.print(f"[dim]Postgres: {server.provider}[/dim]")
        Demo(console, database, Path(folder)).run()
    console.print("\n[dim]The server and the files of this demo are gone again.[/dim]")


if __name__ == "__main__":
    main()
