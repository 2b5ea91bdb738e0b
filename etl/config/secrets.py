"""Secrets: written out, taken from an environment variable, or read from a file; masked wherever they are shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Self

from pydantic import GetJsonSchemaHandler, SecretStr, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from etl.config.values import ConfigModel, RelativePath
from etl.errors import ConfigError

MASK = "********"
_SHAPE = "must be text in quotes, {env: NAME} or {file: PATH}"
#: Spark's properties are text, and only their names tell a secret. A provider of credentials is a class.
_NAMES_ONE = re.compile(r"secret|password|token|credential(?!s\.provider)|\b(?:key|sas)\b", re.IGNORECASE)
#: Options of a JVM are pairs in one text.
_HOLDS_ONE = re.compile(r"(?:secret|password|token)\w*=", re.IGNORECASE)


def looks_secret(name: str, value: str) -> bool:
    """Whether a property of Spark is a secret by its name, or holds something that is."""
    return _NAMES_ONE.search(name) is not None or _HOLDS_ONE.search(value) is not None


class Secret(ConfigModel):
    """Text, ``{env: NAME}`` or ``{file: PATH}``; exactly one of them."""

    literal: SecretStr | None = None
    """The secret itself."""
    env: str | None = None
    """Name of the environment variable that holds the secret."""
    file: RelativePath | None = None
    """File that holds the secret; one trailing newline is dropped."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str | SecretStr):
            return {"literal": value}
        if isinstance(value, Mapping | Secret):
            return value
        raise PydanticCustomError("secret_type", _SHAPE)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(part is not None for part in (self.literal, self.env, self.file)) != 1:
            raise PydanticCustomError("secret_type", _SHAPE)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        del core_schema, handler
        references = [
            {
                "type": "object",
                "properties": {key: {"type": "string"}},
                "required": [key],
                "additionalProperties": False,
            }
            for key in ("env", "file")
        ]
        return {"title": "Secret", "description": cls.__doc__, "anyOf": [{"type": "string"}, *references]}

    def reveal(self, environ: Mapping[str, str] | None = None) -> str:
        """The secret. Raises `ConfigError` when the variable is not set or the file cannot be read."""
        if self.literal is not None:
            return self.literal.get_secret_value()
        if self.env is not None:
            value = (os.environ if environ is None else environ).get(self.env)
            if value is None:
                raise ConfigError(
                    f"environment variable {self.env} is not set",
                    hint="set it, or change the reference {env: " + self.env + "} in the configuration",
                )
            return value
        return self._read_file()

    def _read_file(self) -> str:
        try:
            text = str(self.file and self.file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(
                f"cannot read the secret file {self.file}: {reason}",
                hint="check the path (relative to the configuration file) and its permissions",
            ) from None
        return text.removesuffix("\n").removesuffix("\r")

    def describe(self) -> str:
        """Where the secret comes from; never the secret."""
        if self.env is not None:
            return f"environment variable {self.env}"
        return MASK if self.file is None else f"file {self.file}"
