"""Container, Compose, Kubernetes and systemd agree with each other, with the configuration and with the exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import etl
from etl.config.loader import load_config

ROOT = Path(etl.__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kustomize/base"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "systemd/etl.service").read_text(encoding="utf-8")


def document(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


COMPOSE = document(DEPLOY / "docker-compose.yaml")
POD = document(BASE / "statefulset.yaml")["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


@pytest.mark.parametrize("name", ["compose/pipeline.yaml", "kustomize/base/pipeline.yaml"])
def test_the_pipelines_are_valid_and_listen_where_others_can_ask(name: str, tmp_path: Path):
    text = (DEPLOY / name).read_text(encoding="utf-8")
    secret = tmp_path / "password"
    secret.write_text("secret")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(text.replace("/run/secrets/etl/password", str(secret)))
    http = load_config(pipeline).http
    assert http is not None
    assert (http.host, http.port) == ("0.0.0.0", 8080)  # noqa: S104 - a container's own address
    assert text.count("/var/lib/etl/") >= 1


def test_every_image_has_a_tag_and_none_is_latest():
    images = [service["image"] for service in COMPOSE["services"].values()]
    assert [image for image in images if not re.fullmatch(r"[\w./-]+:v?\d[\w.-]+", image)] == []


def test_compose_mounts_files_that_exist():
    mounts = [volume for service in COMPOSE["services"].values() for volume in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert files
    assert [file for file in files if not (DEPLOY / file).exists()] == []


def test_what_compose_publishes_is_reached_from_its_machine_only():
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_image_copies_what_the_build_context_holds():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        word
        for line in re.findall(r"^COPY (?!--)(.+)$", DOCKERFILE, flags=re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_pod_runs_as_the_user_of_the_image():
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, flags=re.MULTILINE)
    assert user is not None
    context = POD["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == tuple(map(int, user.groups()))
    assert context["runAsNonRoot"] is True
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_selectors_meet_the_pod():
    labels = POD["metadata"]["labels"]
    assert document(BASE / "statefulset.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert document(BASE / "service.yaml")["spec"]["selector"] == labels
    assert document(BASE / "networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"] == labels


def test_every_mount_of_the_pod_has_its_volume():
    claims = document(BASE / "statefulset.yaml")["spec"]["volumeClaimTemplates"]
    volumes = {item["name"] for item in POD["spec"]["volumes"]} | {
        item["metadata"]["name"] for item in claims
    }
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == volumes


def test_the_base_lists_files_that_exist_and_leaves_none_out():
    kustomization = document(BASE / "kustomization.yaml")
    listed = {*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]}
    assert listed | {"kustomization.yaml"} == {path.name for path in BASE.iterdir()}


def test_whatever_stops_etl_waits_longer_than_etl_takes_to_stop(tmp_path: Path):
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("pipeline: {id: 1, publication: p}\ndestination: {type: duckdb, path: ./x.duckdb}\n")
    takes = load_config(pipeline).shutdown_timeout_s
    assert POD["spec"]["terminationGracePeriodSeconds"] > takes
    assert int(COMPOSE["services"]["etl"]["stop_grace_period"].removesuffix("s")) > takes
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, flags=re.MULTILINE)[0]) > takes


def test_systemd_does_not_repeat_what_cannot_succeed():
    assert "RestartPreventExitStatus=2 78\n" in UNIT
    assert "KillMode=mixed\n" in UNIT
