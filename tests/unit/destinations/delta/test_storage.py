"""The storage of a lake: folders by their address, staged files that are gone afterwards, and what a disk says."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.destinations.delta.storage import Folder, Staging, _storage_errors
from etl.errors import (
    DestinationError,
    DestinationFullError,
    DestinationUnavailableError,
    RetryPolicy,
)

ROWS = pa.table({"c0": pa.array([1, None], pa.int64()), "c1": pa.array(["a", "b"])})


def staging(directory: Path, pipeline_id: int = 1, epoch: int = 1) -> Staging:
    return Staging(Folder.at(str(directory)), pipeline_id, epoch)


def test_staged_rows_are_a_file_of_plain_parquet_while_they_are_needed(tmp_path: Path):
    with staging(tmp_path).file(ROWS) as address:
        assert Path(address).parent == tmp_path
        stored = pq.read_table(address)
        assert stored.equals(ROWS)
        assert stored.schema.metadata is None
    assert list(tmp_path.iterdir()) == []


def test_staged_rows_are_gone_when_their_use_fails(tmp_path: Path):
    with pytest.raises(KeyError), staging(tmp_path).file(ROWS):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_two_batches_of_a_run_never_share_a_file(tmp_path: Path):
    batches = staging(tmp_path)
    with batches.file(ROWS) as one, batches.file(ROWS) as other:
        assert one != other


def test_only_what_earlier_runs_of_the_same_pipeline_left_is_cleaned(tmp_path: Path):
    for name in ("1-1-0.parquet", "1-2-9.parquet", "11-1-0.parquet", "2-1-0.parquet", "note.txt"):
        (tmp_path / name).touch()
    staging(tmp_path, pipeline_id=1, epoch=3).clean()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["11-1-0.parquet", "2-1-0.parquet", "note.txt"]


def test_a_folder_tells_what_is_in_it_and_one_that_is_not_there_nothing(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert sorted(Folder.at(str(tmp_path)).names()) == ["file", "folder"]
    assert Folder.at(str(tmp_path / "none")).names() == []


def test_cleaning_creates_the_folder(tmp_path: Path):
    staging(tmp_path / "a" / "b").clean()
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/lake/public", "/lake/public"),
        ("/a lake/é/100%", "/a lake/é/100%"),
        ("file:///lake/public", "/lake/public"),
    ],
)
def test_an_address_names_the_folder_for_spark_and_for_arrow(uri: str, path: str):
    folder = Folder.at(uri)
    assert (folder.uri, folder.path, folder.system.type_name) == (uri, path, "local")


@pytest.mark.parametrize("uri", ["s3a://bucket/lake", "s3n://bucket/lake", "s3://bucket/lake"])
def test_hadoops_names_of_s3_reach_arrow_by_its_own(uri: str):
    folder = Folder.at(f"{uri}?region=eu-central-1")
    assert folder.uri.startswith(uri)
    assert (folder.path, folder.system.type_name) == ("bucket/lake", "s3")


@pytest.mark.parametrize("uri", ["nowhere://host/lake", "dbfs:/lake://x", "http://host/lake"])
def test_an_address_that_arrow_does_not_know_is_refused_with_a_hint(uri: str):
    with pytest.raises(DestinationError, match="cannot be used") as caught:
        Folder.at(uri)
    assert "s3://" in caught.value.hint


def test_deleting_takes_the_whole_folder_and_is_repeatable(tmp_path: Path):
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / "0.json").touch()
    folder = Folder.at(str(tmp_path / "t"))
    folder.delete()
    folder.delete()
    assert not (tmp_path / "t").exists()


def test_a_probe_creates_the_folder_and_leaves_nothing_in_it(tmp_path: Path):
    Folder.at(str(tmp_path / "a" / "lake")).probe()
    assert list((tmp_path / "a" / "lake").iterdir()) == []


def test_a_probe_fails_where_a_file_is_in_the_way(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(DestinationError) as caught:
        Folder.at(str(tmp_path / "file" / "lake")).probe()
    assert caught.value.retry is RetryPolicy.MANUAL


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, DestinationFullError),
        (errno.EDQUOT, DestinationFullError),
        (errno.EFBIG, DestinationFullError),
        (errno.EACCES, DestinationError),
        (errno.ENOTDIR, DestinationError),
        (errno.EEXIST, DestinationError),
        (errno.EIO, DestinationUnavailableError),
        (errno.ETIMEDOUT, DestinationUnavailableError),
    ],
)
def test_what_the_disk_says_decides_what_is_done_about_it(code: int, error: type[DestinationError]):
    with pytest.raises(DestinationError) as caught, _storage_errors("/lake"):
        raise OSError(code, "told by the system")
    assert type(caught.value) is error
    assert "/lake" in caught.value.message
    assert caught.value.hint
