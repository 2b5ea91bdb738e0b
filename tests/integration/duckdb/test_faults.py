"""What can be wrong with the file, and that the error names it."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from etl.destinations.base import TableMode
from etl.destinations.duckdb import DuckDBDestination, DuckDBSettings
from etl.errors import (
    DestinationError,
    DestinationFullError,
    DestinationTableError,
    DestinationUnavailableError,
    DestinationVersionError,
    RetryPolicy,
)
from etl.lsn import Position
from etl.testing.builders import INT8, Insert, Stream, altered, column, table_schema
from etl.testing.destination_kit import ITEMS, ORDERS, PIPELINE_ID, World, multiset
from etl.testing.duckdb_kit import DuckDBKit


def opened(path: Path, epoch: int = 1) -> DuckDBDestination:
    destination = DuckDBDestination(DuckDBSettings(path))
    destination.open(PIPELINE_ID, epoch)
    return destination


def test_a_file_another_process_has_open_is_unavailable_and_the_error_names_path_and_process(tmp_path: Path):
    path = tmp_path / "etl.duckdb"
    program = (
        f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(DestinationUnavailableError) as refused:
            opened(path)
        holder.communicate()
    assert str(path) in refused.value.message
    assert str(holder.pid) in refused.value.message
    assert refused.value.retry is RetryPolicy.TIMED
    opened(path).close()


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 1000)
    with pytest.raises(DestinationError, match=r"notes\.txt is not a DuckDB database"):
        opened(path)
    assert path.read_text() == "not a database\n" * 1000


def test_a_damaged_file_is_refused_with_its_path(tmp_path: Path):
    path = tmp_path / "etl.duckdb"
    opened(path).close()
    damaged = bytearray(path.read_bytes())
    damaged[4096:8192] = b"\xff" * 4096
    path.write_bytes(damaged)
    with pytest.raises(DestinationError) as refused:
        opened(path)
    assert str(path) in refused.value.message
    assert not isinstance(refused.value, DestinationUnavailableError)


def test_a_directory_in_the_way_is_refused(tmp_path: Path):
    with pytest.raises(DestinationError, match=str(tmp_path)):
        opened(tmp_path)


@pytest.mark.parametrize("what", ["format_version", "ordinal_rule"])
def test_a_file_of_a_newer_version_is_refused(tmp_path: Path, what: str):
    path = tmp_path / "etl.duckdb"
    opened(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"UPDATE _etl.pipeline SET {what} = 99")
    with pytest.raises(DestinationVersionError, match="99"):
        opened(path, epoch=2)


def test_a_closed_destination_says_so(tmp_path: Path):
    destination = opened(tmp_path / "etl.duckdb")
    destination.close()
    with pytest.raises(DestinationUnavailableError, match="not open"):
        destination.watermarks()


FULL = f"""
import resource, sys
from pathlib import Path
from etl.errors import DestinationFullError
from etl.lsn import Position
from etl.testing.builders import Insert, Stream
from etl.testing.destination_kit import ORDERS, World
from etl.testing.duckdb_kit import DuckDBKit

world = World(DuckDBKit(Path(sys.argv[1])))
world.copy(ORDERS)
stream = Stream()
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, {resource.RLIM_INFINITY}))
durable = 0
for number in range(200):
    run = stream.rows(ORDERS, *(Insert({{"id": number * 1000 + i, "note": "%032x" % (i * 7919), "doc": "%064x" % i}}) for i in range(1000)))
    try:
        world.write([run])
    except DestinationFullError as error:
        assert sys.argv[1] in error.message, error.message
        break
    durable += len(run)
else:
    raise SystemExit("the limit was never met")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
