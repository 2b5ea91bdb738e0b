"""The status page in a browser: live, quiet, usable without a mouse, readable by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etl.http.views import table_link
from tests.web.conftest import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"
ORDERS = "/tables/public.orders"
ODD = table_link("public.odd <b>name</b> & 'quotes'/☃")
PAGES = ("/", ORDERS, ODD, "/tables/public.legacy_invoices", "/tables/nowhere")

#: Of every text that is seen: what it is, and its contrast with what is behind it (WCAG 2.2, 1.4.3).
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || node.closest(".unseen, .skip")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(rgba(style.color)), light(ground(node))];
    found.push([`${node.tagName}.${node.className}: ${texts.currentNode.data.trim().slice(0, 40)}`,
      (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), parseFloat(style.fontSize) >= 24 ? 3 : 4.5]);
  }
  return found;
}"""

#: What a checker of accessibility complains of first.
FAULTS = """() => {
  const faults = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const check = (holds, what) => { if (!holds) faults.push(what); };
  const named = (node) => (node.getAttribute("aria-label") || node.textContent).trim();
  check(document.documentElement.lang, "the page has no language");
  check(document.title.trim(), "the page has no title");
  for (const mark of ["header", "main", "footer", "h1"]) check(all(mark).length === 1, `not one ${mark}`);
  const levels = all("h1, h2, h3, h4").map((node) => +node.tagName[1]);
  levels.forEach((level, at) => check(at === 0 || level <= levels[at - 1] + 1, `a heading skips to h${level}`));
  const ids = all("[id]").map((node) => node.id);
  check(new Set(ids).size === ids.length, "an id is there twice");
  for (const node of all("a, button")) check(named(node), `nameless: ${node.outerHTML.slice(0, 80)}`);
  for (const node of all("input, select")) check(node.labels.length || node.ariaLabel, "a field without a label");
  for (const node of all("svg, img")) check(node.ariaHidden === "true" || node.getAttribute("alt"), "a silent picture");
  for (const node of all("th")) check(node.scope && named(node), `a header cell without scope: ${node.outerHTML}`);
  for (const node of all("progress, nav, [role=region]"))
    check(node.ariaLabel || node.getAttribute("aria-labelledby"), `unlabelled: ${node.tagName}`);
  for (const node of all("section")) check(document.getElementById(node.getAttribute("aria-labelledby")), "a section");
  for (const node of all("[tabindex]")) check(node.tabIndex <= 0, "an order of its own");
  for (const node of all("[style], [onclick], script:not([src])")) faults.push(`inline: ${node.outerHTML.slice(0, 80)}`);
  return faults;
}"""

