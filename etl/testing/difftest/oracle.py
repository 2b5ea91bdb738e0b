"""What the destination must hold, by the contract: from the source as it is now and from the ledger, nothing else.

For each published table of a mirror:

- the destination's columns are the published ones, attnum by attnum, under the same names;
- a literal default is installed, an expression is not;
- each row of the source is there once, and no other. A value counts when its row was last written under a shape that
  showed the column; else the row is older than the column, and holds NULL: existing rows are not filled.

A table that etl set aside must have a reason that its history explains. What this does not decide is left open: the rows of
a table that was copied anew meanwhile may show what the source shows, or NULL.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etl.testing.difftest.catalog import Connection, quoted
from etl.testing.difftest.ledger import STAMP
from etl.testing.difftest.matching import Cell, Pattern, unmatched
from etl.testing.difftest.target import Target, TargetColumn, TargetTable
from etl.testing.harness import PUBLICATION

_PUBLISHED = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, p.attnames::text[], p.rowfilter
  FROM pg_publication_tables p
  JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
 WHERE p.pubname = %s ORDER BY c.relname"""
_COLUMNS = """
SELECT a.attnum::int, a.attname::text, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)
  FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"""
_STATES = """
SELECT table_id::bigint, state::text, coalesce(metadata ->> 'reason', '')
  FROM etl.replication_state WHERE is_current AND pipeline_id = %s"""
_COPIES = """
SELECT table_id::bigint, count(*) FROM etl.replication_state
 WHERE pipeline_id = %s AND state = 'data_sync' GROUP BY 1"""
_SHAPES = """
SELECT s.moment, s.attnum, s.type, s.published FROM difftest.shapes s JOIN difftest.events e USING (moment)
 WHERE e.relid = %s"""
_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET bytea_output = 'hex';"
    " SET extra_float_digits = 3"
)

