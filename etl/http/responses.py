"""What every answer has in common: who may use it, and that it is not kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from etl.config.figures import to_plain

#: Everything comes from here: no script, style or image of others, no frame, no form.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class CommonHeaders:
    """Adds the headers to every answer, errors among them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class AllowedHosts:
    """Refuses to answer under other names: a page of the web can have its own name point here, and read what we say to it."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        """`hosts` without ports; ``*`` stands for all."""
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and "*" not in self._hosts:
            asked = Headers(scope=scope).get("host", "")
            if host_name(asked) not in self._hosts:
                refusal = Response("this server does not go by that name; see http.allowed_hosts\n", 421)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def host_name(header: str) -> str:
    """The name in a Host header, without its port and the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def as_json(value: object, status: int = 200) -> Response:
    """A report as JSON, written as `etl … --json` writes it."""
    body = orjson.dumps(to_plain(value), option=orjson.OPT_INDENT_2) + b"\n"
    return Response(body, status, media_type="application/json")