FOCUSED = "() => { const node = document.activeElement; return [node.tagName, node.id, node.getAttribute('href') || '']; }"
SEEN = (
    "() => { const node = document.activeElement, seen = node.seen; node.seen = true; return Boolean(seen); }"
)
IN_SIGHT = """() => {
  const node = document.activeElement, box = node.getBoundingClientRect(), style = getComputedStyle(node);
  return box.bottom > 0 && box.top < innerHeight && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


@pytest.fixture(autouse=True)
def no_complaints(site: Site) -> Iterator[None]:
    site.complaints.clear()
    yield
    # a page that is not there is told by its status, which the browser notes
    assert [said for said in site.complaints if "404" not in said] == []


def reached(page: Page) -> list[list[str]]:
    """What the Tab key leads to, in its order, each of it in sight and marked."""
    found: list[list[str]] = []
    while True:
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused[0] == "BODY" or page.evaluate(SEEN):
            return found
        found.append(focused)
        assert page.evaluate(IN_SIGHT), f"{focused} is not seen to have the focus"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_fault_a_checker_would_find(site: Site, path: str):
    assert site.open(path).evaluate(FAULTS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_every_text_stands_out_from_its_ground(site: Site, path: str, scheme: str):
    found = site.open(path, scheme=scheme).evaluate(CONTRASTS)

    assert len(found) >= 5
    assert [text for text in found if text[1] < text[2]] == []


def test_light_and_dark_are_the_readers_choice(site: Site):
    grounds = {
        scheme: site.open(scheme=scheme).evaluate(
            "getComputedStyle(document.documentElement).backgroundColor"
        )
        for scheme in ("light", "dark")
    }

    assert grounds["light"] != grounds["dark"]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_no_width_makes_the_page_scroll_sideways(site: Site, path: str, width: int):
    page = site.open(path, width=width)

    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_everything_is_reached_and_opened_by_the_keyboard(site: Site):
    page = site.open()
    links = page.eval_on_selector_all("a[href]", "nodes => nodes.map(node => node.getAttribute('href'))")
    order = reached(page)

    assert order[0] == ["A", "", "#content"]
    assert {focused[2] for focused in order} >= set(links)
    assert ["INPUT", "filter", ""] in order
    page.focus(f"a[href='{ORDERS}']")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{ORDERS}")
    assert page.inner_text("h1") == "public.orders"


def test_the_skip_link_leads_to_the_content(site: Site):
    page = site.open()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    assert page.evaluate(FOCUSED)[:2] == ["MAIN", "content"]


def test_the_list_is_filtered_by_name(site: Site):
    page = site.open()
    page.fill("#filter", "STOCK_")
    shown = page.eval_on_selector_all(
        "#rows > tr:not([hidden]) th", "nodes => nodes.map(node => node.innerText)"
    )

    assert shown == ["public.stock_berlin", "public.stock_lyon", "public.stock_oslo", "public.stock_porto"]


def test_a_hostile_name_is_text(site: Site):
    page = site.open(ODD)

    assert page.inner_text("h1") == "public.odd <b>name</b> & 'quotes'/☃"
    assert page.query_selector("h1 b") is None


def test_rows_and_schema_changes_arrive_by_themselves_and_the_focus_stays(site: Site):
    page, table = site.open(), site.open(ORDERS)
    page.focus(f"a[href='{ORDERS}']")
    marked = "document.activeElement.marked = true"
    page.evaluate(marked)
    site.pipeline.sql(
        "INSERT INTO orders (customer_id, amount) SELECT 1, 2 FROM generate_series(1, 321)",
        "ALTER TABLE orders ADD COLUMN status text DEFAULT 'pending'",
        "INSERT INTO orders (customer_id, amount) VALUES (1, 5)",
    )
    row = "document.querySelector('#rows a[href=\"/tables/public.orders\"]').closest('tr').innerText"
    site.wait(page, f"{row}.includes('322')", "the rows")
    site.wait(page, f"{row}.includes('add status text')", "the schema change")
    site.wait(
        table, "document.querySelector('.timeline > li').innerText.includes('add status text')", "the version"
    )

    assert page.evaluate("document.activeElement.marked") is True
    assert page.evaluate(FOCUSED)[2] == ORDERS
    assert "status text" in table.inner_text("#columns")


def test_a_screenshot_of_each_page_shows_what_people_are_woken_for(site: Site):
    page = site.open()
    site.pipeline.sql(
        "ALTER TABLE orders RENAME COLUMN note TO remark",
        "ALTER TABLE orders ALTER COLUMN amount SET NOT NULL",
        "INSERT INTO orders (customer_id, amount) VALUES (1, 5)",
        "ALTER TABLE orders ALTER COLUMN remark SET DEFAULT 'r' || random()",
        "INSERT INTO orders (customer_id, amount) VALUES (1, 5)",
    )
    size = 0

    def busy() -> bool:
        nonlocal size
        size = (size * 7 + 131) % 1000
        site.pipeline.sql(
            f"INSERT INTO orders (customer_id, amount) SELECT 1, 2 FROM generate_series(1, {size})",
            f"UPDATE customers SET city = 'Oslo {size}' WHERE id < {size // 4}",
        )
        drawn = page.evaluate("document.querySelector('.figure .line path')?.getAttribute('d') ?? ''")
        return drawn.count("L") >= 40

    site.daemon.wait_until(busy, "a line to look at")
    IMAGES.mkdir(exist_ok=True)
    for name, path, scheme in (
        ("status", "/", "light"),
        ("status-dark", "/", "dark"),
        ("table", ORDERS, "light"),
    ):
        shown = site.open(path, scheme=scheme)
        assert "Lag" in shown.inner_text(".figures")
        shown.screenshot(path=IMAGES / f"{name}.png")
    assert "public.legacy_invoices" in page.inner_text("#problems")
    assert "What to do:" in page.inner_text("#problems")


def test_a_page_whose_daemon_has_gone_says_so(site: Site):
    page = site.open()
    assert site.daemon.terminate() == 0
    site.wait(page, "document.getElementById('connection').innerText.startsWith('not connected')", "the news")
    site.complaints.clear()