world.restart()
assert sum(world.rows(ORDERS).values()) == world.destination.watermarks()[ORDERS.oid].ordinal >= durable
world.write([run])
assert sum(world.rows(ORDERS).values()) == durable + len(run)
print("resumed")
"""


@pytest.mark.chaos
def test_a_full_disk_is_told_with_the_path_and_writing_resumes_when_there_is_space(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "resumed\n"
    assert issubclass(DestinationFullError, DestinationUnavailableError)


def test_a_statement_that_failed_leaves_no_transaction_behind(tmp_path: Path):
    world = World(DuckDBKit(tmp_path))
    world.copy(ORDERS)
    stream = Stream()
    assert ITEMS.oid in world.writer.write([stream.rows(ITEMS, Insert({"id": 1}))]).failed
    assert world.writer.write([stream.rows(ORDERS, Insert({"id": None}))]).failed
    world.writer.retry(ORDERS.oid)
    world.write([stream.rows(ORDERS, Insert({"id": 1}))])
    assert sum(world.rows(ORDERS).values()) == 1


@pytest.mark.parametrize(
    "kind", ["TABLE public.orders (mine INTEGER)", "VIEW public.ORDERS AS SELECT 1 AS mine"]
)
def test_a_table_or_view_that_is_not_ours_is_never_overwritten(tmp_path: Path, kind: str):
    kit = DuckDBKit(tmp_path)
    with duckdb.connect(str(kit.path)) as connection:
        connection.execute(f"CREATE SCHEMA public; CREATE {kind}")
    world = World(kit)
    with pytest.raises(DestinationTableError, match="not made by this pipeline"):
        world.copy(ORDERS)
    assert (
        "mine"
        in kit.query("SELECT column_name AS c FROM duckdb_columns() WHERE schema_name = 'public'")[0]["c"]
    )


@pytest.mark.parametrize("schema", ["_etl", "_ETL", "information_schema", "pg_catalog"])
def test_the_schemas_of_duckdb_and_our_own_are_refused(tmp_path: Path, schema: str):
    with pytest.raises(DestinationTableError, match="reserved"):
        World(DuckDBKit(tmp_path)).copy(table_schema(column("id", 1, INT8), schema=schema, name="pipeline"))


@pytest.mark.parametrize("name", ["_etl_copy_7_16385", "_ETL_COPY_"])
def test_the_names_of_copies_under_way_are_refused(tmp_path: Path, name: str):
    with pytest.raises(DestinationTableError, match="reserved"):
        World(DuckDBKit(tmp_path)).copy(table_schema(column("id", 1, INT8), name=name))


@pytest.mark.parametrize("schema", ["etl", "temp", "system", "main", "Main", "PUBLIC"])
def test_a_schema_may_be_named_like_the_database_or_a_part_of_duckdb(tmp_path: Path, schema: str):
    world = World(DuckDBKit(tmp_path))
    world.copy(ORDERS)
    odd = table_schema(column("id", 1, INT8), oid=5, schema=schema, name="_etl_rows")
    world.copy(odd, [{"id": 1}])
    world.write([Stream().rows(odd, Insert({"id": 2}))])
    world.restart()
    assert world.rows(odd) == multiset([{"id": 1}, {"id": 2}])


def test_two_pipelines_share_a_file_and_never_a_table(tmp_path: Path):
    first, second = (
        opened(tmp_path / "etl.duckdb"),
        DuckDBDestination(DuckDBSettings(tmp_path / "etl.duckdb")),
    )
    second.open(PIPELINE_ID + 1, 1)
    table = first.destination_table(ORDERS, TableMode.MIRROR)
    # the name is taken while the copy is under way, and when it is complete
    first.create_table(table, ORDERS)
    with pytest.raises(DestinationTableError, match=f"pipeline {PIPELINE_ID}"):
        second.create_table(table, ORDERS)
    first.finish_copy(table, Position.ZERO, 0)
    with pytest.raises(DestinationTableError, match=f"pipeline {PIPELINE_ID}"):
        second.create_table(table, ORDERS)
    second.close()
    first.close()


def test_a_log_that_cannot_take_a_new_type_is_kept_under_another_name_and_the_table_copied_again(
    tmp_path: Path,
):
    world = World(DuckDBKit(tmp_path), modes=lambda _: TableMode.CHANGELOG)
    world.copy(ORDERS, [{"id": 1, "note": "text"}])
    retyped = altered(ORDERS, column("id", 1, INT8), column("note", 2, INT8))
    with pytest.raises(DestinationTableError, match="'note' is BIGINT now"):
        world.copy(retyped, [{"id": 2, "note": 2}])
    world.destination.close()
    with duckdb.connect(str(tmp_path / "etl.duckdb")) as connection:
        connection.execute("ALTER TABLE public.orders RENAME TO archive")
    world.start()
    world.copy(retyped, [{"id": 2, "note": 2}])
    kit = DuckDBKit(tmp_path)
    assert kit.query("SELECT note FROM public.orders") == [{"note": 2}]
    assert kit.query("SELECT note FROM public.archive") == [{"note": "text"}]
