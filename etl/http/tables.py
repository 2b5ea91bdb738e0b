"""Finding a table by what a link or a person calls it."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException

from etl.config.reports import TableStatus
from etl.pipeline.observation import Observation


class _TableName(Convertor[str]):
    """Whatever a table may be called, line breaks and slashes included."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


#: In a path: ``{name:table}``.
register_url_convertor("table", _TableName())


def table_named(seen: Observation, name: str) -> TableStatus:
    """The table ``schema.name``; where an older one had the name, the one that is replicated now. Raises a 404."""
    found = [table for table in seen.tables if table.name == name]
    if not found:
        raise HTTPException(404, "no such table in this pipeline")
    return max(found, key=lambda table: (table.state is not None, table.oid))
