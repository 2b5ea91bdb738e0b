"""The properties of a session: ours, under what was configured; apart from what decides how values are read."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.spark.settings import SparkSettings, session_properties

JARS = (Path("/jars/delta-spark.jar"), Path("/jars/delta-storage.jar"))
OPTIONS, EXTENSIONS = "spark.driver.extraJavaOptions", "spark.sql.extensions"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
#: What decides how values and statements are read.
MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def properties(master: str = "local[*]", remote: str | None = None, **conf: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in conf.items()}
    return session_properties(SparkSettings(master, remote, named), JARS)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_a_local_spark_listens_on_the_loopback_only(master: str):
    ours = properties(master)
    assert ours["spark.driver.host"] == ours["spark.driver.bindAddress"] == "127.0.0.1"
    assert SparkSettings(master).is_local


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "yarn", "k8s://https://host:6443", "local-cluster[2,1,1024]"]
)
def test_a_cluster_reaches_the_driver_by_its_own_address(master: str):
    ours = properties(master)
    assert "spark.driver.host" not in ours
    assert "spark.driver.bindAddress" not in ours
    assert not SparkSettings(master).is_local


@pytest.mark.parametrize("master", ["local[*]", "yarn"])
def test_a_session_brings_delta_with_it(master: str):
    ours = properties(master)
    assert ours["spark.jars"] == "/jars/delta-spark.jar,/jars/delta-storage.jar"
    assert ours[EXTENSIONS] == DELTA_EXTENSION
    assert ours["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def test_a_remote_spark_is_told_what_values_mean_and_nothing_else():
    assert properties(remote="sc://host:15002") == MEANING
    settings = SparkSettings(remote="sc://host:15002")
    assert not settings.is_local
    assert settings.address == "sc://host:15002"


@pytest.mark.parametrize("remote", [None, "sc://host:15002"])
def test_values_mean_the_same_on_every_spark(remote: str | None):
    assert MEANING.items() <= properties(remote=remote).items()


@given(
    st.dictionaries(
        st.sampled_from(sorted(properties().keys() - {OPTIONS, EXTENSIONS, "spark.jars"})), st.text()
    )
)
def test_what_is_configured_wins(conf: dict[str, str]):
    for remote in (None, "sc://host:15002"):
        ours = session_properties(SparkSettings(remote=remote, conf=conf), JARS)
        assert conf.items() <= ours.items()


@pytest.mark.parametrize(
    ("name", "theirs", "joined"),
    [
        (EXTENSIONS, "org.example.Extension", f"{DELTA_EXTENSION},org.example.Extension"),
        ("spark.jars", "/mine.jar", "/jars/delta-spark.jar,/jars/delta-storage.jar,/mine.jar"),
    ],
)
def test_a_configured_list_is_added_to_ours(name: str, theirs: str, joined: str):
    assert session_properties(SparkSettings(conf={name: theirs}), JARS)[name] == joined


def test_configured_options_of_java_are_added_to_ours():
    ours = properties()[OPTIONS]
    assert properties(spark_driver_extraJavaOptions="-Xmx1g -Da=b")[OPTIONS] == f"{ours} -Xmx1g -Da=b"


def test_a_list_we_have_no_part_in_is_taken_as_it_is():
    configured = {OPTIONS: "-Xmx1g", EXTENSIONS: "org.example.Extension"}
    ours = session_properties(SparkSettings(remote="sc://host:15002", conf=configured), ())
    assert configured.items() <= ours.items()
    assert (
        session_properties(SparkSettings(conf={"spark.jars": "/mine.jar"}), ())["spark.jars"] == "/mine.jar"
    )


def test_the_log_settings_are_one_option_and_there():
    name, _, address = properties()[OPTIONS].partition("=")
    assert name == "-Dlog4j2.configurationFile"
    assert " " not in address
    assert Path(urlparse(address).path).is_file()


def test_settings_are_not_changed_by_asking():
    conf = {"spark.jars": "/mine.jar"}
    settings = SparkSettings(conf=conf)
    session_properties(settings, JARS)
    assert settings.conf == {"spark.jars": "/mine.jar"}
