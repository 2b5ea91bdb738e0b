"""The tables of a DuckDB destination: how they are named, made, described and altered."""

# ruff: noqa: S608 -- names go through `quote`, defaults and comments through `literal`; values are parameters
from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import Final

from etl.ddl.operations import (
    ActualColumn,
    ActualTable,
    AddColumn,
    DropColumn,
    DropDefault,
    RenameColumn,
    SchemaOperation,
    SetDefault,
)
from etl.destinations.base import DestinationTable, TableMode
from etl.destinations.duckdb.changelog import METADATA_COLUMNS
from etl.destinations.duckdb.dialect import (
    column_type,
    literal,
    quote,
    render_default,
    same_name,
)
from etl.destinations.duckdb.housekeeping import SCHEMA, Housekeeping
from etl.destinations.duckdb.session import Row, Session
from etl.destinations.duckdb.shape import TableShape
from etl.destinations.naming import split_name, tagged_attnum, tagged_comment
from etl.destinations.refusals import key_without_values, refuse_columns, rows_without_key, table_gone
from etl.errors import DestinationTableError
from etl.schema.defaults import parse_default
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.schema.types import TypeOptions

#: The comment on columns that belong to no source column.
_METADATA: Final = "etl:metadata"
#: DuckDB's own column, unless the table has one of that name.
_ROW_NUMBER: Final = "rowid"
#: What the name of a table begins with that collects the rows of a copy.
COPY_PREFIX: Final = "_etl_copy_"
_RESERVED_SCHEMAS: Final = {SCHEMA, "information_schema", "pg_catalog"}


