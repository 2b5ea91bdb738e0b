"""What a pipeline into Delta Lake is told: where the tables lie, and which Spark does the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etl.config.destinations import DeltaDestinationConfig, DuckDbDestinationConfig
from etl.config.explain import explain
from etl.config.loader import load, load_config
from etl.config.models import PipelineConfig
from etl.config.secrets import MASK
from etl.errors import ConfigError

Write = Callable[..., Path]

ROOT = Path(__file__).parents[3]


def delta(path: Path, environ: dict[str, str] | None = None) -> DeltaDestinationConfig:
    destination = load_config(path, environ=environ or {}).destination
    assert isinstance(destination, DeltaDestinationConfig)
    return destination


@pytest.mark.parametrize("key", ["path", "staging"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("./lake", "{here}/lake"),
        ("data/lake/", "{here}/data/lake"),
        ("/abs/lake", "/abs/lake"),
        ("s3a://bucket/lake", "s3a://bucket/lake"),
        ("s3a://bucket/lake/", "s3a://bucket/lake"),
        ("hdfs://name:8020/lake", "hdfs://name:8020/lake"),
    ],
)
def test_a_folder_is_relative_to_the_file_and_an_address_is_kept(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, given: str, expected: str
):
    place = f"catalog: c, staging: '{given}'" if key == "staging" else f"path: '{given}'"
    path = write(f"destination: {{type: delta, {place}}}")
    monkeypatch.chdir("/")

    assert getattr(delta(path), key) == expected.format(here=tmp_path)


def test_a_folder_from_a_variable_is_relative_to_the_file_too(write: Write, tmp_path: Path):
    path = write("destination: {type: delta, path: elsewhere}")

    assert delta(path, {"ETL__DESTINATION__PATH": "lake"}).path == f"{tmp_path}/lake"


def test_a_catalog_with_a_staging_folder_is_a_place(write: Write):
    destination = delta(write("destination: {type: delta, catalog: main, staging: 's3a://b/staging'}"))

    assert (destination.path, destination.catalog) == (None, "main")


def test_one_variable_turns_a_file_for_duckdb_into_one_for_delta(write: Write):
    environ = {"ETL__DESTINATION__TYPE": "delta"}

    assert isinstance(load_config(write(), environ={}).destination, DuckDbDestinationConfig)
    assert isinstance(load_config(write(), environ=environ).destination, DeltaDestinationConfig)


@pytest.mark.parametrize(
    ("written", "given_to_spark"),
    [
        ("4", "4"),
        ("0.6", "0.6"),
        ("true", "true"),
        ("false", "false"),
        ("2g", "2g"),
        ("'007'", "007"),
        ("''", ""),
    ],
)
def test_numbers_and_booleans_reach_spark_as_it_writes_them(write: Write, written: str, given_to_spark: str):
    path = write(f"destination: {{type: delta, path: x, spark: {{conf: {{spark.a: {written}}}}}}}")

    assert delta(path).spark.conf == {"spark.a": given_to_spark}


def test_properties_come_from_a_variable_as_json(write: Write):
    path = write("destination: {type: delta, path: x, spark: {conf: {spark.a: 1}}}")
    given = json.dumps({"spark.executor.instances": 3, "spark.b.enabled": True})

    assert delta(path, {"ETL__DESTINATION__SPARK__CONF": given}).spark.conf == {
        "spark.executor.instances": "3",
        "spark.b.enabled": "true",
    }


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.x",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.box.account.blob.core.windows.net",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
    ],
)
def test_a_property_whose_name_tells_a_secret_is_listed_masked(write: Write, name: str):
    assert shown(write, name, "canary-9f3a") == MASK


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
def test_options_that_hold_a_secret_are_listed_masked(write: Write, name: str):
    assert shown(write, name, "-Xmx1g -Djavax.net.ssl.trustStorePassword=canary-9f3a") == MASK
    assert shown(write, name, "-Xmx1g") == "-Xmx1g"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.shuffle.partitions", "8"),
        ("spark.executor.memory", "4g"),
        ("spark.ssl.keyStore", "store.jks"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.example.CredentialsProvider"),
    ],
)
def test_every_other_property_is_listed_as_it_is(write: Write, name: str, value: str):
    assert shown(write, name, value) == value


def shown(write: Write, name: str, value: str) -> object:
    path = write(f"destination: {{type: delta, path: x, spark: {{conf: {{{name}: '{value}'}}}}}}")
    settings = {setting.key: setting for setting in explain(load(path, environ={}))}
    setting = settings[f"destination.spark.conf.{name}"]
    assert setting.origin == "file:1"
    return setting.value


def test_every_property_is_listed_with_the_line_it_stands_on(write: Write):
    text = "destination:\n  type: delta\n  path: x\n  spark:\n    conf:\n      spark.a: 1\n      spark.b: 2"
    settings = explain(load(write(text), environ={}))

    assert [(s.key, s.value, s.origin) for s in settings if ".conf." in s.key] == [
        ("destination.spark.conf.spark.a", "1", "file:6"),
        ("destination.spark.conf.spark.b", "2", "file:7"),
    ]


def test_without_properties_the_section_is_listed_empty(write: Write):
    settings = explain(load(write("destination: {type: delta, path: x}"), environ={}))

    assert [(s.value, s.origin) for s in settings if s.key == "destination.spark.conf"] == [("{}", "default")]


def test_the_json_schema_holds_every_key_and_takes_what_yaml_reads():
    definitions = PipelineConfig.model_json_schema()["$defs"]
    keys = {
        name: set(definitions[name]["properties"])
        for name in definitions
        if "properties" in definitions[name]
    }
    conf = definitions["SparkConfig"]["properties"]["conf"]["additionalProperties"]

    assert keys["DeltaDestinationConfig"] == set(DeltaDestinationConfig.model_fields)
    assert keys["SparkConfig"] == {"master", "remote", "conf"}
    assert keys["MaintenanceConfig"] == {"optimize_commits", "vacuum_hours", "retention_hours"}
    assert {kind["type"] for kind in conf["anyOf"]} == {"string", "number", "boolean"}


def test_the_reference_has_a_section_for_every_nested_section():
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")

    assert "### `destination.maintenance`\n" in text
    assert "### `destination.spark`\n" in text
    assert "| `conf` | section of text |" in text


def test_the_example_for_delta_is_a_valid_file_that_leaves_the_password_to_libpq():
    path = ROOT / "examples" / "delta.yaml"
    config = load_config(path, environ={})

    assert config.source.describe({}) == "postgres@localhost:5432/postgres"
    assert "password" not in config.source.parameters({})
    assert config.destination.describe() == f"delta {path.parent / 'lake'}"


def test_a_batch_fills_longer_where_each_one_is_a_commit_unless_it_is_said(write: Write):
    assert load_config(write(), environ={}).max_fill_s == 1.0
    delta = write("destination: {type: delta, path: lake}")
    assert load_config(delta, environ={}).max_fill_s == 5.0
    assert load_config(delta, environ={"ETL__BATCH__MAX_FILL_MS": "0"}).max_fill_s == 0.0


@pytest.mark.parametrize(
    "destination",
    ["{type: duckdb, path: a.duckdb}", '{type: delta, path: lake, spark: {remote: "sc://host:15002"}}'],
    ids=["duckdb", "spark connect"],
)
def test_executors_read_only_where_there_are_some_that_take_our_code(write: Write, destination: str):
    path = write(f"destination: {destination}\ntable_sync: {{read_by: executors}}")
    with pytest.raises(
        ConfigError, match=r"table_sync\.read_by: executors, which only a delta destination has"
    ):
        load_config(path, environ={})
