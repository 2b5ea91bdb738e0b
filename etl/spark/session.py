"""The Spark of this process: started when first needed, found again, and started anew when its JVM died.

pyspark keeps one JVM a process and takes seconds to start it, so it stays up until the process ends; who is done only
lets go of its sessions. The JVM ends by itself when this process is gone, killed or not: it reads the end of its input.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import structlog

from etl.errors import DestinationUnavailableError, EtlError, SparkSetupError
from etl.spark.jars import find_jars, jars_directory
from etl.spark.java import find_java
from etl.spark.settings import SparkSettings, launch_properties, session_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()
_starting = threading.Lock()


def check_spark(settings: SparkSettings) -> str:
    """Whether Spark can be started, without starting it; says what was found.

    Raises `SparkSetupError` when Java or a jar is missing.
    """
    if settings.remote is not None:
        return f"Spark Connect at {settings.remote}"
    java = find_java(os.environ)
    jars = find_jars(jars_directory(os.environ))
    return f"Spark {settings.master}, {java}, {len(jars)} jars"


def new_session(settings: SparkSettings) -> SparkSession:
    """A session of its own, with confs and temporary views that no other one sees.

    Raises `SparkSetupError` when Java or a jar is missing, `DestinationUnavailableError` when Spark does not start.
    """
    with _starting:
        if settings.remote is not None:
            return _connected(settings, settings.remote)
        _forget_dead_jvm()
        try:
            return _running(settings).newSession()
        except EtlError:
            raise
        except Exception as error:  # noqa: BLE001 -- py4j, pyspark, grpc and sockets raise their own
            # about to end, it still looks alive
            _forget_dead_jvm(force=True)
            raise DestinationUnavailableError(
                f"Spark on {settings.master} gives no session: {_first_line(error)}",
                hint="it is started again",
            ) from None


def _running(settings: SparkSettings) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    known = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001 -- no public way
    if known is not None and SparkContext._active_spark_context is not None:  # noqa: SLF001 -- no public way
        return known
    java = find_java(os.environ)
    properties = session_properties(settings, find_jars(jars_directory(os.environ)))
    # pyspark finds its JVM by this variable alone, and workers their Python by that one
    os.environ["JAVA_HOME"] = str(java.resolve().parents[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _log.info("spark_starting", master=settings.master)
    _quiet()
    builder = SparkSession.builder.master(settings.master)
    for name, value in properties.items():
        builder = builder.config(name, value)
    try:
        # what stands on the JVM's command line is there for everybody on the machine to read
        SparkContext._ensure_initialized(conf=SparkConf().setAll(launch_properties(properties)))  # noqa: SLF001 -- no public way
        return builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 -- py4j, pyspark, grpc and sockets raise their own
        _forget_dead_jvm(force=True)
        raise DestinationUnavailableError(
            f"Spark does not start on {settings.master}: {_first_line(error)}",
            hint="check spark.master and spark.conf, and that the master is up and has free cores",
        ) from None


def _quiet() -> None:
    """pyspark prints every error with the statement and a stack trace, also those that are expected and handled."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True


def _connected(settings: SparkSettings, address: str) -> SparkSession:
    try:
        from pyspark.sql.connect.session import SparkSession as Connected
    except ImportError as error:
        raise SparkSetupError(
            f"Spark Connect needs a package that is not installed: {error.name}",
            hint="pip install 'pyspark[connect]' beside etl, or use spark.master",
        ) from None
    try:
        session = Connected.builder.remote(address).create()
        for name, value in session_properties(settings, ()).items():
            session.conf.set(name, value)
    except Exception as error:  # noqa: BLE001 -- py4j, pyspark, grpc and sockets raise their own
        raise DestinationUnavailableError(
            f"Spark Connect at {address} does not answer: {_first_line(error)}",
            hint="check spark.remote, and that the server there runs with Delta's jars and extension",
        ) from None
    return cast("SparkSession", session)


def is_alive(session: SparkSession, patience_s: float = 0.0) -> bool:
    """Whether the JVM behind a session still runs; a remote one is taken to.

    One that is about to end has `patience_s` to do so: it stops answering a while before it is gone.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 -- no public way
    if gateway is None or getattr(session, "is_remote", None):
        return gateway is not None
    process = getattr(gateway, "proc", None)
    if process is None:
        return True
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
        return False
    return True


def _forget_dead_jvm(*, force: bool = False) -> None:
    """Make pyspark start a new JVM: it keeps the gateway of a dead one for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway  # noqa: SLF001 -- no public way
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    has_ended = process is not None and process.poll() is not None
    if not (force or has_ended or _has_stopped()):
        return
    if process is not None and process.poll() is None:
        process.kill()
    _log.warning("spark_jvm_gone")
    gateway.shutdown_callback_server()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001 -- no public way
    SparkSession._instantiatedSession = None  # noqa: SLF001 -- no public way


def _has_stopped() -> bool:
    """Whether Spark stopped inside a JVM that still runs, as it does when it is out of memory."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001 -- no public way
    try:
        return context is not None and bool(context._jsc.sc().isStopped())  # noqa: SLF001 -- no public way
    except Exception:  # noqa: BLE001 -- it does not answer
        return True


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
