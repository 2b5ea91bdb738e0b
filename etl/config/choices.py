"""The closed sets of words a configuration may use; apart from the models, which take long to import."""

from __future__ import annotations

from typing import Literal

Mode = Literal["mirror", "changelog"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
