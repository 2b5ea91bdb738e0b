"""The jars of Spark are pinned by checksum, fit the installed packages, and are used only whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import etl
from etl.errors import SparkSetupError
from etl.spark.fetch import causes, fetch_jars, module_file, proxy_properties
from etl.spark.jars import JARS, Jar, JarState, find_jars, inspect_jars, jars_directory

ROOT = Path(etl.__file__).resolve().parents[1]
DELTA = [jar for jar in JARS if jar.group == "io.delta"]


def pinned(name: str, content: bytes) -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


ONE, TWO = pinned("one", b"first"), pinned("two", b"second")


@pytest.mark.parametrize("jar", DELTA, ids=lambda jar: jar.artifact)
def test_a_jar_of_delta_has_the_version_of_the_installed_package(jar: Jar):
    assert jar.version == version("delta-spark")


def test_delta_is_built_for_the_spark_and_the_scala_of_the_installed_pyspark():
    spark = ".".join(version("pyspark").split(".")[:2])
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    (scala,) = Path(package.origin).parent.glob("jars/scala-library-*.jar")
    scala_version = re.fullmatch(r"scala-library-(\d+\.\d+)\.\d+\.jar", scala.name)
    assert scala_version is not None

    assert [jar.artifact for jar in DELTA] == [f"delta-spark_{spark}_{scala_version[1]}", "delta-storage"]


def test_every_pin_is_complete_and_none_stands_twice():
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in JARS)
    assert len({jar.file_name for jar in JARS}) == len(JARS)


def test_a_new_pin_makes_set_up_run_again():
    others = ("requirements-build.lock", "requirements-dev.lock", "pyproject.toml", "tools/setup.sh")
    old = [f"--old-file={name}" for name in others]
    make = shutil.which("make")
    assert make is not None
    planned = subprocess.run(
        [make, "--dry-run", *old, "--what-if=etl/spark/jars.py", "setup"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "tools/setup.sh .venv" in planned.stdout


def test_the_directory_is_the_environments_own_unless_a_variable_names_another():
    own = Path(sys.prefix, "share", "etl", "jars")

    assert jars_directory({}) == own
    assert jars_directory({"ETL_JARS_DIR": ""}) == own
    assert jars_directory({"ETL_JARS_DIR": "/opt/jars"}) == Path("/opt/jars")
    assert jars_directory({"ETL_JARS_DIR": "jars"}) == Path.cwd() / "jars"


def test_a_jar_is_present_only_with_exactly_its_bytes(tmp_path: Path):
    (tmp_path / "one-1.0.jar").write_bytes(b"first")
    (tmp_path / "two-1.0.jar").write_bytes(b"secon")

    states = [report.state for report in inspect_jars(tmp_path, (ONE, TWO, pinned("three", b"")))]

    assert states == [JarState.PRESENT, JarState.CORRUPT, JarState.MISSING]


def test_whole_jars_are_found_in_the_order_of_the_table(tmp_path: Path):
    (tmp_path / "one-1.0.jar").write_bytes(b"first")
    (tmp_path / "two-1.0.jar").write_bytes(b"second")

    assert find_jars(tmp_path, (TWO, ONE)) == (tmp_path / "two-1.0.jar", tmp_path / "one-1.0.jar")


def test_every_missing_and_every_corrupt_jar_is_named_with_the_command_that_helps(tmp_path: Path):
    (tmp_path / "one-1.0.jar").write_bytes(b"cut sho")

    with pytest.raises(SparkSetupError) as caught:
        find_jars(tmp_path, (ONE, TWO))

    assert caught.value.message == (
        f"Spark's jars in {tmp_path} are not complete: one-1.0.jar is corrupt, two-1.0.jar is missing"
    )
    assert caught.value.hint == "run: etl jars fetch"


def test_a_directory_that_does_not_exist_has_no_jars(tmp_path: Path):
    (tmp_path / "file").touch()

    for directory in (tmp_path / "gone", tmp_path / "file"):
        assert [report.state for report in inspect_jars(directory, (ONE,))] == [JarState.MISSING]


def test_what_cannot_be_read_is_an_error_and_not_a_missing_jar(tmp_path: Path):
    (tmp_path / "one-1.0.jar").mkdir()

    with pytest.raises(SparkSetupError, match=r"one-1\.0\.jar cannot be read"):
        find_jars(tmp_path, (ONE,))


def test_with_nothing_to_download_no_java_is_needed(tmp_path: Path):
    (tmp_path / "one-1.0.jar").write_bytes(b"first")
    told: list[str] = []

    assert fetch_jars(tmp_path, {"PATH": ""}, told.append, (ONE,)) == ()
    assert told == []


def test_without_java_nothing_is_downloaded_and_nothing_made(tmp_path: Path):
    with pytest.raises(SparkSetupError, match="Spark needs Java"):
        fetch_jars(tmp_path / "jars", {"PATH": ""}, print, (ONE,))

    assert not (tmp_path / "jars").exists()


def test_a_module_depends_on_what_is_asked_for_and_on_nothing_else():
    root = ET.fromstring(module_file([ONE, TWO]))  # noqa: S314  # written by ourselves

    assert [dependency.attrib for dependency in root.iter("dependency")] == [
        {"org": "org.example", "name": name, "rev": "1.0", "transitive": "false", "conf": "default->master"}
        for name in ("one", "two")
    ]


@pytest.mark.parametrize(
    ("environ", "properties"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"HTTPS_PROXY": "", "NO_PROXY": "a"}, {}, id="empty"),
        pytest.param(
            {"HTTPS_PROXY": "http://proxy:3128/"},
            {"https.proxyHost": "proxy", "https.proxyPort": "3128"},
            id="https",
        ),
        pytest.param(
            {"HTTP_PROXY": "proxy:3128", "https_proxy": "http://other"},
            {
                "http.proxyHost": "proxy",
                "http.proxyPort": "3128",
                "https.proxyHost": "other",
                "https.proxyPort": "443",
            },
            id="both, without scheme or port",
        ),
        pytest.param(
            {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:2"},
            {"https.proxyHost": "lower", "https.proxyPort": "2"},
            id="lower case first",
        ),
        pytest.param(
            {"HTTPS_PROXY": "http://me:p%40ss@[::1]:8080"},
            {
                "https.proxyHost": "::1",
                "https.proxyPort": "8080",
                "http.proxyUser": "me",
                "http.proxyPassword": "p@ss",
                "jdk.http.auth.tunneling.disabledSchemes": "",
            },
            id="user and password",
        ),
        pytest.param(
            {"HTTP_PROXY": "p:1", "NO_PROXY": "localhost, .corp.example"},
            {
                "http.proxyHost": "p",
                "http.proxyPort": "1",
                "http.nonProxyHosts": "localhost|*.localhost|corp.example|*.corp.example",
            },
            id="direct hosts",
        ),
        pytest.param(
            {"HTTP_PROXY": "p:1", "no_proxy": "*"},
            {"http.proxyHost": "p", "http.proxyPort": "1", "http.nonProxyHosts": "*"},
            id="everything direct",
        ),
    ],
)
def test_the_proxy_of_the_shell_is_told_to_java(environ: dict[str, str], properties: dict[str, str]):
    assert proxy_properties(environ) == properties


@pytest.mark.parametrize("value", ["http://", "http://proxy:port", "//"])
def test_a_proxy_that_is_no_url_is_refused_without_showing_it(value: str):
    with pytest.raises(SparkSetupError, match="HTTPS_PROXY is no URL"):
        proxy_properties({"HTTPS_PROXY": value})


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        pytest.param(
            ":: problems summary ::\n:::: WARNINGS\n\tmodule not found: a#b;1\n\t==== public: tried\n"
            ":::: ERRORS\n\tServer access error at url u (Connection refused)\n\n\tServer access error at v\n",
            "Server access error at url u (Connection refused)",
            id="no network",
        ),
        pytest.param(
            ":::: WARNINGS\n\t\tmodule not found: a#b;1\n\t==== public: tried\n\t\tmodule not found: c#d;1\n",
            "module not found: a#b;1; module not found: c#d;1",
            id="not in the repository",
        ),
        pytest.param(
            'Exception in thread "main" java.text.ParseException: line 2\n\tat a.b(c.java:1)\nCaused by: x\n',
            "java.text.ParseException: line 2",
            id="settings that Ivy cannot read",
        ),
        pytest.param(
            "\t\t::::\n\t\t:: a#b;1: no protocol\n\t\t::::\n\n"
            ":: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS\n",
            "a#b;1: no protocol",
            id="anything else",
        ),
        pytest.param("", "", id="nothing"),
    ],
)
def test_of_what_ivy_prints_the_cause_is_shown(output: str, cause: str):
    assert causes(output) == cause


def test_the_jars_are_listed_for_people_and_for_scripts(tmp_path: Path):
    (tmp_path / JARS[0].file_name).write_bytes(b"not that jar")

    listed = run_etl("jars", "list", "--dir", tmp_path)
    data = json.loads(run_etl("jars", "list", "--dir", tmp_path, "--json").stdout)

    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [
        ["corrupt" if jar is JARS[0] else "missing", jar.coordinate] for jar in JARS
    ]
    assert data[0] == {
        "coordinate": JARS[0].coordinate,
        "sha256": JARS[0].sha256,
        "path": str(tmp_path / JARS[0].file_name),
        "state": "corrupt",
    }


def run_etl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etl.cli", *map(str, arguments)],
        env=dict(os.environ) | {"COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=True,
    )
