"""From a file, the environment and flags to one validated configuration that knows where every value came from.

Precedence: flag, then environment variable (``ETL__SOURCE__HOST``), then file, then default. An empty variable
counts as not set. Relative paths are relative to the directory of the file, wherever they were given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from etl.config.models import PipelineConfig
from etl.config.problems import describe_problems
from etl.config.shape import place_at
from etl.config.yaml_file import Document, Key, read_document
from etl.errors import ConfigError

ENV_PREFIX = "ETL__"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Flag:
    """A value from the command line: `name` as the user typed it, `key` dotted as in the file."""

    name: str
    key: str
    value: object


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration, and the origin of every value that is not a default."""

    config: PipelineConfig
    file: Path
    origins: Mapping[Key, str]

    def origin(self, key: Key) -> str:
        """``flag --x``, ``env ETL__X``, ``file:LINE`` or ``default``."""
        return next(
            (self.origins[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.origins), "default"
        )


def load_config(
    file: Path, *, flags: Sequence[Flag] = (), environ: Mapping[str, str] | None = None
) -> PipelineConfig:
    """The configuration of a pipeline, ready to run: its secrets can be read and are masked from now on.

    Raises `ConfigError` naming every problem with its place.
    """
    environ = os.environ if environ is None else environ
    config = load(file, flags=flags, environ=environ).config
    for section, connection in (("source", config.source), ("store", config.store)):
        try:
            if connection is not None:
                connection.parameters(environ)
        except ConfigError as error:
            raise ConfigError(f"{section}: {error.message}", hint=error.hint) from None
    return config


def load(file: Path, *, flags: Sequence[Flag] = (), environ: Mapping[str, str] | None = None) -> LoadedConfig:
    """As `load_config`, with origins and without reading secrets: enough to show a configuration."""
    document = read_document(file)
    merged = _Merged(document)
    merged.add_environment(os.environ if environ is None else environ)
    for flag in flags:
        merged.put(tuple(flag.key.split(".")), flag.value, f"flag {flag.name}")
    try:
        config = PipelineConfig.model_validate(
            merged.data, context={"base_dir": document.path.absolute().parent}
        )
    except ValidationError as error:
        raise _config_error(document, merged, error) from None
    return LoadedConfig(config, document.path, merged.origins)


def _config_error(document: Document, merged: _Merged, error: ValidationError) -> ConfigError:
    problems = describe_problems(PipelineConfig, error, merged.where)
    if len(problems) == 1:
        message = f"the configuration is wrong at {problems[0]}"
    else:
        message = "\n  ".join([f"the configuration {document.path} has {len(problems)} problems:", *problems])
    return ConfigError(message, hint="all keys: docs/reference/configuration.md or `etl config schema`")


class _Merged:
    """Nested data under construction: later layers replace scalars and lists, and fill sections key by key."""

    def __init__(self, document: Document) -> None:
        self._path = document.path
        self.data = document.data
        self.origins: dict[Key, str] = {key: f"file:{line}" for key, line in document.lines.items()}

    def add_environment(self, environ: Mapping[str, str]) -> None:
        for name in sorted(environ):
            if name.startswith(ENV_PREFIX) and environ[name]:
                key = tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))
                self.put(key, _parse(name, key, environ[name]), f"env {name}")

    def put(self, key: Key, value: object, origin: str) -> None:
        section: dict[Any, Any] = self.data
        for depth, part in enumerate(key[:-1], start=1):
            below = section.get(part)
            replaces = place_at(PipelineConfig, key[:depth]).is_secret
            if not isinstance(below, dict) or replaces:
                self._forget(key[:depth])
                below = {}
            # a copy: an alias of the file may share the section with another key
            section[part] = below = dict(below)
            section = below
        self._forget(key)
        section[key[-1]] = value
        self.origins[key] = origin

    def _forget(self, key: Key) -> None:
        for known in [known for known in self.origins if known[: len(key)] == key]:
            del self.origins[known]

    def where(self, key: Key) -> str:
        """The place to look at for a problem with `key`: its own, or that of the section it is missing from."""
        below = (origin for known, origin in self.origins.items() if known[: len(key)] == key)
        above = (self.origins.get(key[:length]) for length in range(len(key), 0, -1))
        origin = self.origins.get(key) or next(below, None) or next(filter(None, above), "file")
        return origin.replace("file", str(self._path), 1) if origin.startswith("file") else origin


def _parse(name: str, key: Key, text: str) -> object:
    """Variables hold text; where the model wants a list or a section they hold JSON."""
    if not place_at(PipelineConfig, key).is_structured:
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(
            f"env {name}: {'.'.join(map(str, key))} must be JSON here",
            hint=f"or set its keys one by one, such as {name}__NAME",
        ) from None
