"""Reading the YAML file: plain data only, and where in the file every key stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from etl.errors import ConfigError

Key = tuple[str | int, ...]

MAX_BYTES = 1024 * 1024
#: A file of aliases of aliases is small and expands without end.
MAX_NODES = 10_000


@dataclass(frozen=True, slots=True)
class Document:
    """The file's data, and the line (1-based) of every key and list item by its path."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[Key, int]


def read_document(path: Path) -> Document:
    """Read one YAML mapping. Raises `ConfigError` naming file, line and column."""
    text = _read_text(path)
    try:
        lines, data = _parse(path, text)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, error) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{path}:{line} is not YAML text: {error.reason}", hint="remove control characters"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} holds a value that cannot be read ({type(error).__name__})", hint="quote it"
        ) from None
    if not isinstance(data, dict):
        found = "is empty" if data is None else "holds no keys at its top"
        raise ConfigError(
            f"{path} {found}", hint="start from examples/quickstart.yaml, or see `etl config schema`"
        )
    return Document(path, data, lines)


def _parse(path: Path, text: str) -> tuple[Mapping[Key, int], object]:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines = _Index(path).of(node)
        return lines, loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration file {path}: {error.strerror}",
            hint="name it with --pipeline FILE or ETL_PIPELINE",
        ) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES} bytes", hint="is this the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line} is not UTF-8 text", hint="save the file as UTF-8") from None


def _syntax_error(path: Path, error: yaml.MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
    hint = "check the indentation and quotes around this place"
    if "could not determine a constructor" in str(error.problem):
        hint = "the file is read as plain data: remove the tag"
    return ConfigError(f"{where}: {error.problem or error.context or 'not YAML'}", hint=hint)


class _Index:
    """Collects the lines of keys, and refuses what YAML allows and no one means."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[Key, int] = {}
        self._seen = 0

    def of(self, node: yaml.Node | None) -> Mapping[Key, int]:
        if node is not None:
            self._visit(node, ())
        return self._lines

    def _visit(self, node: yaml.Node, key: Key) -> None:
        self._seen += 1
        if self._seen > MAX_NODES:
            raise ConfigError(f"{self._path} expands to too many values", hint="remove nested aliases")
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, key)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self._lines[*key, number] = item.start_mark.line + 1
                self._visit(item, (*key, number))

    def _visit_mapping(self, node: yaml.MappingNode, key: Key) -> None:
        for name, value in node.value:
            line = name.start_mark.line + 1
            if name.tag == "tag:yaml.org,2002:merge":
                self._visit(value, (*key, "<<"))
                continue
            if name.tag != "tag:yaml.org,2002:str":
                raise ConfigError(f"{self._path}:{line}: a key must be plain text", hint="quote it")
            here = (*key, str(name.value))
            if here in self._lines:
                raise ConfigError(
                    f"{self._path}:{line}: {'.'.join(map(str, here))} is given twice",
                    hint=f"it is already on line {self._lines[here]}; remove one of them",
                )
            self._lines[here] = line
            self._visit(value, here)
