"""From what a destination table really is to what it should be: an ordered, restartable plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from etl.ddl.operations import ActualTable, SchemaOperation, SchemaPlan
from etl.schema.defaults import DefaultLiteral
from etl.schema.table import ColumnSchema, ReplicatedTableSchema

RenderDefault = Callable[[ColumnSchema, DefaultLiteral], str | None]


class PlanCapabilities(Protocol):
    """What `plan` must know of a destination; `etl.destinations.base.Capabilities` has this shape."""

    @property
    def rename_column(self) -> bool:
        """Columns can be renamed in place."""

    @property
    def drop_column(self) -> bool:
        """Columns can be dropped."""

    @property
    def set_default(self) -> bool:
        """A literal default can be set on an existing column."""

    @property
    def drop_default(self) -> bool:
        """A default can be removed from an existing column."""

    @property
    def case_insensitive_names(self) -> bool:
        """Two names that differ only in case are one name."""


def plan(
    actual: ActualTable,
    target: ReplicatedTableSchema,
    previous: ReplicatedTableSchema | None,
    capabilities: PlanCapabilities,
    render_default: RenderDefault,
) -> SchemaPlan:
    """Plan the operations that turn `actual` into `target`: drops, renames, adds, defaults.

    `previous` is the version the destination had before the change (None: unknown). Raises `SchemaAmbiguousError`
    when `actual` is not explained by exactly one point on the way, `DestinationTableError` when the destination
    cannot make the change.
    """
    raise NotImplementedError


def apply_operation(
    actual: ActualTable, operation: SchemaOperation, render_default: RenderDefault | None = None
) -> ActualTable:
    """The table after `operation`: the model that tests and an in-memory destination share.

    Without `render_default` a default's normal form is the literal's text.
    """
    raise NotImplementedError
