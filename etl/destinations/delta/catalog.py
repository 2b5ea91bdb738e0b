"""The tables of a Delta destination: how they are named, made, described and altered."""

# ruff: noqa: S608 -- names go through `quote`, comments through `literal`, defaults are rendered by the dialect
from __future__ import annotations

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
from etl.destinations.change_rows import METADATA
from etl.destinations.delta.config import DeltaSettings
from etl.destinations.delta.dialect import column_type, literal, quote, render_default, same_name, type_of
from etl.destinations.delta.housekeeping import Housekeeping
from etl.destinations.delta.places import RESERVED, Places
from etl.destinations.delta.session import Session
from etl.destinations.delta.shape import TableShape
from etl.destinations.delta.stamp import Stamp
from etl.destinations.delta.storage import Folder
from etl.destinations.naming import split_name, tagged_attnum, tagged_comment
from etl.destinations.refusals import key_without_values, refuse_columns, rows_without_key, table_gone
from etl.errors import DestinationTableError
from etl.schema.defaults import parse_default
from etl.schema.table import ColumnSchema, ReplicatedTableSchema

#: The comment on columns that belong to no source column.
_METADATA_COMMENT: Final = "etl:metadata"
_DEFAULT: Final = "CURRENT_DEFAULT"
#: Columns that Delta adds to the change data feed.
_FEED_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")


