"""Where tables live, purely: the SQL name and the folder of every table, whatever its source calls it.

A name of Postgres may hold anything. Outside ``A-Z a-z 0-9 _`` every character becomes ``_x<code>_``, and an underscore
that could be read as the beginning of such a group is itself written so, hence two names never become one and none can
leave its folder.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from etl.destinations.delta.config import DeltaSettings
from etl.destinations.delta.dialect import quote
from etl.destinations.naming import split_name

#: The schema of what belongs to no source table.
RESERVED: Final = "_etl"

#: What ends a group is an underscore, be it the name's own or the first letter of the next escaped character.
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9_]|_(?=x[0-9a-f]*[^A-Za-z0-9])")
_MAX_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Place:
    """One table: its name in SQL, and its folder where it is a path and not a catalog's."""

    sql: str
    folder: str | None = None


class Places:
    """The places of one lake."""

    def __init__(self, settings: DeltaSettings) -> None:
        self._root = settings.path.rstrip("/") if settings.path is not None else None
        self._catalog = settings.catalog

    @property
    def is_catalog(self) -> bool:
        """Whether a catalog keeps the tables."""
        return self._root is None

    def table(self, name: str) -> Place:
        """The place of a `DestinationTable` by its name."""
        schema, table = split_name(name)
        return self._place(escaped(schema), escaped(table))

    def housekeeping(self, table: str) -> Place:
        """The place of one of our own tables."""
        return self._place(RESERVED, table)

    @property
    def housekeeping_folder(self) -> str | None:
        """Where our own tables lie, None where a catalog keeps them."""
        return f"{self._root}/{RESERVED}" if self._root is not None else None

    def namespace(self, name: str) -> str | None:
        """The SQL name of the namespace that a table of this name needs, None where there are none."""
        return self._namespace(escaped(split_name(name)[0]))

    def housekeeping_namespace(self) -> str | None:
        """The SQL name of the namespace of our own tables, None where there are none."""
        return self._namespace(RESERVED)

    def _namespace(self, schema: str) -> str | None:
        return f"{quote(self._catalog)}.{quote(schema)}" if self._catalog is not None else None

    def _place(self, schema: str, table: str) -> Place:
        if self._root is None:
            return Place(f"{self._namespace(schema)}.{quote(table)}")
        folder = f"{self._root}/{schema}/{table}"
        return Place(f"delta.{quote(folder)}", folder)


def escaped(name: str) -> str:
    """A name in the letters that every file system and catalog takes; of two names never the same."""
    text = _ESCAPED.sub(lambda match: f"_x{ord(match[0]):x}_", name)
    if len(text) <= _MAX_LENGTH:
        return text
    return f"{text[: _MAX_LENGTH - 40]}_x_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