#: What etl may say of a table it set aside → the event of the ledger that explains it.
_EXCUSES: Sequence[tuple[re.Pattern[str], frozenset[str]]] = (
    (re.compile(r"and cannot take \d+ of the values"), frozenset({"type"})),
    (re.compile(r"was replaced by another table|its name is that of"), frozenset({"rename"})),
    (re.compile(r"RELATION does not match"), frozenset({"unlogged"})),
)
#: The contract's own literals: quoted text, a number or a boolean, in parentheses and under casts.
_LITERAL = re.compile(
    r"\(*(?:'(?:[^']|'')*'|-?\d+(?:\.\d+)?|true|false)\)*(?:::[a-z ]+(?:\(\d+(?:,\d+)?\))?)*\)*"
)
_CONTRACT_TYPES = re.compile(
    r"smallint|integer|bigint|numeric\(\d+,\d+\)|text|character varying\(\d+\)|boolean|date|json|jsonb|uuid"
    r"|real|double precision|time without time zone|timestamp with(out)? time zone"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A table, what kind of thing is wrong with it, and how it looks."""

    table: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.table}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class _Source:
    """A published table at the source; `columns`: attnum → (name, type, default) of those that are published."""

    oid: int
    name: str
    sql: str
    filter: str | None
    columns: Mapping[int, tuple[str, str, str | None]]


class Oracle:
    """Holds one destination against one source. `first_copy`: the tables of the first run, and the moment of its end."""

    def __init__(
        self, connection: Connection, target: Target, pipeline_id: int, first_copy: tuple[frozenset[int], int]
    ) -> None:
        connection.execute(_SETTINGS.encode())
        self._connection = connection
        self._target = target
        self._pipeline_id = pipeline_id
        self._copies: dict[int, int] = dict(connection.execute(_COPIES, (pipeline_id,)).fetchall())
        self._copied_first, self._copied_at = first_copy
        #: Tables that were compared, and of these the ones that were copied anew; tables that were set aside with reason.
        self.compared = self.loosely = self.excused = 0
        self.rows = 0

    def judge(self) -> list[Finding]:
        """Everything that is not as it must be."""
        there: dict[int, list[TargetTable]] = defaultdict(list)
        for table in self._target.tables():
            there[table.oid].append(table)
        states = {
            oid: (state, reason)
            for oid, state, reason in self._connection.execute(_STATES, (self._pipeline_id,)).fetchall()
        }
        findings: list[Finding] = []
        for source in self._published():
            state, reason = states.get(source.oid, ("absent", ""))
            if state == "errored":
                findings += self._excuse(source, reason)
            elif state != "ready":
                findings.append(Finding(source.name, "not settled", f"state {state}"))
            else:
                findings += self._compare(source, there[source.oid])
        return findings

    # --- one table ------------------------------------------------------------------------------------------------

    def _excuse(self, source: _Source, reason: str) -> list[Finding]:
        events = self._events(source.oid)
        if any(pattern.search(reason) and allowed & set(events) for pattern, allowed in _EXCUSES):
            self.excused += 1
            return []
        return [Finding(source.name, "set aside", reason)]

    def _compare(self, source: _Source, found: list[TargetTable]) -> list[Finding]:
        if len(found) != 1:
            return [Finding(source.name, "tables", f"{[table.name for table in found]} at the destination")]
        (table,) = found
        wanted = {attnum: name for attnum, (name, _, _) in source.columns.items()}
        there = {column.attnum: column.name for column in table.columns}
        if wanted != there:
            return [Finding(source.name, "columns", f"source {wanted}, destination {there}")]
        self.compared += 1
        return [*self._defaults(source, table), *self._rows(source, table)]

    def _defaults(self, source: _Source, table: TargetTable) -> list[Finding]:
        findings = []
        for column in table.columns:
            name, kind, expression = source.columns[column.attnum]
            wanted = self._wanted_default(source, column, kind, expression)
            got = None if column.default is None else self._target.default_value(column)
            if got not in wanted:
                detail = f"{name} {kind} DEFAULT {expression}: {column.type} DEFAULT {column.default}"
                findings.append(Finding(source.name, "default", detail))
        return findings

    def _wanted_default(
        self, source: _Source, column: TargetColumn, kind: str, expression: str | None
    ) -> set[str | None]:
        """The values that the destination's default may have; None stands for no default."""
        if expression is None:
            return {None}
        if not _LITERAL.fullmatch(expression):
            return {None}
        value = self._connection.execute(
            f"SELECT {_as_text(f'CAST(({expression}) AS {kind})', kind)}".encode()
        ).fetchone()
        text = self._target.canonical(value[0], column.type) if value else None
        shapes = self._shapes(source.oid)
        kinds = {shape[column.attnum][0] for shape in shapes.values() if column.attnum in shape}
        hidden = any(not shape[column.attnum][1] for shape in shapes.values() if column.attnum in shape)
        if not _CONTRACT_TYPES.fullmatch(kind) or len(kinds) > 1 or hidden:
            return {None, text}
        return {text}

    def _rows(self, source: _Source, table: TargetTable) -> list[Finding]:
        columns = sorted(table.columns, key=lambda column: column.attnum)
        found = self._target.rows(table, columns)
        wanted = self._patterns(source, columns)
        self.rows += len(wanted)
        missing, surplus = unmatched(wanted, found)
        if not missing and not surplus:
            return []
        names = [column.name for column in columns]
        detail = (
            f"{len(missing)} of {len(wanted)} rows missing, {len(surplus)} surplus of {names};"
            f" missing {missing[:3]}; surplus {surplus[:3]}"
        )
        return [Finding(source.name, "rows", detail[:3000])]

    def _patterns(self, source: _Source, columns: Sequence[TargetColumn]) -> list[Pattern]:
        """Per row of the source, what each cell may be."""
        shapes = self._shapes(source.oid)
        kept = self._target.kept_texts(source.oid)
        values = ", ".join(
            _as_text(quoted(source.columns[c.attnum][0]), source.columns[c.attnum][1]) for c in columns
        )
        where = f" WHERE {source.filter}" if source.filter else ""
        rows = self._connection.execute(f"SELECT {STAMP}, {values} FROM {source.sql}{where}".encode())
        copied_anew = (
            source.oid not in self._copied_first
            or self._copies.get(source.oid, 0) != 1
            or self._events(source.oid)["publish"] > 1
        )
        self.loosely += copied_anew
        patterns = []
        # the first copy brought its rows with the columns of that moment
        copied = max((moment for moment in shapes if moment <= self._copied_at), default=0)
        for stamp, *texts in rows.fetchall():
            shape = shapes.get(max(stamp or 0, copied)) if stamp in shapes else None
            cells = []
            for column, text in zip(columns, texts, strict=True):
                value = self._target.canonical(text, column.type)
                is_kept = (column.attnum, text) in kept
                cell: Cell = frozenset({value, None} if is_kept else {value})
                cells.append(_aged(cell, shape, column.attnum, copied_anew=copied_anew))
            patterns.append(tuple(cells))
        return patterns

    def _events(self, oid: int) -> Counter[str]:
        """How often each kind of event happened to the table."""
        rows = self._connection.execute(
            "SELECT what FROM difftest.events WHERE relid = %s", (oid,)
        ).fetchall()
        return Counter(str(row[0]) for row in rows)

    # --- what there is --------------------------------------------------------------------------------------------

    def _published(self) -> list[_Source]:
        found = []
        for oid, schema, name, names, condition in self._connection.execute(
            _PUBLISHED, (PUBLICATION,)
        ).fetchall():
            columns = {
                attnum: (column, kind, default)
                for attnum, column, kind, default in self._connection.execute(_COLUMNS, (oid,)).fetchall()
                if column in names
            }
            sql = f"{quoted(schema)}.{quoted(name)}"
            found.append(_Source(oid, f"{schema}.{name}", sql, condition, columns))
        return found

    def _shapes(self, oid: int) -> dict[int, dict[int, tuple[str, bool]]]:
        """Moment → attnum → (type, published)."""
        shapes: dict[int, dict[int, tuple[str, bool]]] = defaultdict(dict)
        for moment, attnum, kind, published in self._connection.execute(_SHAPES, (oid,)).fetchall():
            shapes[moment][attnum] = (kind, published)
        return shapes


def _aged(
    exact: Cell, shape: Mapping[int, tuple[str, bool]] | None, attnum: int, *, copied_anew: bool
) -> Cell:
    """What may stand at the destination for a value of the source; `shape`: how the table was when its row was written."""
    if shape is None:
        return exact | {None}
    if attnum in shape and shape[attnum][1]:
        return exact
    if not any(published for _, published in shape.values()):
        # written while the table was not published at all: it came with a copy
        return exact | {None}
    return exact | {None} if copied_anew else frozenset({None})


def _as_text(value: str, kind: str) -> str:
    """SQL for a value as Postgres prints it, or as JSON where it is a list that others can hold."""
    # a cast would trim a character(n), and add to an inet
    text = f"CASE WHEN {value} IS NOT NULL THEN format('%s', {value}) END"
    if kind == "boolean":
        text = f"CAST({value} AS text)"
    if not kind.endswith("[]"):
        return text
    plain = f"coalesce(array_ndims({value}), 1) = 1 AND coalesce(array_lower({value}, 1), 1) = 1"
    return f"CASE WHEN {plain} THEN to_json({value})::text ELSE {text} END"
