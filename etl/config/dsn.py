"""Reading a libpq connection string into its parameters (Postgres manual, "Connection Strings")."""

from __future__ import annotations

import re
from urllib.parse import unquote

_URI = re.compile(r"postgres(?:ql)?://", re.ASCII)
_KEY = re.compile(r"\s*(\w+)\s*=\s*", re.ASCII)
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'(?=\s|$)", re.DOTALL)
_BARE = re.compile(r"((?:[^\s'\\]|\\.)*)(?=\s|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_dsn(text: str) -> dict[str, str]:
    """Parameters of a ``postgresql://`` URI or of ``key=value`` text.

    Raises `ValueError`, whose message never repeats the string, for anything else.
    """
    if scheme := _URI.match(text):
        return _parse_uri(text[scheme.end() :])
    return _parse_pairs(text)


def _parse_uri(rest: str) -> dict[str, str]:
    location, _, query = rest.partition("?")
    authority, _, dbname = location.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":") if at else ("", "", "")
    pairs = [_split_host(part) for part in hosts.split(",")]
    ports = [port for _, port in pairs]
    found = {
        "user": user,
        "password": password,
        "host": ",".join(host for host, _ in pairs),
        "port": ",".join(ports) if any(ports) else "",
        "dbname": dbname,
    }
    for assignment in query.split("&") if query else ():
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError("a parameter of the URI has no value")
        found[unquote(key)] = value
    parameters = {key: unquote(value) for key, value in found.items() if value}
    if parameters.pop("ssl", None) == "true":
        parameters["sslmode"] = "require"
    return parameters


def _split_host(text: str) -> tuple[str, str]:
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("the IPv6 address of the URI has no closing bracket")
        return address, rest[1:]
    host, _, port = text.partition(":")
    return host, port


def _parse_pairs(text: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    position = 0
    text = text.rstrip()
    while position < len(text):
        key = _KEY.match(text, position)
        if key is None:
            raise ValueError("it is neither a postgresql:// URI nor a list of key=value")
        value = _QUOTED.match(text, key.end()) or _BARE.match(text, key.end())
        if value is None:
            raise ValueError(f"the value of {key[1]!r} has an unfinished quote")
        parameters[key[1]] = _ESCAPE.sub(r"\1", value[1])
        position = value.end()
    return {key: value for key, value in parameters.items() if value}
