"""A configuration as people read it: every key with its value and where that came from, secrets masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from etl.config.loader import DEFAULT, LoadedConfig
from etl.config.secrets import MASK, Secret, looks_secret
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
        Setting(".".join(map(str, key)), value, loaded.origin(key) if given else DEFAULT)
        for key, value, given in _leaves(loaded.config, (), given=True)
    ]


def _leaves(value: object, key: Key, *, given: bool) -> Iterator[tuple[Key, str | int | bool | None, bool]]:
    if isinstance(value, Secret):
        yield key, value.describe(), given
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            set_here = given and name in value.model_fields_set
            yield from _leaves(getattr(value, name), (*key, name), given=set_here)
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield (*key, name), MASK if looks_secret(name, item) else item, given
    elif isinstance(value, tuple) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, (*key, number), given=given)
    elif isinstance(value, tuple | dict):
        yield key, "[]" if isinstance(value, tuple) else "{}", given
    else:
        yield key, value if isinstance(value, bool | int | None) else str(value), given
