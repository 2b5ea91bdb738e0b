"""Java is found by JAVA_HOME, then by PATH; one that is too old is passed over, and nothing else ever starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etl.errors import DestinationError, ExitCode, SparkSetupError
from etl.spark.java import find_java, major_version, parse_version

MakeJava = Callable[..., Path]


@pytest.mark.parametrize(
    ("printed", "version", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', "17.0.15", 17),
        ('java version "1.8.0_402"', "1.8.0_402", 8),
        ('openjdk version "21-ea" 2023-09-19', "21-ea", 21),
        ('openjdk version "11.0.22" 2024-01-16 LTS', "11.0.22", 11),
        ('openjdk version "10" 2018-03-20', "10", 10),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "25.0.1"', "25.0.1", 25),
    ],
)
def test_a_version_is_read_from_what_java_prints(printed: str, version: str, major: int):
    assert parse_version(printed) == version
    assert major_version(version) == major


@pytest.mark.parametrize("printed", ["", "command not found", 'version ""', 'version "unknown"'])
def test_what_names_no_version_has_none(printed: str):
    assert parse_version(printed) is None


def test_java_home_goes_before_the_path(make_java: MakeJava):
    home, path = make_java("home", "17.0.15"), make_java("path", "21.0.1")

    assert find_java(environ(home=home, path=path)) == home
    assert (started(home), started(path)) == (True, False)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        pytest.param("11.0.22", 0, id="too old"),
        pytest.param("1.8.0_402", 0, id="far too old"),
        pytest.param("17.0.15", 1, id="does not start"),
        pytest.param("unknown", 0, id="names no version"),
    ],
)
def test_the_path_helps_where_java_home_does_not(make_java: MakeJava, version: str, code: int):
    home, path = make_java("home", version, code=code), make_java("path", "17")

    assert find_java(environ(home=home, path=path)) == path


def test_java_home_may_name_nothing(make_java: MakeJava, tmp_path: Path):
    path = make_java("path", "17.0.15")

    assert find_java(environ(home=tmp_path / "gone" / "bin" / "java", path=path)) == path
    assert find_java(environ(path=path) | {"JAVA_HOME": ""}) == path


def test_without_any_java_the_error_names_what_was_looked_at_and_the_command_to_run(tmp_path: Path):
    with pytest.raises(SparkSetupError) as caught:
        find_java({"PATH": str(tmp_path)})

    assert caught.value.message == (
        "Spark needs Java 17 or newer: JAVA_HOME is not set; there is no java on PATH"
    )
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint
    assert "elsewhere install any Java 17 or newer" in caught.value.hint


def test_a_java_that_is_too_old_is_named_with_its_version(make_java: MakeJava, tmp_path: Path):
    home, path = tmp_path / "gone" / "bin" / "java", make_java("path", "1.8.0_402")

    with pytest.raises(SparkSetupError) as caught:
        find_java(environ(home=home, path=path))

    assert caught.value.message == (
        f"Spark needs Java 17 or newer: JAVA_HOME's {home} does not exist; PATH's {path} is version 1.8.0_402"
    )


def test_missing_java_is_the_destinations_error_and_no_reason_to_start_again():
    assert issubclass(SparkSetupError, DestinationError)
    assert SparkSetupError.exit_code == ExitCode.CONFIGURATION


def test_the_composition_root_loads_no_spark():
    program = (
        "import sys, etl.app, etl.spark.fetch, etl.spark.jars, etl.spark.java\n"
        "print(sorted({'pyspark', 'py4j', 'delta'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], ExitCode.OK),
        (["check", "-p", "pipeline.yaml"], ExitCode.CHECK_FAILED),
        (["replicate", "-p", "pipeline.yaml"], ExitCode.UNAVAILABLE),
        (["jars", "list"], ExitCode.OK),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_java_is_not_started_without_need(
    make_java: MakeJava, tmp_path: Path, arguments: list[str], code: int
):
    java = make_java("home", "17")
    # nobody listens on port 1
    (tmp_path / "pipeline.yaml").write_text(
        "pipeline: {id: 1, publication: p}\n"
        "source: {host: localhost, port: 1, user: u, dbname: d}\n"
        "destination: {type: duckdb, path: out.duckdb}\n"
        "retry: {initial_delay_ms: 1, max_attempts: 1}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "etl.cli", *arguments],
        cwd=tmp_path,
        env=dict(os.environ) | environ(home=java, path=java),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == code, ended.stderr
    assert not started(java)


def environ(*, path: Path, home: Path | None = None) -> dict[str, str]:
    """The variables under which these two would be found."""
    found = {"PATH": f"{path.parent}{os.pathsep}{os.defpath}"}
    return found if home is None else found | {"JAVA_HOME": str(home.parents[1])}


def started(java: Path) -> bool:
    return java.with_name("java.starts").exists()
