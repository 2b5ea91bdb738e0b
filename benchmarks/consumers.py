"""What reads the WAL: `pg_recvlogical`, our decoder with nothing behind it, and the whole pipeline into DuckDB.

Run as ``python -m benchmarks.consumers decode|duckdb …`` in a process of its own, so that CPU and memory are its own;
prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from pathlib import Path

from etl.events import RowChanges
from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.ddl_messages import DdlMessages
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.handoff import HandOff
from etl.pipeline.reader import Reader
from etl.schema.catalog import SchemaCatalog
from etl.schema.types import TypeOptions
from etl.source.catalog import describe_table
from etl.source.connection import connect_query, connect_replication
from etl.source.publication import published_tables
from etl.source.replication import ReplicationStream
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse


def decode(parameters: dict[str, str], slot: str, publication: str, until: Lsn) -> dict[str, float]:
    """Stream and decode to Arrow up to `until`; nothing is written or acknowledged."""
    with connect_query(parameters, "bench") as connection:
        tables = published_tables(connection, parameters, publication)
        schemas = [describe_table(connection, parameters, table.oid) for table in tables]
    assembler = Assembler(
        {schema.oid: Lsn(0) for schema in schemas},
        SchemaCatalog(schemas),
        DdlMessages({}),
        lambda _version, _shape: "not in a benchmark",
        TypeOptions(),
    )
    stream = ReplicationStream(
        connect_replication(parameters, "bench"), parameters, slot=slot, publication=publication, start=Lsn(0)
    )
    handoff = HandOff(64 << 20)
    acknowledger = Acknowledger(Lsn(0), lambda _: None)
    reader = Reader(
        stream,
        handoff,
        acknowledger,
        Metrics("bench"),
        Pulse(),
        clock=time.monotonic,
        report_interval_s=10.0,
        probe_interval_s=0.2,
    )
    started, rows, reached = time.perf_counter(), 0, Lsn(0)
    reader.start()
    while reached < until:
        chunk = handoff.get(0.1)
        if chunk is None:
            if reader.error is not None:
                raise reader.error
            continue
        assembled = assembler.feed(chunk)
        rows += sum(len(event) for event in assembled.events if isinstance(event, RowChanges))
        reached = max(reached, assembled.received_lsn)
    wall = time.perf_counter() - started
    reader.finish()
    reader.join()
    return {"rows": rows, "wall_s": wall}


def duckdb(pipeline: Path, until: Lsn) -> dict[str, float]:
    """The whole pipeline up to `until`; wall time from the start of the stream to its durable end."""
    import structlog

    from etl.app import run_replicate
    from etl.config.loader import load_config

    marks: dict[str, float] = {}

    def mark(_logger: object, _method: str, event: dict[str, object]) -> dict[str, object]:
        marks[str(event["event"])] = time.perf_counter()
        return event

    structlog.configure(
        processors=[mark, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    code = run_replicate(load_config(pipeline), until_lsn=until)
    if code:
        raise SystemExit(code)
    return {"rows": 0, "wall_s": marks["streaming_stopped"] - marks["streaming_started"]}


def main() -> None:
    """Run one consumer and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("consumer", choices=("decode", "duckdb"))
    parser.add_argument("--dsn", default="")
    parser.add_argument("--slot", default="")
    parser.add_argument("--publication", default="")
    parser.add_argument("--pipeline", type=Path)
    parser.add_argument("--until", required=True, type=Lsn.parse)
    given = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF)
    if given.consumer == "decode":
        from psycopg.conninfo import conninfo_to_dict

        parameters = {key: str(value) for key, value in conninfo_to_dict(given.dsn).items()}
        result = decode(parameters, given.slot, given.publication, given.until)
    else:
        result = duckdb(given.pipeline, given.until)
    used = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu_s"] = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    result["rss_mb"] = used.ru_maxrss / 1024
    result["threads"] = threading.active_count()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
