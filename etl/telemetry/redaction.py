"""Masking: nothing that leaves the process as text may hold a known secret or the password of a connection string."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus

MASK = "********"

#: Shorter values would mask half of every sentence, and protect nothing.
MIN_SECRET_LENGTH = 4

_URI_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@?#]*:)[^\s/?#]+(?=@)", re.IGNORECASE)
_PAIR_PASSWORD = re.compile(
    r"(\b\w*(?:password|passwd|secret)['\"]?\s*[=:]\s*)(?!\{(?:env|file)\b)"
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;&'"]+)""",
    re.IGNORECASE,
)


class Redactor:
    """Masks the values it was told and everything that looks like a password in a connection string."""

    def __init__(self) -> None:
        self._secrets: tuple[str, ...] = ()

    def register(self, secret: str) -> None:
        """Mask `secret`, and its percent-encoded forms, from now on."""
        if len(secret) < MIN_SECRET_LENGTH:
            return
        forms = {secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
        # longest first: one secret may be part of another; a new tuple, so that other threads never see half a change
        self._secrets = tuple(sorted({*self._secrets, *forms}, key=len, reverse=True))

    def redact(self, text: str) -> str:
        """`text` without secrets."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        if "://" in text:
            text = _URI_PASSWORD.sub(rf"\1{MASK}", text)
        return _PAIR_PASSWORD.sub(rf"\1{MASK}", text)


#: One per process, as the log it protects.
_PROCESS = Redactor()


def register_secret(secret: str) -> None:
    """Keep `secret` out of every log line and error message of this process."""
    _PROCESS.register(secret)


def redact(text: str) -> str:
    """`text` without known secrets and passwords of connection strings."""
    return _PROCESS.redact(text)
