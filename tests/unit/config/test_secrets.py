from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from etl.config.explain import explain
from etl.config.loader import load, load_config
from etl.config.secrets import Secret
from etl.errors import ConfigError
from etl.telemetry.redaction import redact

Write = Callable[..., Path]

CANARY = "canary-secret-7b21"


@pytest.mark.parametrize(
    ("given", "environ"),
    [(CANARY, {}), ({"env": "PW"}, {"PW": CANARY})],
)
def test_a_secret_is_text_or_comes_from_a_variable(given: object, environ: dict[str, str]):
    assert Secret.model_validate(given).reveal(environ) == CANARY


@pytest.mark.parametrize(
    ("content", "secret"), [("x", "x"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x ", " x ")]
)
def test_a_secret_file_loses_one_line_end_and_nothing_else(tmp_path: Path, content: str, secret: str):
    file = tmp_path / "pw"
    file.write_bytes(content.encode())

    assert Secret.model_validate({"file": file}).reveal({}) == secret


def test_a_secret_file_is_relative_to_the_configuration(write: Write, tmp_path: Path):
    (tmp_path / "pw").write_text(CANARY)

    config = load_config(write("source: {password: {file: pw}}"), environ={})

    assert config.source.parameters({})["password"] == CANARY


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: None, "No such file"),
        (Path.mkdir, "Is a directory"),
        (lambda f: f.write_bytes(b"\xff"), "not UTF-8"),
    ],
)
def test_a_secret_file_that_cannot_be_read_is_named(
    tmp_path: Path, make: Callable[[Path], object], reason: str
):
    file = tmp_path / "pw"
    make(file)

    with pytest.raises(ConfigError, match=f"{file}.*{reason}"):
        Secret.model_validate({"file": file}).reveal({})


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(ConfigError, match="environment variable PW is not set"):
        Secret.model_validate({"env": "PW"}).reveal({})


@pytest.mark.parametrize("key", ["password", "dsn"])
def test_a_secret_is_never_shown(write: Write, key: str):
    text = CANARY if key == "password" else f"postgresql://u:{CANARY}@h/d?sslmode=disable"
    loaded = load(write(f"source: {{{key}: '{text}'}}"), environ={})
    config = loaded.config

    shown = (
        str(config),
        repr(config),
        config.model_dump_json(),
        str(config.model_dump()),
        json.dumps([[s.key, s.value, s.origin] for s in explain(loaded)]),
        config.source.describe({}),
    )

    assert all(CANARY not in text for text in shown)
    assert CANARY in str(config.source.parameters({}).values())


def test_references_are_shown_as_what_they_are(write: Write):
    loaded = load(write("source: {password: {env: PW}}\nstore: {dsn: {file: /run/dsn}}"), environ={})
    shown = {setting.key: setting.value for setting in explain(loaded)}

    assert shown["source.password"] == "environment variable PW"
    assert shown["store.dsn"] == "file /run/dsn"


def test_a_loaded_secret_is_masked_in_all_text_from_then_on(write: Write):
    load_config(write("source: {password: {env: PW}}"), environ={"PW": "s3cret/with:odd@signs"})

    assert "s3cret" not in redact("tried s3cret/with:odd@signs and s3cret%2Fwith%3Aodd%40signs")


def test_a_password_that_equals_a_shown_name_masks_nothing(write: Write):
    load_config(write("source: {user: ordinary, password: ordinary}"), environ={})

    assert redact("user ordinary") == "user ordinary"


def test_pickling_keeps_working_for_worker_processes(write: Write):
    config = load_config(write("source: {password: x1y2z3}"), environ={})

    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
