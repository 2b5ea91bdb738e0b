"""The jars of Spark arrive through the real Ivy, verified, from Maven Central or from where the user says."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.errors import ExitCode, JarDownloadError, SparkSetupError
from etl.spark.fetch import fetch_jars
from etl.spark.jars import JARS, Jar, find_jars, jars_directory

pytestmark = pytest.mark.spark

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
  <dependencies>
    <dependency><groupId>org.example</groupId><artifactId>nowhere</artifactId><version>1.0</version></dependency>
  </dependencies>
</project>
"""


def pinned(name: str, content: bytes) -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


ONE, TWO = pinned("one", b"first"), pinned("two", b"second")


class Mirror:
    """A Maven repository in a directory, and the variables that make Ivy use it."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "repository"
        settings = directory / "ivysettings.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
            f'<ibiblio name="mirror" m2compatible="true" root="{self._root.as_uri()}/"/>'
            "</resolvers></ivysettings>"
        )
        self.environ = dict(os.environ) | {"ETL_IVY_SETTINGS": str(settings)}

    def publish(self, name: str, content: bytes) -> None:
        folder = self._root / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.jar").write_bytes(content)
        (folder / f"{name}-1.0.pom").write_text(POM.format(name=name))


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path)


def test_set_up_has_fetched_every_pinned_jar():
    assert [path.name for path in find_jars(jars_directory(os.environ))] == [jar.file_name for jar in JARS]


def test_an_empty_directory_is_filled_from_maven_central_once(tmp_path: Path):
    directory = tmp_path / "jars"
    # a home that is not there: neither Ivy nor Java may need one
    environ = dict(os.environ) | {"HOME": "/nonexistent", "ETL_JARS_DIR": str(directory)}
    environ.pop("ETL_IVY_SETTINGS", None)

    first, second = (jars_fetch(environ) for _ in range(2))

    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [f"done: {directory / jar.file_name}" for jar in JARS]
    assert [path.name for path in find_jars(directory)] == names_in(directory)
    assert (second.returncode, second.stdout) == (0, "")
    assert second.stderr == "nothing to do: every jar is there and whole\n"


def test_only_what_is_missing_or_corrupt_is_downloaded(mirror: Mirror, tmp_path: Path):
    directory = tmp_path / "jars"
    directory.mkdir()
    (directory / "one-1.0.jar").write_bytes(b"first")
    (directory / "two-1.0.jar").write_bytes(b"cut sh")
    mirror.publish("two", b"second")  # one is not even there
    told: list[str] = []

    assert fetch_jars(directory, mirror.environ, told.append, (ONE, TWO)) == (directory / "two-1.0.jar",)

    assert told == [f"downloading org.example:two:1.0 (corrupt in {directory})"]
    assert find_jars(directory, (ONE, TWO)) == (directory / "one-1.0.jar", directory / "two-1.0.jar")


def test_a_jar_comes_alone_without_what_it_depends_on(mirror: Mirror, tmp_path: Path):
    mirror.publish("one", b"first")

    fetch_jars(tmp_path / "jars", mirror.environ, print, (ONE,))

    assert names_in(tmp_path / "jars") == ["one-1.0.jar"]


def test_bytes_other_than_those_pinned_are_not_used(mirror: Mirror, tmp_path: Path):
    mirror.publish("one", b"forged")

    with pytest.raises(SparkSetupError) as caught:
        fetch_jars(tmp_path / "jars", mirror.environ, print, (ONE,))

    assert ONE.sha256 in caught.value.message
    assert hashlib.sha256(b"forged").hexdigest() in caught.value.message
    assert names_in(tmp_path / "jars") == []


def test_a_jar_that_the_repository_does_not_have_is_named(mirror: Mirror, tmp_path: Path):
    with pytest.raises(JarDownloadError, match=r"module not found: org\.example#one;1\.0") as caught:
        fetch_jars(tmp_path / "jars", mirror.environ, print, (ONE,))

    assert "ETL_IVY_SETTINGS" in caught.value.hint
    assert names_in(tmp_path / "jars") == []


def test_a_directory_may_have_any_name(mirror: Mirror, tmp_path: Path):
    mirror.publish("one", b"first")
    directory = tmp_path / "a [revision] \"b\" 'c' #d ${e}"

    assert fetch_jars(directory, mirror.environ, print, (ONE,)) == (directory / "one-1.0.jar",)


def test_a_place_that_cannot_be_written_is_named(mirror: Mirror, tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(SparkSetupError, match="jars cannot be written to") as caught:
        fetch_jars(tmp_path / "file" / "jars", mirror.environ, print, (ONE,))

    assert "ETL_JARS_DIR" in caught.value.hint


def test_settings_for_ivy_that_are_not_there_are_named(tmp_path: Path):
    environ = dict(os.environ) | {"ETL_IVY_SETTINGS": str(tmp_path / "gone.xml")}

    with pytest.raises(SparkSetupError, match=r"ETL_IVY_SETTINGS names .*gone\.xml"):
        fetch_jars(tmp_path / "jars", environ, print, (ONE,))


def test_java_goes_through_the_proxy_of_the_shell_with_its_password(refusing_proxy: RefusingProxy):
    url = f"http://me:p%22a%5Css@localhost:{refusing_proxy.port}"
    environ = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}

    ended = jars_fetch(
        environ | {"HTTPS_PROXY": url, "https_proxy": url, "ETL_JARS_DIR": refusing_proxy.directory}
    )

    assert ended.returncode == ExitCode.UNAVAILABLE, ended.stderr
    assert ended.stderr.splitlines()[-2].startswith(f"error: cannot download {JARS[0].coordinate}")
    credentials = base64.b64encode(b'me:p"a\\ss').decode()
    assert refusing_proxy.requests
    assert all(request.startswith("CONNECT ") for request in refusing_proxy.requests)
    assert any(f"Proxy-authorization: Basic {credentials}" in r for r in refusing_proxy.requests)


class RefusingProxy:
    """An HTTP proxy that asks everyone for a password, lets no one through, and remembers the requests."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.requests: list[str] = []
        self._server = socket.create_server(("localhost", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                self._refuse(connection)

    def _refuse(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request and (block := connection.recv(1 << 16)):
            request += block
        self.requests.append(request.decode())
        connection.sendall(
            b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="proxy"\r\n'
            b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )


@pytest.fixture
def refusing_proxy(tmp_path: Path) -> Iterator[RefusingProxy]:
    proxy = RefusingProxy(tmp_path / "jars")
    yield proxy
    proxy.close()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def jars_fetch(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etl.cli", "jars", "fetch"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
