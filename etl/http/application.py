"""What is answered where. Everything is read-only: GET and HEAD, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from etl.http.events import changes
from etl.http.health import is_alive, is_ready, is_stuck, readiness
from etl.http.pages import Pages
from etl.http.responses import AllowedHosts, CommonHeaders, as_json
from etl.http.status import status_document, table_document
from etl.http.tables import table_named
from etl.pipeline.observation import Observation
from etl.telemetry.pulse import LoopState


def make_application(
    look: Callable[[], Observation],
    registry: CollectorRegistry,
    *,
    allowed_hosts: Sequence[str] = ("*",),
    is_stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The application. `look` tells what there is to see, at once; `is_stopping` ends answers that never end."""
    answers, pages = _Answers(look, registry, is_stopping), Pages(look)
    routes = Starlette(
        routes=[
            Route("/livez", answers.livez),
            Route("/readyz", answers.readyz),
            Route("/metrics", answers.metrics),
            Route("/status", answers.status),
            Route("/status/tables/{name:table}", answers.table_status),
            Route("/events", answers.events),
            *pages.routes(),
        ],
        exception_handlers={HTTPException: pages.failed, 500: pages.failed},
    )
    return CommonHeaders(AllowedHosts(routes, allowed_hosts))


class _Answers:
    """One method a place."""

    def __init__(
        self, look: Callable[[], Observation], registry: CollectorRegistry, is_stopping: Callable[[], bool]
    ) -> None:
        self._look = look
        self._registry = registry
        self._is_stopping = is_stopping

    async def livez(self, _: Request) -> Response:
        pulse = self._look().pulse
        alive = is_alive(pulse)
        return as_json(
            {"alive": alive, "loops": [_loop(loop) for loop in pulse.loops]}, 200 if alive else 503
        )

    async def readyz(self, _: Request) -> Response:
        checks = readiness(self._look())
        ready = is_ready(checks)
        return as_json({"ready": ready, "checks": checks}, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})

    async def status(self, _: Request) -> Response:
        return as_json(status_document(self._look()))

    async def table_status(self, request: Request) -> Response:
        seen = self._look()
        return as_json(table_document(seen, table_named(seen, request.path_params["name"])))

    async def events(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(changes(self._look, self._is_stopping), media_type="text/event-stream")


def _loop(loop: LoopState) -> dict[str, object]:
    return {
        "loop": loop.loop,
        "stuck": is_stuck(loop),
        "quiet_s": round(loop.quiet_s, 3),
        "waiting_for": loop.waiting_for,
        "waiting_s": round(loop.waiting_s, 3),
    }
