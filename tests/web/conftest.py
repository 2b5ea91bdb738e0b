"""A real browser on a real daemon. `make web` installs what that needs and runs these; a plain run leaves them out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etl.testing.daemon import Daemon, wait_until
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl
from tests.watching import HTTP, Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
NAMES = ("ETL_CHROMIUM", "chromium", "chromium-browser", "google-chrome")

SETTINGS = {"pipeline": {"name": "shop"}, "retry": {"initial_delay_ms": 5000, "max_delay_ms": 60_000}}
SCHEMA = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text)",
    "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id int, amount numeric(10,2), note text)",
    'CREATE TABLE legacy_invoices (id int PRIMARY KEY, total numeric(10,2), "Total" numeric(10,2))',
    "CREATE TABLE \"odd <b>name</b> & 'quotes'/☃\" (id int PRIMARY KEY)",
    "INSERT INTO customers SELECT g, 'customer ' || g, 'Porto' FROM generate_series(1, 500) g",
    "INSERT INTO orders (customer_id, amount) SELECT 1 + g % 500, g / 10.0 FROM generate_series(1, 20000) g",
    *(
        f"CREATE TABLE stock_{place} (id int PRIMARY KEY, count int)"
        for place in ("berlin", "lyon", "oslo", "porto")
    ),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker("web")
    if os.environ.get("ETL_WEB"):
        return
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, driven by Playwright, which downloads none of its own."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get(NAMES[0]) or next(filter(None, map(shutil.which, NAMES[1:])), None)
    assert found, "no Chromium here: `make web` installs it, or ETL_CHROMIUM names one"
    with sync_playwright() as playwright:
        # a container gives the sandbox no namespaces, and little shared memory
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


@dataclass(slots=True)
class Site:
    """A pipeline that runs, its pages, and what went wrong in the browser so far."""

    pipeline: PipelineUnderTest
    watched: Watched
    browser: Browser
    complaints: list[str] = field(default_factory=list)

    @property
    def daemon(self) -> Daemon:
        """The process."""
        return self.watched.daemon

    def open(self, path: str = "/", *, width: int = 1200, height: int = 760, scheme: str = "light") -> Page:
        """A page in a tab of its own, whose every complaint is noted."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        page = context.new_page()
        page.on(
            "console", lambda said: said.type in {"error", "warning"} and self.complaints.append(said.text)
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._requested(request.url))
        page.goto(self.watched.address + path)
        return page

    def wait(self, page: Page, condition: str, what: str) -> None:
        """Until an expression is true in the page, whoever may be slow."""
        wait_until(lambda: bool(page.evaluate(condition)), what, said=lambda: page.inner_text("body")[:3000])

    def _requested(self, url: str) -> None:
        if not url.startswith((self.watched.address, "data:")):
            self.complaints.append(f"asked somebody else: {url}")


@pytest.fixture(scope="module")
def site(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory, warm: WarmEtl, browser: Browser
) -> Iterator[Site]:
    """Tables in several states, one of them in error."""
    with postgres.database() as database:
        pipeline = PipelineUnderTest(
            database, tmp_path_factory.mktemp("site"), {**HTTP, **SETTINGS}, warm=warm
        )
        pipeline.sql(*SCHEMA)
        pipeline.publish()
        with pipeline.running() as daemon:
            watched = Watched.of(daemon)
            watched.wait_ready()
            yield Site(pipeline, watched, browser)
