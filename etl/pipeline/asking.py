"""What `etl tables` asks of a pipeline: find the tables, record the requests, wait for the process that runs it to answer.

A request is a row in the state store, which anybody may add. The daemon carries it out and settles it with an outcome; a
pipeline that is not running does so when it starts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from etl.config.models import PipelineConfig
from etl.config.reports import RequestReport, RequestState, TablePhase, TableStatus
from etl.errors import ConfigError, TableSourceError
from etl.pipeline.reports import tables
from etl.source.connection import connect_query
from etl.source.publication import published_tables
from etl.store.base import REFUSED, StateStore, TableVerb

_POLL_S = 0.2

#: Which tables a verb without names is about.
EVERY = {TableVerb.RESUME: TablePhase.PAUSED, TableVerb.RETRY: TablePhase.ERROR}


def ask(
    config: PipelineConfig, store: StateStore, names: Sequence[str], verb: TableVerb, wait_s: float | None
) -> list[RequestReport]:
    """Record a request per table and say what became of it; None does not wait for that.

    Without names it is about all tables that are as `EVERY` says. Raises `ConfigError` for a name that no table has, or
    several, and `TableSourceError` for what makes no sense while the publication is as it is; nothing is recorded then.
    """
    known = tables(config, store)
    if names:
        chosen = list(dict.fromkeys(_find(known, name) for name in names))
    else:
        chosen = [table for table in known if table.phase is EVERY[verb]]
    if verb is TableVerb.DROP:
        _refuse_published(config, chosen)
    else:
        _refuse_left(config, chosen)
    numbers = [store.request(table.oid, verb) for table in chosen]
    outcomes, otherwise = _outcomes(store, numbers, wait_s)
    return [
        _report(number, table.name, verb, outcomes.get(number), otherwise)
        for number, table in zip(numbers, chosen, strict=True)
    ]


def _find(known: Sequence[TableStatus], name: str) -> TableStatus:
    """The one table of a name, or of an oid."""
    found = [table for table in known if name in (table.name, str(table.oid))]
    if not found:
        names = ", ".join(table.name for table in known) or "none yet"
        raise ConfigError(f"no table {name} in this pipeline", hint=f"its tables: {names}")
    if len(found) > 1:
        oids = ", ".join(f"{table.oid} ({table.phase})" for table in found)
        raise ConfigError(
            f"{name} is the name of {len(found)} tables", hint=f"give the oid in its place: {oids}"
        )
    return found[0]


def _refuse_published(config: PipelineConfig, chosen: Sequence[TableStatus]) -> None:
    publication, parameters = config.pipeline.publication, config.source.parameters()
    with connect_query(parameters, f"tables:{config.pipeline.id}") as connection:
        published = {table.oid: table for table in published_tables(connection, parameters, publication)}
    for table in chosen:
        if table.oid in published:
            there = published[table.oid]
            raise TableSourceError(
                f"publication {publication} still has the table, so it would be copied again",
                hint=f"first, on the source: ALTER PUBLICATION {_quoted(publication)}"
                f" DROP TABLE {_quoted(there.schema)}.{_quoted(there.name)}",
                table=table.name,
            )


def _refuse_left(config: PipelineConfig, chosen: Sequence[TableStatus]) -> None:
    for table in chosen:
        if table.phase is TablePhase.LEFT:
            raise TableSourceError(
                "the table left the publication; only its rows at the destination are there",
                hint=f"ALTER PUBLICATION {_quoted(config.pipeline.publication)} ADD TABLE … copies it anew,"
                " `etl tables drop` deletes it at the destination",
                table=table.name,
            )


def _outcomes(
    store: StateStore, numbers: Sequence[int], wait_s: float | None
) -> tuple[dict[int, str], RequestState]:
    """The outcomes that came in time, and what is to be said of the requests without one."""
    deadline = time.monotonic() + (wait_s or 0)
    while True:
        running = _is_running(store)  # asked first, for a process may end right after its last answer
        found = {number: store.request_outcome(number) for number in numbers}
        outcomes = {number: outcome for number, outcome in found.items() if outcome is not None}
        if not running:
            return outcomes, RequestState.RECORDED
        if wait_s is None:
            return outcomes, RequestState.ASKED
        if len(outcomes) == len(found) or time.monotonic() >= deadline:
            return outcomes, RequestState.LATE
        time.sleep(_POLL_S)


def _is_running(store: StateStore) -> bool:
    owner = store.owner()
    return owner is not None and owner.holder is not None


def _report(
    number: int, table: str, verb: TableVerb, outcome: str | None, otherwise: RequestState
) -> RequestReport:
    if outcome is None:
        return RequestReport(number, table, verb.value, otherwise)
    refused = outcome.startswith(REFUSED)
    state = RequestState.REFUSED if refused else RequestState.DONE
    return RequestReport(number, table, verb.value, state, outcome.removeprefix(REFUSED))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
