"""A configuration as people read it: every key with its value and where that came from, secrets masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from etl.config.loader import LoadedConfig
from etl.config.secrets import Secret
from etl.config.yaml_file import Key


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the merged configuration. `value` is None where nothing is set."""

    key: str
    value: str | int | bool | None
    origin: str


def explain(loaded: LoadedConfig) -> list[Setting]:
    """Every key in the order of the reference."""
    return [
        Setting(".".join(map(str, key)), value, loaded.origin(key))
        for key, value in _leaves(loaded.config, ())
    ]


def _leaves(value: object, key: Key) -> Iterator[tuple[Key, str | int | bool | None]]:
    if isinstance(value, Secret):
        yield key, value.describe()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), (*key, name))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, (*key, number))
    else:
        yield key, value if isinstance(value, bool | int | None) else str(value)
