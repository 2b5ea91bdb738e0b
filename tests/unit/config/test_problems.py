"""Every mistake is told in one line: where it is, what it is, and what was probably meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl.config.loader import load, load_config
from etl.errors import ConfigError, ExitCode

Write = Callable[..., Path]

CANARY = "canary-9f3a"


def problem(path: Path, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ=environ or {})
    assert caught.value.exit_code == ExitCode.CONFIGURATION
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("soruce: {}", 1, "soruce is not a known key; did you mean 'source'?"),
        ("source:\n  hsot: x", 2, "source.hsot is not a known key; did you mean 'host'?"),
        ("source:\n  password: {evn: X}", 2, "source.password.evn is not a known key; did you mean 'env'?"),
        ("log: {colour: true}", 1, "log.colour is not a known key; known here: level, format"),
        (
            "tables:\n - {name: a.b}\n - {nmae: a.c, name: a.d}",
            3,
            "tables.1.nmae is not a known key; did you",
        ),
        ("mode: mirorr", 1, "mode must be one of mirror, changelog; did you mean 'mirror'?"),
        (
            "log: {level: DEBUG}",
            1,
            "log.level must be one of debug, info, warning, error; did you mean 'debug'?",
        ),
        ("source: {sslmode: verify}", 1, "source.sslmode must be one of disable, allow, prefer"),
        (
            "destination: {type: dukdb, path: x}",
            1,
            "destination.type must be one of duckdb, delta; did you mean 'duckdb'?",
        ),
        (
            "destination:\n  path: x\n  type: dlta",
            3,
            "destination.type must be one of duckdb, delta; did you mean 'delta'?",
        ),
        ("destination: {type: iceberg}", 1, "destination.type must be one of duckdb, delta"),
        ("destination: {path: x}", 1, "destination needs a type: duckdb, delta"),
        ("destination: {type: duckdb}", 1, "destination.path is required"),
        ("destination: {type: duckdb, path: ':memory:'}", 1, "destination.path must be a file"),
        ("destination: {type: delta}", 1, "destination needs either a path or a catalog"),
        (
            "destination: {type: delta, path: x, catalog: c}",
            1,
            "destination needs either a path or a catalog",
        ),
        ("destination: {type: delta, catalog: c}", 1, "destination needs a staging folder beside a catalog"),
        ("destination: {type: delta, pth: x}", 1, "destination.pth is not a known key; did you mean 'path'?"),
        (
            "destination:\n  type: delta\n  path: x\n  maintenance:\n    retention_hours: 167",
            5,
            "destination.maintenance.retention_hours must be at least 168",
        ),
        (
            "destination:\n  type: delta\n  path: x\n  spark: {mster: yarn}",
            4,
            "destination.spark.mster is not a known key; did you mean 'master'?",
        ),
        (
            "destination: {type: delta, path: x, spark: {remote: 'http://x'}}",
            1,
            "destination.spark.remote must be an address that begins with sc://",
        ),
        (
            "destination: {type: delta, path: x, spark: {conf: [a]}}",
            1,
            "destination.spark.conf must be a section with keys",
        ),
        (
            "destination:\n  type: delta\n  path: x\n  spark:\n    conf:\n      spark.a: b\n      executor.cores: 2",
            5,
            "destination.spark.conf holds executor.cores: every key begins with spark.",
        ),
        (
            "destination:\n  type: delta\n  path: x\n  spark:\n    conf:\n      spark.a: b\n      spark.jars: [a.jar]",
            7,
            "destination.spark.conf.spark.jars must be text; put it in quotes",
        ),
        ("pipeline: {id: 1}", 1, "pipeline.publication is required"),
        ("pipeline: {id: -1, publication: p}", 1, "pipeline.id must be at least 0"),
        ("pipeline: {id: yes, publication: p}", 1, "pipeline.id must be a whole number"),
        ("pipeline: {id: 1.5, publication: p}", 1, "pipeline.id must be a whole number"),
        ("pipeline: {id: x, publication: p}", 1, "pipeline.id must be a whole number"),
        ("pipeline: {id: 1, publication: ''}", 1, "pipeline.publication must not be empty"),
        ("pipeline: {id: 1, publication: 7}", 1, "pipeline.publication must be text; put it in quotes"),
        ("source: {port: 65536}", 1, "source.port must be at most 65535"),
        ("source: {host: ''}", 1, "source.host must not be empty; leave the key out instead"),
        ("source: {allow_unsigned_ddl: maybe}", 1, "source.allow_unsigned_ddl must be true or false"),
        (
            "source: {password: 123456}",
            1,
            "source.password must be text in quotes, {env: NAME} or {file: PATH}",
        ),
        ("source: {password: {}}", 1, "source.password must be text in quotes, {env: NAME} or {file: PATH}"),
        ("source: {dsn: x, host: y, user: z}", 1, "source has dsn and also host, user"),
        ("source: text", 1, "source must be a section with keys"),
        ("tables: public.orders", 1, "tables must be a list"),
        ("tables: [{name: orders}]", 1, "tables.0.name must be written schema.name"),
        ("tables: [{name: a.b}, {name: a.b}]", 1, "tables names a.b twice"),
        ("batch: {max_bytes: 64Mb}", 1, "batch.max_bytes must be bytes as a number, or a size such as 64MiB"),
        ("batch: {max_bytes: 0}", 1, "batch.max_bytes must be at least 1"),
        (
            "retry: {initial_delay_ms: 9, max_delay_ms: 8}",
            1,
            "retry has an initial_delay_ms above max_delay_ms",
        ),
        ("invalidated_slot_behavior: ignore", 1, "invalidated_slot_behavior must be one of error, recreate"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(write: Write, text: str, line: int, expected: str):
    path = write(text)

    assert problem(path).startswith(f"the configuration is wrong at {path}:{line}: {expected}")


def test_all_mistakes_are_told_at_once(write: Write):
    message = problem(write("source: {prot: 1}\nmode: x\nbatch: {max_fill_ms: -1}"))

    assert "has 3 problems" in message
    assert len(message.splitlines()) == 4


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (
            {"ETL__SORUCE__HOST": "x"},
            "env ETL__SORUCE__HOST: soruce is not a known key; did you mean 'source'?",
        ),
        ({"ETL__SOURCE__PROT": "x"}, "env ETL__SOURCE__PROT: source.prot is not a known key"),
        ({"ETL__SOURCE__PORT": "x"}, "env ETL__SOURCE__PORT: source.port must be a whole number"),
        ({"ETL__TABLES__0__MODE": "mirror"}, "env ETL__TABLES__0__MODE: tables must be a list"),
        ({"ETL__": "x"}, "env ETL__:"),
        (
            {"ETL__DESTINATION__TYPE": "dlta"},
            "env ETL__DESTINATION__TYPE: destination.type must be one of duckdb, delta; did you mean 'delta'?",
        ),
        (
            {"ETL__DESTINATION__TYPE": "delta", "ETL__DESTINATION__SPARK__CONF": "spark.a=b"},
            "env ETL__DESTINATION__SPARK__CONF: destination.spark.conf must be a section of spark.* keys, in a variable as JSON",
        ),
    ],
)
def test_a_mistake_in_a_variable_is_told_with_its_name(write: Write, variable: dict[str, str], expected: str):
    assert expected in problem(write(), variable)


@pytest.mark.parametrize(
    "text",
    [
        f"source: {CANARY}",
        f"source: {{port: {CANARY}}}",
        f"source: {{password: [{CANARY}]}}",
        f"source: {{password: {{env: [{CANARY}]}}}}",
        f"source: {{dsn: {CANARY}, host: x}}",
        f"source: {{dsn: {CANARY}, connect_timeout_s: 0}}",
        f"source: {{sslmode: {CANARY}}}",
        f"batch: {{max_bytes: {CANARY}}}",
        f"mode: {CANARY}",
        f"destination: {{type: {CANARY}}}",
        f"destination: {{type: delta, path: {CANARY}, catalog: {CANARY}}}",
        f"destination: {{type: delta, path: x, spark: {{remote: {CANARY}}}}}",
        f"destination: {{type: delta, path: x, spark: {{conf: {CANARY}}}}}",
        f"destination: {{type: delta, path: x, spark: {{conf: {{a: {CANARY}}}}}}}",
        f"destination: {{type: delta, path: x, spark: {{conf: {{spark.a: [{CANARY}]}}}}}}",
        f"tables: [{CANARY}]",
        f"source: {{password: '{CANARY}}}",
        f"source: {{password: {CANARY}: x}}",
        f"source: {{password: @{CANARY}}}",
        f"source: {{password: %{CANARY}}}",
        f'source: {{password: "\\{CANARY}"}}',
    ],
)
def test_no_message_repeats_a_value(write: Write, text: str):
    assert CANARY not in problem(write(text))


def test_a_secret_that_cannot_be_read_is_named_by_its_section(write: Write):
    with pytest.raises(ConfigError, match="store: environment variable STATE_PW is not set"):
        load_config(write("store: {password: {env: STATE_PW}}"), environ={})
