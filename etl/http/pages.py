"""The pages: templates of our own, laid out on the server; without the script they are complete, only not live."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from types import SimpleNamespace

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import etl
from etl.config.figures import human_time
from etl.http.tables import table_named
from etl.http.views import overview, table_page
from etl.pipeline.observation import Observation

_FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Pages:
    """Answers with HTML. `clock` tells the time of day."""

    def __init__(
        self, look: Callable[[], Observation], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._look = look
        self._clock = clock
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("etl.http"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._static = {name: files("etl.http").joinpath("static", name).read_bytes() for name in _FILES}

    def routes(self) -> list[BaseRoute]:
        """Where the pages and what they load are."""
        return [
            Route("/", self.overview),
            Route("/tables/{name:table}", self.table),
            Route("/static/{name}", self.static),
        ]

    async def overview(self, _: Request) -> Response:
        """The pipeline."""
        now = self._clock()
        return self._render("overview.html", overview(self._look(), now), now)

    async def table(self, request: Request) -> Response:
        """One table."""
        seen, now = self._look(), self._clock()
        table = table_named(seen, request.path_params["name"])
        return self._render("table.html", table_page(seen, table, now), now)

    async def static(self, request: Request) -> Response:
        """Style, script and icon."""
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404, "no such file")
        return Response(self._static[name], media_type=_FILES[name], headers={"cache-control": "no-cache"})

    async def failed(self, request: Request, error: Exception) -> Response:
        """A page for people, a line for machines."""
        status, said = (
            (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "an error")
        )
        headers = error.headers if isinstance(error, HTTPException) else None
        if "text/html" not in request.headers.get("accept", ""):
            return Response(f"{said}\n", status, headers, media_type="text/plain")
        page = self._render("missing.html", SimpleNamespace(said=said), self._clock(), status)
        page.headers.update(headers or {})
        return page

    def _render(self, template: str, page: object, now: datetime, status: int = 200) -> Response:
        text = self._templates.get_template(template).render(
            page=page, now=human_time(now), release=etl.__version__
        )
        return Response(text, status, media_type="text/html")
