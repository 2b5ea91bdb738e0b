from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import etl
from etl.errors import ConfigError
from etl.telemetry import failpoints
from etl.telemetry.failpoints import FAILPOINTS, FailpointError, configure, failpoint

SOURCE = Path(etl.__file__).parent


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    configure("")


def test_an_unarmed_failpoint_does_nothing():
    failpoint("dest.before_write")


def test_an_unknown_failpoint_is_a_mistake_in_the_code():
    with pytest.raises(ValueError, match="unknown failpoint"):
        failpoint("dest.no_such_place")


@pytest.mark.parametrize(
    "spec", ["nope=kill", "dest.before_write", "dest.before_write=explode", "dest.before_write:0=kill",
             "dest.before_write=sleep", "dest.before_write=kill(5)", "dest.before_write:x=kill"],
)  # fmt: skip
def test_a_wrong_spec_is_refused_and_leaves_what_was_armed(spec: str):
    configure("dest.mid_write=error")
    with pytest.raises(ConfigError):
        configure(spec)
    with pytest.raises(FailpointError):
        failpoint("dest.mid_write")


def test_only_the_named_pass_strikes():
    configure("dest.before_write:2=error, ddl.after_step:3=error")
    failpoint("dest.before_write")
    with pytest.raises(FailpointError):
        failpoint("dest.before_write")
    failpoint("dest.before_write")
    assert failpoints.passes("dest.before_write") == 3


def test_without_a_number_every_pass_strikes():
    configure("dest.before_write=error")
    for _ in range(3):
        with pytest.raises(FailpointError):
            failpoint("dest.before_write")


def test_hold_waits_until_it_is_released():
    configure("dest.after_commit=hold")
    holder = threading.Thread(target=failpoint, args=("dest.after_commit",))
    holder.start()
    assert failpoints.wait_until_held("dest.after_commit")
    assert holder.is_alive()
    failpoints.release("dest.after_commit")
    holder.join()


def test_another_process_is_held_by_a_file_and_goes_on_when_it_is_removed(tmp_path: Path):
    program = "from etl.telemetry.failpoints import failpoint; failpoint('copy.mid'); print('went on')"
    environment = {
        "ETL_FAILPOINTS": "copy.mid=hold",
        "ETL_FAILPOINTS_DIR": str(tmp_path),
        "PYTHONPATH": str(SOURCE.parent),
    }
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE
    ) as process:
        marker = tmp_path / "copy.mid"
        while not marker.exists():
            assert process.poll() is None
        marker.unlink()
        assert process.communicate()[0] == b"went on\n"


def test_the_environment_arms_and_kill_is_sigkill():
    environment = {"ETL_FAILPOINTS": "copy.mid:2=kill", "PYTHONPATH": str(SOURCE.parent)}
    program = "from etl.telemetry.failpoints import failpoint\nfor _ in 'ab': print(_, flush=True); failpoint('copy.mid')"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == b"a\nb\n"


def test_every_name_used_in_the_code_is_registered():
    used = set()
    for path in SOURCE.rglob("*.py"):
        used |= set(re.findall(r"\bfailpoint\(\s*[\"']([a-z_.]+)[\"']", path.read_text()))
    assert used
    assert used <= FAILPOINTS
