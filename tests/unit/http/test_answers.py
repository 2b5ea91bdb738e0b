"""What is answered to whom: over the application itself, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from etl.config.reports import CopyStatus
from etl.ddl.operations import SkippedChange, SkipReason
from etl.http.application import make_application
from etl.http.views import table_link
from etl.lsn import Lsn, SnapshotId
from etl.pipeline.observation import Observation, SchemaStep
from etl.pipeline.schema_history import DescribedChange
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Loop, LoopState, RunPhase, SchemaOutcome
from etl.telemetry.redaction import register_secret
from tests.unit.http.observations import FAULT, NOW, pulse, seen, table

HOSTILE = (
    "public.<script>alert(1)</script>",
    "public.\"quoted\" & 'single'",
    "public.a/b/../c",
    "public.?x=1#y",
    "public.100%25",
    "public.line\nbreak",
    "public.ends with a break\n",
    "public.日本語 ☃ \u202eevil",
    "public.{{ 7*7 }}",
    "public.javascript:alert(1)",
    "...",
)
VERSION = SnapshotId(Lsn.parse("0/2A"), Lsn.parse("0/20"))
HTML = {"accept": "text/html"}

Ask = Callable[..., httpx.Response]


def asker(observation: Observation, hosts: tuple[str, ...] = ("*",)) -> Ask:
    application = make_application(lambda: observation, Metrics("shop").registry, allowed_hosts=hosts)

    def ask(path: str, method: str = "GET", **options: object) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(application, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
                return await client.request(method, path, **options)  # type: ignore[arg-type]

        return asyncio.run(send())

    return ask


def changed(*changes: DescribedChange, **fields: object) -> SchemaStep:
    return SchemaStep(VERSION, ("id bigint", "status text"), changes, "applied", **fields)  # type: ignore[arg-type]


COPIED = SchemaStep(
    SnapshotId.COPY, ("id bigint",), (DescribedChange("copy", 0, "initial copy", "initial copy"),), "passed"
)


# --- health -------------------------------------------------------------------------------------------------------


def test_a_stuck_loop_is_unavailable_and_named():
    answer = asker(seen(pulse=pulse(loops=(LoopState(Loop.READER, 120.0),))))("/livez")

    assert answer.status_code == 503
    assert answer.json()["loops"][0] | {"quiet_s": 0} == {
        "loop": "reader",
        "stuck": True,
        "quiet_s": 0,
        "waiting_for": None,
        "waiting_s": 0.0,
    }


def test_readiness_says_of_each_check_what_it_found():
    ready = asker(seen(table("public.a")))("/readyz")
    retrying = asker(seen(pulse=pulse(phase=RunPhase.RETRYING, fault=FAULT)))("/readyz")

    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert (retrying.status_code, retrying.json()["ready"]) == (503, False)
    assert retrying.json()["checks"][0] == {
        "name": "pipeline",
        "verdict": "fail",
        "reason": "attempt 3 failed (source_unavailable): no connection to db:5432",
        "hint": "is it running?",
    }


# --- status -------------------------------------------------------------------------------------------------------


def test_the_status_document_before_anything_was_read():
    document = asker(seen(report=None, lag=None))("/status").json()

    assert (document["phase"], document["lag"], document["ready"]) == ("streaming", None, True)


def test_the_status_document_has_the_keys_of_the_command_and_more():
    document = asker(seen(table("public.a")))("/status").json()

    assert document["slot"]["wal_status"] == "reserved"
    assert document["tables"][0]["name"] == "public.a"
    assert document["progress_lsn"] == "0/1E00"
    assert document["lag"] == {
        "received_bytes": 256,
        "durable_bytes": 512,
        "received_s": 0.2,
        "durable_s": 1.5,
    }
    assert document["positions"]["applied"] == "0/1F00"


def test_an_event_is_sent_for_the_present_state():
    answer = asker_of_events()
    lines = answer.splitlines()

    assert lines[:4] == ["retry: 2000", "", "id: 7", "event: change"]
    assert json.loads(lines[4].removeprefix("data: "))["ready"] is True


def asker_of_events() -> str:
    looked = []

    def look() -> Observation:
        looked.append(1)
        return seen(table("public.a"))

    application = make_application(look, Metrics("shop").registry, is_stopping=lambda: len(looked) > 2)

    async def send() -> str:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/events")).text

    return asyncio.run(send())


# --- who may ask, and how -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path",
    ["/", "/livez", "/readyz", "/metrics", "/status", "/events", "/tables/public.a", "/static/page.js"],
)
def test_nothing_can_be_changed(path: str, method: str):
    answer = asker(seen(table("public.a")))(path, method)

    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD"]


@pytest.mark.parametrize("path", ["/", "/livez", "/metrics", "/status", "/events", "/static/page.css"])
def test_the_head_alone_may_be_asked_for(path: str):
    answer = asker(seen(table("public.a")))(path, "HEAD")

    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["/", "/status", "/nowhere", "/static/page.js", "/tables/public.a"])
def test_every_answer_forbids_the_browser_what_it_does_not_need(path: str):
    headers = asker(seen(table("public.a")))(path, headers=HTML).headers

    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8080", 200),
        ("etl.example.com", 421),
        ("127.0.0.1.example.com", 421),
        ("", 421),
    ],
)
def test_at_a_loopback_address_it_answers_to_its_own_names_only(host: str, status: int):
    ask = asker(seen(), ("localhost", "127.0.0.1", "::1"))

    assert ask("/status", headers={"host": host}).status_code == status


@pytest.mark.parametrize("path", ["/nowhere", "/tables/public.b", "/static/../pages.py", "/static/pages.py"])
def test_what_is_not_there_is_said_as_the_asker_reads(path: str):
    ask = asker(seen(table("public.a")))

    assert ask(path).headers["content-type"].startswith("text/plain")
    page = ask(path, headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Not here" in page.text


# --- pages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_may_be_called_anything_and_does_no_harm(name: str):
    ask = asker(seen(table(name), history={16384: (COPIED,)}))

    overview, page = ask("/", headers=HTML), ask(table_link(name), headers=HTML)

    for answer in (overview, page):
        assert answer.status_code == 200
        assert answer.text.count("<script") == 1
        assert "<script>alert" not in answer.text
        assert "\u202e" not in answer.text
        assert "public.49" not in answer.text
    assert f'href="{table_link(name)}"' in overview.text
    assert ask(f"/status{table_link(name)}").json()["name"] == name


def test_the_same_name_at_two_times_leads_to_the_table_that_is_replicated():
    ask = asker(seen(table("public.a", None, oid=9), table("public.a", "ready", oid=5)))

    assert "oid</dt><dd>5<" in ask("/tables/public.a", headers=HTML).text


def test_the_worst_stands_first():
    text = asker(
        seen(
            table("public.fine", oid=1),
            table("public.copied", "data_sync", oid=2, copy=CopyStatus(8, 3, 1_000)),
            table("public.broken", "errored", oid=3, reason="it is broken", solution="mend it"),
        )
    )("/", headers=HTML).text
    rows = text[text.index('id="rows"') :]

    assert rows.index("public.broken") < rows.index("public.copied") < rows.index("public.fine")
    problems = text[text.index('id="problems"') : text.index('id="rows"')]
    assert "it is broken" in problems
    assert "mend it" in problems
    assert '<progress value="3" max="8"' in rows


def test_each_change_of_a_version_says_what_became_of_it():
    step = changed(
        DescribedChange("add", 2, "add status text", "add status text"),
        DescribedChange("default", 1, "default of id: none → 'geheim'", "set the default of id"),
        DescribedChange("type", 3, "type of n: integer → bigint", "type of n: integer → bigint"),
        outcome=SchemaOutcome(
            16384,
            VERSION,
            NOW - timedelta(minutes=3),
            ("add status",),
            (
                SkippedChange(1, "id", "default", SkipReason.NOT_LITERAL),
                SkippedChange(2, "status", "default", SkipReason.NOT_RENDERABLE),
            ),
        ),
    )
    text = asker(seen(table("public.a", snapshot_id=VERSION), history={16384: (COPIED, step)}))(
        "/tables/public.a", headers=HTML
    ).text

    assert text.index("0/2A") < text.index("initial copy")
    for what, outcome in (
        ("add status text", "applied"),
        ("set the default of id", "skipped"),
        ("type of n: integer → bigint", "recorded"),
        ("default of status", "skipped"),
    ):
        line = text[text.index(f">{what}<") :]
        assert outcome in line[: line.index("</li>")]
    assert SkipReason.NOT_LITERAL.value in text
    assert "geheim" not in text


def test_a_change_that_failed_tells_its_way_out():
    step = changed(
        DescribedChange("drop", 2, "drop status", "drop status"),
        outcome=SchemaOutcome(16384, VERSION, NOW, error="the destination cannot drop", hint="do it by hand"),
    )
    text = asker(seen(table("public.a", "errored"), history={16384: (step,)}))(
        "/tables/public.a", headers=HTML
    ).text

    assert "the destination cannot drop" in text
    assert "do it by hand" in text


def test_secrets_in_what_was_said_are_masked_everywhere():
    register_secret("hunter2-geheim")
    said = "connection to postgresql://etl:hunter2-geheim@db failed"
    ask = asker(
        seen(
            table("public.a", "errored", reason=said, solution=said),
            trouble=said,
            pulse=pulse(phase=RunPhase.RETRYING, fault=FAULT.__class__("k", said, said, NOW)),
            history={16384: (changed(outcome=SchemaOutcome(16384, VERSION, NOW, error=said, hint=said)),)},
        )
    )

    for path in ("/", "/tables/public.a", "/status", "/status/tables/public.a", "/readyz", "/metrics"):
        assert "hunter2" not in ask(path, headers=HTML).text, path
