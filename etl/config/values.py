"""The scalar types of the configuration: sizes with a unit, durations, paths relative to the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

_SIZE = re.compile(r"(\d+)\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)?")
_UNITS = {"": 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_UNITS |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


class ConfigModel(BaseModel):
    """Base of every section: unknown keys are errors, values do not change, and no message repeats an input."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


def _size(value: object) -> object:
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise PydanticCustomError("size", "must be bytes as a number, or a size such as 64MiB")
        return int(match[1]) * _UNITS[match[2] or ""]
    return _no_bool(value)


def _no_bool(value: object) -> object:
    """YAML reads a bare ``yes`` as true, and Python counts true as 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "must be a whole number")
    return value


def _absolute(path: Path, info: ValidationInfo) -> Path:
    return resolve_path(path, info.context)


def resolve_path(path: Path, context: Any) -> Path:
    """`path` as seen from the directory of the configuration file (`context["base_dir"]`), ``~`` expanded."""
    base = context.get("base_dir") if isinstance(context, dict) else None
    expanded = path.expanduser()
    return base / expanded if isinstance(base, Path) else expanded


#: Stands last: constraints before it keep their meaning in the JSON Schema.
NO_BOOL = BeforeValidator(_no_bool)
Milliseconds = Annotated[int, Field(ge=0), NO_BOOL]
ByteSize = Annotated[
    int,
    BeforeValidator(_size),
    Field(ge=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": rf"^{_SIZE.pattern}$"},
            ]
        }
    ),
]
RelativePath = Annotated[Path, AfterValidator(_absolute)]
