"""Dashboard and alerts ask for metrics that exist, and leave none out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import etl
from etl.store.base import TableState
from etl.telemetry.metric_names import ALL_METRICS, KNOWN_LABELS, DestinationCall, LagStage, WalStatus

ROOT = Path(etl.__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/etl.json").read_text(encoding="utf-8"))
GROUPS = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text(encoding="utf-8"))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]
ALERT_TESTS = yaml.safe_load((DEPLOY / "prometheus/alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PIPELINE = 'pipeline=~"$pipeline"'
#: What Prometheus itself says of a target and of an alert.
FOREIGN = {"up", "ALERTS"}
LABELS_OF_ALL = {"pipeline", "job", "instance"}


def expressions() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from ((alert["alert"], alert["expr"]) for alert in ALERTS)


EXPRESSIONS = list(expressions())


def exposed() -> dict[str, str]:
    """The exposed name of every series, and the metric it belongs to."""
    names = {}
    for metric in ALL_METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {metric.name + suffix: metric.name for suffix in suffixes}
    return names


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\betl_\w+", expression))


def selectors(expression: str) -> Iterator[tuple[str, str, str, str]]:
    """Each metric with the label, the operator and the value it is selected by."""
    for metric, inner in re.findall(r"\b(etl_\w+)\{([^}]*)\}", expression):
        yield from ((metric, *parts) for parts in re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', inner))


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_expression_asks_for_metrics_that_exist(where: str, expression: str):
    asked = names_in(expression) | {name for name in FOREIGN if re.search(rf"\b{name}\b", expression)}
    assert asked
    assert names_in(expression) <= exposed().keys()


def test_every_metric_is_seen_on_the_dashboard_or_alerted_on():
    used = {exposed().get(name) for _, expression in EXPRESSIONS for name in names_in(expression)}
    assert {metric.name for metric in ALL_METRICS} - used == set()


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_a_metric_is_selected_by_labels_it_has(where: str, expression: str):
    labels = {metric.name: {*metric.labels, *LABELS_OF_ALL} for metric in ALL_METRICS}
    wrong = [
        (name, label) for name, label, _, _ in selectors(expression) if label not in labels[exposed()[name]]
    ]
    assert wrong == []


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_a_label_is_selected_by_values_it_takes(where: str, expression: str):
    known: dict[str, set[str]] = {
        "stage": set(LagStage),
        "status": set(WalStatus),
        "call": set(DestinationCall),
        "state": set(TableState),
        "of": {"finished", "all"},
        "outcome": {"applied", "skipped", "failed"},
        **{metric.labels[0]: set(values) for metric, values in KNOWN_LABELS.items()},
    }
    for _, label, _, value in selectors(expression):
        assert label not in known or set(value.split("|")) <= known[label]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
class TestEachAlert:
    def test_says_what_is_wrong_how_bad_it_is_and_where_to_read_on(self, alert: dict[str, Any]):
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}

    def test_has_a_section_in_the_guide(self, alert: dict[str, Any]):
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert anchor == alert["alert"].lower()
        assert alert["alert"] in headings

    def test_has_a_test_that_sees_it_fire_and_end(self, alert: dict[str, Any]):
        mine = [test for test in ALERT_TESTS if test["name"].startswith(f"{alert['alert']}: ")]
        fired = [bool(step["exp_samples"]) for test in mine for step in test["promql_expr_test"]]
        assert True in fired
        assert fired[-1] is False


def test_every_panel_shows_the_chosen_pipelines_only():
    asked = [
        (panel["title"], name)
        for panel in PANELS
        for target in panel["targets"]
        for name in re.findall(r"\betl_\w+(?!\w)(?!\{" + re.escape(PIPELINE) + ")", target["expr"])
    ]
    assert asked == []


def test_panels_have_titles_ids_and_places_of_their_own():
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in DASHBOARD["panels"]]
    cells = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    for key in ("id", "title"):
        values = [panel[key] for panel in DASHBOARD["panels"]]
        assert len(values) == len(set(values))