class Catalog:
    """Tables and their columns. Every method that writes is called inside a transaction."""

    def __init__(self, session: Session, housekeeping: Housekeeping, options: TypeOptions) -> None:
        self._session = session
        self._housekeeping = housekeeping
        self._options = options
        #: By name: a table and its copy beside it have one oid. Threads share it; no two change one table.
        self._shapes: dict[str, TableShape] = {}

    def forget_shape(self, table: DestinationTable) -> None:
        """Look again at a table when it is next needed."""
        self._shapes.pop(table.name, None)

    def forget_shapes(self) -> None:
        """Look again at every table: a transaction was rolled back."""
        self._shapes.clear()

    def sql_name(self, table: DestinationTable) -> str:
        """The quoted name in three parts."""
        schema, name = split_name(table.name)
        return f"{self._schema(schema)}.{quote(name)}"

    def shape(self, table: DestinationTable) -> TableShape:
        """The table as it is now. Raises `DestinationTableError` when it is gone."""
        known = self._shapes.get(table.name)
        if known is None:
            actual = self.describe(table)
            if actual is None:
                raise table_gone(table.name)
            known = self._shapes[table.name] = TableShape(table, actual.columns, self.sql_name(table))
        return known

    def describe(self, table: DestinationTable) -> ActualTable | None:
        """The source's columns of the table, or None when there is no such table."""
        rows = self._columns(table)
        columns = tuple(
            ActualColumn(name, data_type, tagged_attnum(table.oid, comment), default)
            for name, data_type, default, comment in rows
            if comment != _METADATA
        )
        return ActualTable(columns) if rows else None

    def check_schema(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Raise `DestinationTableError` for names that DuckDB, or a table already here, rules out."""
        self._check_name(table)
        metadata = METADATA_COLUMNS if table.mode is TableMode.CHANGELOG else {}
        seen = refuse_columns(table, schema, metadata, same_name, "DuckDB")
        counted = table.mode is TableMode.MIRROR and not schema.key_columns and schema.old_image_is_full
        if counted and _ROW_NUMBER in seen:
            raise DestinationTableError(
                f"{seen[_ROW_NUMBER]} hides the row number by which DuckDB tells equal rows apart",
                hint="rename the column, give the table a primary key, or keep it in changelog mode",
                table=table.name,
            )

    def check_existing_rows(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Raise `DestinationTableError` when rows have no value for a key column."""
        actual = self.describe(table)
        if actual is None or table.mode is TableMode.CHANGELOG or not schema.key_columns:
            return
        lacking = rows_without_key(actual, schema, quote)
        if self._session.rows(f"SELECT 1 FROM {self.sql_name(table)} WHERE {lacking} LIMIT 1"):
            raise key_without_values(table, schema)

    def create(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Create a table empty; there is none of this name."""
        self.forget_shape(table)
        self._session.run(f"CREATE SCHEMA IF NOT EXISTS {self._schema(split_name(table.name)[0])}")
        metadata = METADATA_COLUMNS if table.mode is TableMode.CHANGELOG else {}
        definitions = [self._definition(column) for column in schema.columns]
        definitions += [f"{quote(name)} {data_type}" for name, data_type in metadata.items()]
        self._session.run(f"CREATE TABLE {self.sql_name(table)} ({', '.join(definitions)})", table=table.name)
        for column in schema.columns:
            self._comment(table, column.name, tagged_comment(table.oid, column))
        for name in metadata:
            self._comment(table, name, _METADATA)

    def drop(self, table: DestinationTable) -> None:
        """Drop the table that this source table has here, under whatever name, and all that is stored about it."""
        self.forget_shape(table)
        registered = self._housekeeping.registered(table)
        if registered is not None:
            self.drop_named(registered.schema, registered.name)
        self._housekeeping.forget(table)

    def drop_named(self, schema: str, name: str) -> None:
        """Drop a table by its name, if it is there."""
        self._session.run(f"DROP TABLE IF EXISTS {self._schema(schema)}.{quote(name)}")

    def rename(self, table: DestinationTable, name: str) -> None:
        """Give a table another name in its schema."""
        self.forget_shape(table)
        self._session.run(f"ALTER TABLE {self.sql_name(table)} RENAME TO {quote(name)}")

    def execute(self, table: DestinationTable, operation: SchemaOperation) -> None:
        """Execute one schema operation."""
        self.forget_shape(table)
        action = self._action(operation)
        if action is not None:
            self._session.run(f"ALTER TABLE {self.sql_name(table)} {action}", table=table.name)
        if isinstance(operation, AddColumn):
            self._comment(table, operation.column.name, tagged_comment(table.oid, operation.column))

    def _action(self, operation: SchemaOperation) -> str | None:
        match operation:
            case AddColumn(column):
                return f"ADD COLUMN {quote(column.name)} {column_type(column, self._options)}"
            case RenameColumn(_, name, new_name):
                return f"RENAME COLUMN {quote(name)} TO {quote(new_name)}"
            case DropColumn(_, name):
                return f"DROP COLUMN {quote(name)}"
            case SetDefault(column, default):
                rendered = render_default(column, default, self._options)
                return rendered and f"ALTER COLUMN {quote(column.name)} SET DEFAULT {rendered}"
            case DropDefault(_, name):
                return f"ALTER COLUMN {quote(name)} DROP DEFAULT"

    def _definition(self, column: ColumnSchema) -> str:
        definition = f"{quote(column.name)} {column_type(column, self._options)}"
        parsed = parse_default(column.default_expression, column.type_oid)
        rendered = None if parsed is None else render_default(column, parsed, self._options)
        return definition if rendered is None else f"{definition} DEFAULT {rendered}"

    def _comment(self, table: DestinationTable, column: str, text: str) -> None:
        self._session.run(
            f"COMMENT ON COLUMN {self.sql_name(table)}.{quote(column)} IS {literal(text)}", table=table.name
        )

    def _columns(self, table: DestinationTable) -> list[Row]:
        """Name, type, default and comment of every column, metadata columns included.

        A schema may be there already in another case than this table's source spells it.
        """
        schema, name = map(same_name, split_name(table.name))
        same = f"translate({{}}, '{ascii_uppercase}', '{ascii_lowercase}') = {{}}"
        return self._session.rows(
            "SELECT column_name, data_type, column_default, comment FROM duckdb_columns()"
            f" WHERE database_name = {literal(self._session.catalog)}"
            f" AND {same.format('schema_name', literal(schema))} AND {same.format('table_name', literal(name))}"
            " ORDER BY column_index"
        )

    def _schema(self, schema: str) -> str:
        return f"{quote(self._session.catalog)}.{quote(schema)}"

    def _check_name(self, table: DestinationTable) -> None:
        schema, name = split_name(table.name)
        if same_name(schema) in _RESERVED_SCHEMAS:
            raise DestinationTableError(
                f"the schema name {schema!r} is reserved here",
                hint=f"replicate {name!r} from a schema of another name",
                table=table.name,
            )
        if same_name(name).startswith(COPY_PREFIX):
            raise DestinationTableError(
                f"table names that begin with {COPY_PREFIX} are reserved here for copies under way",
                hint="rename the source table, or leave it out of the publication",
                table=table.name,
            )
        owner = self._housekeeping.other_owner(table)
        if owner is not None:
            raise DestinationTableError(
                f"its name is that of {owner} here already; DuckDB ignores the case of names",
                hint="rename one of the two source tables, or leave one out of the publication",
                table=table.name,
            )

    def refuse_foreign(self, table: DestinationTable) -> None:
        """Raise `DestinationTableError` when a table or view that is not ours stands where this one should."""
        schema, name = split_name(table.name)
        wanted = (same_name(schema), same_name(name))
        there = self._session.rows(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?"
            " UNION ALL SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = ?",
            (self._session.catalog, self._session.catalog),
        )
        registered = self._housekeeping.registered(table)
        if registered is not None and wanted == (same_name(registered.schema), same_name(registered.name)):
            return
        if wanted in {(same_name(row[0]), same_name(row[1])) for row in there}:
            raise DestinationTableError(
                "a table or view of this name is there already and was not made by this pipeline",
                hint="rename or drop it; it is never overwritten",
                table=table.name,
            )
