"""The storage of a lake, by Arrow's file systems: batches handed to Spark as Parquet, and folders deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from etl.errors import DestinationError, DestinationFullError, DestinationUnavailableError

#: Names that Hadoop has for what Arrow calls otherwise.
_SCHEMES: Final = {"s3a://": "s3://", "s3n://": "s3://"}
_NO_SPACE: Final = (28, 122, 27)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, as Spark names it (`uri`) and as Arrow reaches it."""

    uri: str
    system: fs.FileSystem
    path: str

    @classmethod
    def at(cls, uri: str) -> Folder:
        """Raises `DestinationError` for an address that Arrow does not know."""
        known = next(
            (ours + uri.removeprefix(theirs) for theirs, ours in _SCHEMES.items() if uri.startswith(theirs)),
            uri,
        )
        try:
            if "://" not in known:
                return cls(uri, fs.LocalFileSystem(), known)
            system, path = fs.FileSystem.from_uri(known)
        except (pa.ArrowInvalid, OSError) as error:
            raise DestinationError(
                f"{uri} cannot be used as a place for files: {str(error).partition(chr(10))[0]}",
                hint="give an absolute path, or an address that Arrow knows: s3://, gs://, abfs://, hdfs://",
            ) from None
        return cls(uri, system, path)

    def delete(self) -> None:
        """Delete the folder and all in it; no error when it is not there."""
        with _storage_errors(self.uri), suppress(FileNotFoundError):
            self.system.delete_dir(self.path)

    def names(self) -> list[str]:
        """What is in the folder; nothing when it is not there."""
        with _storage_errors(self.uri):
            found = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return [each.base_name for each in found]

    def errors(self) -> AbstractContextManager[None]:
        """Inside, what the file system raises becomes a `DestinationError`."""
        return _storage_errors(self.uri)

    def probe(self) -> None:
        """Create the folder and write into it. Raises `DestinationError` when that is not possible."""
        with _storage_errors(self.uri):
            self.system.create_dir(self.path, recursive=True)
            name = f"{self.path}/.etl-probe"
            with self.system.open_output_stream(name) as file:
                file.write(b"")
            self.system.delete_file(name)


class Staging:
    """Where batches of one epoch of a pipeline wait for Spark. Thread-safe."""

    def __init__(self, folder: Folder, pipeline_id: int, epoch: int) -> None:
        self._folder = folder
        self._prefix = f"{pipeline_id}-"
        self._name = f"{pipeline_id}-{epoch}"
        self._files = count()

    @property
    def address(self) -> str:
        """The folder as Spark names it."""
        return self._folder.uri

    def clean(self) -> None:
        """Delete what earlier epochs of this pipeline left when they were killed."""
        with _storage_errors(self._folder.uri):
            self._folder.system.create_dir(self._folder.path, recursive=True)
            for found in self._folder.system.get_file_info(fs.FileSelector(self._folder.path)):
                if found.base_name.startswith(self._prefix):
                    with suppress(FileNotFoundError):
                        if found.type is fs.FileType.Directory:
                            self._folder.system.delete_dir(found.path)
                        else:
                            self._folder.system.delete_file(found.path)

    @contextmanager
    def file(self, data: pa.Table) -> Iterator[str]:
        """The address of a Parquet file with these rows, which is gone afterwards."""
        name = f"{self._name}-{next(self._files)}.parquet"
        path = f"{self._folder.path}/{name}"
        with _storage_errors(self._folder.uri):
            pq.write_table(data, path, filesystem=self._folder.system, store_schema=False)
        try:
            yield f"{self._folder.uri}/{name}"
        finally:
            with suppress(OSError):
                self._folder.system.delete_file(path)

    @contextmanager
    def folder(self) -> Iterator[str]:
        """The address of an empty folder for what others stage, which is gone afterwards with all in it."""
        name = f"{self._name}-{next(self._files)}"
        own = Folder(f"{self._folder.uri}/{name}", self._folder.system, f"{self._folder.path}/{name}")
        with own.errors():
            own.system.create_dir(own.path, recursive=True)
        try:
            yield own.uri
        finally:
            with suppress(DestinationError):
                own.delete()


@contextmanager
def _storage_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        if error.errno in _NO_SPACE:
            raise DestinationFullError(
                f"no space left to write {uri}",
                hint="free some space: nothing undurable was acknowledged, and the pipeline goes on by itself",
            ) from None
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
            raise DestinationError(
                f"{uri} cannot be written: {reason}", hint="choose another path, or mend its permissions"
            ) from None
        raise DestinationUnavailableError(
            f"{uri} cannot be written: {reason}", hint="see that the storage is reachable; it is tried again"
        ) from None
