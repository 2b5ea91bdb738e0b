"""Downloads pinned jars with the Ivy that pyspark ships: it knows where Maven Central is, and how to use a mirror.

Ivy runs in a directory of its own inside the target, so nothing is read from or written to a home, and a jar appears
under its name only whole and verified.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from etl.errors import JarDownloadError, SparkSetupError
from etl.spark.jars import JARS, JARS_DIR_VARIABLE, Jar, JarState, jar_state, sha256_of
from etl.spark.java import find_java

IVY_SETTINGS_VARIABLE = "ETL_IVY_SETTINGS"

#: Ivy itself waits for ever for a server that does not answer.
_DOWNLOAD_TIMEOUT_S = 600
_OUT = "out"
_THROWN = 'Exception in thread "main" '
_ADVICE = "USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS"


def fetch_jars(
    directory: Path,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
    jars: tuple[Jar, ...] = JARS,
) -> tuple[Path, ...]:
    """Download what is missing or corrupt in `directory`; the files that are new there. `tell` hears of each step.

    Java is started only when there is something to do. Raises `JarDownloadError` when a jar cannot be downloaded, and
    `SparkSetupError` when Java is missing, the directory cannot be written, or the bytes are not those pinned.
    """
    directory = directory.absolute()
    states = {jar: jar_state(jar, directory / jar.file_name) for jar in jars}
    wanted = [jar for jar, state in states.items() if state is not JarState.PRESENT]
    if not wanted:
        return ()
    java, settings = find_java(environ), _settings(environ)
    for jar in wanted:
        tell(f"downloading {jar.coordinate} ({states[jar]} in {directory})")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fetch-", dir=directory) as work:
            _run_ivy(java, Path(work), wanted, settings, environ)
            return tuple(_take(jar, Path(work, _OUT), directory) for jar in wanted)
    except OSError as error:
        raise SparkSetupError(
            f"jars cannot be written to {directory}: {error.strerror or error}",
            hint=f"run as a user that may, or name another directory with --dir or {JARS_DIR_VARIABLE}",
        ) from error


def module_file(jars: Sequence[Jar]) -> str:
    """The module for Ivy that depends on exactly these jars: their own dependencies are left out."""
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false"'
        ' conf="default->master"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="etl" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )


def proxy_properties(environ: Mapping[str, str]) -> dict[str, str]:
    """The shell's proxy variables (lower case first, as curl reads them) as system properties, which a JVM reads."""
    properties: dict[str, str] = {}
    for scheme, default_port in (("http", 80), ("https", 443)):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not value:
            continue
        try:
            url = urlsplit(value if "://" in value else f"http://{value}")
            host, port = url.hostname, url.port or default_port
        except ValueError:
            host = None
        if not host:
            raise SparkSetupError(
                f"the proxy in {scheme.upper()}_PROXY is no URL", hint="the form is http://host:port"
            )
        properties |= {f"{scheme}.proxyHost": host, f"{scheme}.proxyPort": str(port)}
        if url.username:
            # Ivy asks for these names whatever the scheme; Java refuses Basic for tunnels unless told otherwise
            properties |= {
                "http.proxyUser": unquote(url.username),
                "http.proxyPassword": unquote(url.password or ""),
                "jdk.http.auth.tunneling.disabledSchemes": "",
            }
    if properties and (direct := environ.get("no_proxy") or environ.get("NO_PROXY")):
        properties["http.nonProxyHosts"] = "|".join(_direct_hosts(direct))
    return properties


def _direct_hosts(no_proxy: str) -> list[str]:
    """A name stands for its subdomains too; Java wants them spelled out."""
    names = [name.strip().removeprefix("*").removeprefix(".") for name in no_proxy.split(",") if name.strip()]
    return [pattern for name in names for pattern in ((name, f"*.{name}") if name else ("*",))]


def _settings(environ: Mapping[str, str]) -> Path | None:
    name = environ.get(IVY_SETTINGS_VARIABLE)
    if not name:
        return None
    path = Path(name).absolute()
    if not path.is_file():
        raise SparkSetupError(
            f"{IVY_SETTINGS_VARIABLE} names {path}, which is no file",
            hint="name an Ivy settings file, or unset it to use Maven Central",
        )
    return path


def _run_ivy(
    java: Path, work: Path, jars: Sequence[Jar], settings: Path | None, environ: Mapping[str, str]
) -> None:
    # A file keeps a proxy's password out of the list of processes; only its owner can enter the directory.
    options = work / "java-options"
    properties = proxy_properties(environ) | {"ivy.home": str(work / "home")}
    options.write_text("".join(f"{_quoted(f'-D{name}={value}')}\n" for name, value in properties.items()))
    (work / "ivy.xml").write_text(module_file(jars))
    # Relative paths: Ivy would read brackets in a directory's name as a pattern.
    arguments = ["-ivy", "ivy.xml", "-confs", "default", "-cache", "cache", "-types", "jar", "-m2compatible"]
    arguments += ["-retrieve", f"{_OUT}/[artifact]-[revision].[ext]"]
    if settings is not None:
        arguments += ["-settings", str(settings)]
    try:
        run = subprocess.run(
            [java.absolute(), f"@{options.name}", "-jar", _ivy(), *arguments],
            cwd=work,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(jars, f"no end after {_DOWNLOAD_TIMEOUT_S} seconds") from None
    if run.returncode != 0:
        raise _failed(jars, causes(run.stdout))


def causes(output: str) -> str:
    """What Ivy says went wrong: an exception, else the first of its errors, else the modules that no repository has."""
    lines = [text for line in output.splitlines() if (text := line.strip(":\t ")) and text != _ADVICE]
    thrown = [line for line in lines if line.startswith(_THROWN)]
    if thrown:
        return thrown[0].removeprefix(_THROWN)
    if "ERRORS" in lines[:-1]:
        return lines[lines.index("ERRORS") + 1]
    missing = [line for line in lines if line.startswith("module not found:")]
    return "; ".join(missing or lines[-3:])


def _failed(jars: Sequence[Jar], cause: str) -> JarDownloadError:
    return JarDownloadError(
        f"cannot download {', '.join(jar.coordinate for jar in jars)}: {cause}",
        hint="see that this machine reaches Maven Central, through HTTPS_PROXY if need be, or let"
        f" {IVY_SETTINGS_VARIABLE} name an Ivy settings file for your mirror; then run: etl jars fetch",
    )


def _take(jar: Jar, source: Path, directory: Path) -> Path:
    file, target = source / jar.file_name, directory / jar.file_name
    digest = sha256_of(file)
    if digest is None:
        raise _failed([jar], "the repository has no such file")
    if digest != jar.sha256:
        raise SparkSetupError(
            f"{jar.coordinate} was downloaded with sha256 {digest}, but {jar.sha256} is pinned; it is not used",
            hint="the repository or something on the way serves other bytes: find out before you trust it",
        )
    return file.replace(target)


def _ivy() -> Path:
    package = find_spec("pyspark")
    found = sorted(Path(package.origin).parent.glob("jars/ivy-*.jar")) if package and package.origin else []
    if not found:
        raise SparkSetupError("pyspark with its jars is not installed", hint="run: make setup")
    return found[-1]


def _quoted(option: str) -> str:
    """One option in a file of arguments for ``java``."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