class Catalog:
    """Tables and their columns."""

    def __init__(
        self, session: Session, housekeeping: Housekeeping, places: Places, settings: DeltaSettings
    ) -> None:
        self._session = session
        self._housekeeping = housekeeping
        self._places = places
        self._settings = settings
        #: By name: a table and its copy beside it have one oid. Threads share it; no two change one table.
        self._shapes: dict[str, TableShape] = {}

    def shape(self, table: DestinationTable) -> TableShape:
        """The table as it was when last looked at. Raises `DestinationTableError` when it is gone."""
        known = self._shapes.get(table.name)
        if known is None:
            actual = self.describe(table)
            if actual is None:
                raise table_gone(table.name)
            known = TableShape(table, actual.columns, self._places.table(table.name))
            self._shapes[table.name] = known
        return known

    def forget_shape(self, table: DestinationTable) -> None:
        """Look at the table again when it is next needed."""
        self._shapes.pop(table.name, None)

    def describe(self, table: DestinationTable) -> ActualTable | None:
        """The source's columns of the table, or None when there is no such table."""
        schema = self._session.schema(self._places.table(table.name).sql)
        if schema is None:
            return None
        columns = [
            ActualColumn(
                field.name,
                field.dataType.simpleString(),
                tagged_attnum(table.oid, field.metadata.get("comment")),
                field.metadata.get(_DEFAULT),
            )
            for field in schema.fields
            if field.metadata.get("comment") != _METADATA_COMMENT
        ]
        return ActualTable(tuple(columns))

    def check_schema(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Raise `DestinationTableError` for names that Delta, or a table already here, rules out."""
        self._check_name(table)
        refuse_columns(table, schema, self._reserved_columns(table), same_name, "Spark")

    def check_existing_rows(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Raise `DestinationTableError` when rows have no value for a key column."""
        actual = self.describe(table)
        if actual is None or table.mode is TableMode.CHANGELOG or not schema.key_columns:
            return
        place, lacking = self._places.table(table.name).sql, rows_without_key(actual, schema, quote)
        if self._session.rows(f"SELECT 1 FROM {place} WHERE {lacking} LIMIT 1", table.name):
            raise key_without_values(table, schema)

    def create(
        self, session: Session, table: DestinationTable, schema: ReplicatedTableSchema, stamp: Stamp
    ) -> None:
        """Create the table empty, or replace one of the same source table, whose history stays.

        `session` is the calling thread's own.
        """
        self.check_schema(table, schema)
        self.refuse_foreign(table)
        registered = self._housekeeping.registered(table)
        if registered is not None and registered.name != table.name:
            self.drop(table)
        if registered is None or registered.name != table.name:
            self._housekeeping.register(table, schema.qualified_name)
        namespace = self._places.namespace(table.name)
        if namespace is not None:
            session.rows(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        self.create_empty(session, table, schema, stamp)
        self._housekeeping.drop_exact(table.oid)

    def create_empty(
        self, session: Session, table: DestinationTable, schema: ReplicatedTableSchema, stamp: Stamp
    ) -> None:
        """The table alone, in place of one that is there."""
        self.forget_shape(table)
        verb = "CREATE" if self.describe(table) is None else "REPLACE"
        definitions = [self._definition(table, column) for column in schema.columns]
        if table.mode is TableMode.CHANGELOG:
            definitions += [_metadata_definition(field.name) for field in METADATA]
        session.commit(
            f"{verb} TABLE {self._places.table(table.name).sql} ({', '.join(definitions)}) USING delta"
            f" TBLPROPERTIES ({self._table_properties()})",
            stamp,
            table.name,
        )

    def create_like(
        self, session: Session, table: DestinationTable, other: DestinationTable, stamp: Stamp
    ) -> None:
        """Create the table empty, with the columns of another, in place of one of its source table's former name."""
        self.drop(table)
        self._housekeeping.register(table, table.name)
        namespace = self._places.namespace(table.name)
        if namespace is not None:
            session.rows(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        session.commit(
            f"CREATE TABLE {self._places.table(table.name).sql} USING delta TBLPROPERTIES ({self._table_properties()})"
            f" AS SELECT * FROM {self._places.table(other.name).sql} WHERE false",
            stamp,
            table.name,
        )

    def refuse_foreign(self, table: DestinationTable) -> None:
        """Raise `DestinationTableError` when a table that is not ours stands where this one should."""
        registered = self._housekeeping.registered(table)
        is_ours = registered is not None and registered.name == table.name
        if not is_ours and self.describe(table) is not None:
            raise DestinationTableError(
                "a table of this name is there already and was not made by this pipeline",
                hint="rename or drop it; it is never overwritten",
                table=table.name,
            )

    def drop(self, table: DestinationTable) -> None:
        """Drop the table that this source table has here, under whatever name, and all that is stored about it."""
        self.forget_shape(table)
        registered = self._housekeeping.registered(table)
        if registered is not None:
            self.drop_named(registered.name)
        self._housekeeping.forget(table)

    def drop_named(self, name: str) -> None:
        """Drop a table of ours by its name, with its files and versions; no error when it is not there."""
        place = self._places.table(name)
        if place.folder is not None:
            Folder.at(place.folder).delete()
        else:
            self._session.rows(f"DROP TABLE IF EXISTS {place.sql}", name)

    def execute(self, table: DestinationTable, operation: SchemaOperation, stamp: Stamp) -> None:
        """Execute one schema operation."""
        self.forget_shape(table)
        place = self._places.table(table.name).sql
        self._session.commit(f"ALTER TABLE {place} {self._action(table, operation)}", stamp, table.name)

    def _action(self, table: DestinationTable, operation: SchemaOperation) -> str:
        match operation:
            case AddColumn(column):
                return f"ADD COLUMNS ({self._plain_definition(table, column)})"
            case RenameColumn(_, name, new_name):
                return f"RENAME COLUMN {quote(name)} TO {quote(new_name)}"
            case DropColumn(_, name):
                return f"DROP COLUMN {quote(name)}"
            case SetDefault(column, default):
                rendered = render_default(column, default, self._settings.types)
                return f"ALTER COLUMN {quote(column.name)} SET DEFAULT {rendered}"
            case DropDefault(_, name):
                return f"ALTER COLUMN {quote(name)} DROP DEFAULT"

    def _plain_definition(self, table: DestinationTable, column: ColumnSchema) -> str:
        tag = literal(tagged_comment(table.oid, column))
        return f"{quote(column.name)} {column_type(column, self._settings.types)} COMMENT {tag}"

    def _definition(self, table: DestinationTable, column: ColumnSchema) -> str:
        definition = self._plain_definition(table, column)
        parsed = parse_default(column.default_expression, column.type_oid)
        rendered = None if parsed is None else render_default(column, parsed, self._settings.types)
        return definition if rendered is None else f"{definition} DEFAULT {rendered}"

    def _table_properties(self) -> str:
        """Features are asked for at creation: a column that needs one can then be added by one statement."""
        properties = {
            "delta.columnMapping.mode": "name",
            "delta.feature.allowColumnDefaults": "supported",
            "delta.feature.timestampNtz": "supported",
            "delta.enableDeletionVectors": str(self._settings.deletion_vectors).lower(),
            "delta.enableChangeDataFeed": str(self._settings.change_data_feed).lower(),
        }
        return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())

    def _reserved_columns(self, table: DestinationTable) -> tuple[str, ...]:
        metadata = tuple(METADATA.names) if table.mode is TableMode.CHANGELOG else ()
        return metadata + (_FEED_COLUMNS if self._settings.change_data_feed else ())

    def _check_name(self, table: DestinationTable) -> None:
        schema, name = split_name(table.name)
        if same_name(schema) == RESERVED:
            raise DestinationTableError(
                f"the schema name {schema!r} is reserved here",
                hint=f"replicate {name!r} from a schema of another name",
                table=table.name,
            )
        owner = self._housekeeping.other_owner(table)
        if owner is not None:
            raise DestinationTableError(
                f"its name is that of {owner.source} (oid {owner.oid}, pipeline {owner.pipeline_id}) here already;"
                " Spark ignores the case of names",
                hint="rename one of the two source tables, or leave one out of the publication",
                table=table.name,
            )


def _metadata_definition(name: str) -> str:
    return f"{quote(name)} {type_of(METADATA.field(name).type)} COMMENT {literal(_METADATA_COMMENT)}"
