from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl.config.yaml_file import MAX_BYTES, read_document
from etl.errors import ConfigError, ExitCode

Write = Callable[..., Path]

ALIASES = "\n".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(9))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("source: {host: x", ":2:1: expected ',' or '}'"),
        ("source:\n\thost: x", ":2:1: found character"),
        ("a: b: c", ":1:5: mapping values are not allowed here"),
        ("a: 1\na: 2", ":2: a is given twice"),
        ("s:\n  a: 1\n  a: 2", ":3: s.a is given twice"),
        ("1: x", ":1: a key must be plain text"),
        ("yes: x", ":1: a key must be plain text"),
        ("[a, b]: x", ":1: a key must be plain text"),
        ("a: *unknown", ":1:4: found undefined alias"),
        ("a: 1\n---\nb: 2", ":2:1: but found another document"),
        ("", " is empty"),
        ("# only a comment", " is empty"),
        ("- a list", " holds no keys at its top"),
        ("just text", " holds no keys at its top"),
        ("a: 1\nb: \x01", ":2 is not YAML text"),
        ("a: 2026-99-99", " holds a value that cannot be read"),
    ],
)
def test_a_file_that_is_not_one_mapping_is_refused_with_its_place(write: Write, text: str, expected: str):
    path = write(text, complete=False)

    with pytest.raises(ConfigError) as caught:
        read_document(path)

    assert caught.value.message.startswith(f"{path}{expected}")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch {marker}']",
        "a: !!python/object/new:subprocess.Popen [['touch', '{marker}']]",
        "a: !!python/name:os.system",
        "a: !!python/module:os",
        "!!python/object/apply:os.system ['touch {marker}']",
        "a: !include /etc/passwd",
        "a: !!js/function 'x'",
        "? !!python/object/apply:os.system ['touch {marker}']\n: x",
        f"a: &a [x]\n{ALIASES}",
        "a: &a [*a]",
        "a: &a {b: *a}",
        "a: " + "[" * 5000 + "]" * 5000,
        "a: " + "x" * (MAX_BYTES + 1),
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_file_is_refused_and_runs_nothing(write: Write, tmp_path: Path, text: str):
    marker = tmp_path / "marker"

    with pytest.raises(ConfigError):
        read_document(write(text.replace("{marker}", str(marker)), complete=False))

    assert not marker.exists()


@pytest.mark.parametrize("make", [lambda _: None, Path.mkdir], ids=["missing", "a directory"])
def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path, make: Callable[[Path], None]):
    path = tmp_path / "pipeline.yaml"
    make(path)

    with pytest.raises(ConfigError, match="cannot read the configuration file") as caught:
        read_document(path)

    assert caught.value.exit_code == ExitCode.CONFIGURATION


def test_a_file_in_another_encoding_is_refused_with_its_line(tmp_path: Path):
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")

    with pytest.raises(ConfigError, match=r":2 is not UTF-8"):
        read_document(path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path):
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"\xef\xbb\xbfmode: mirror\n")

    assert read_document(path).data == {"mode": "mirror"}


def test_lines_of_keys_and_items_are_known(write: Write):
    document = read_document(write("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n", complete=False))

    assert document.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }


def test_merge_keys_work_and_may_be_overridden(write: Write):
    document = read_document(write("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n", complete=False))

    assert document.data["b"] == {"x": 1, "y": 3}
