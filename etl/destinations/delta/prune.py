"""Key ranges of a batch, purely: with them Delta reads only the files whose statistics may hold one of its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: More ranges skip more files, and make a longer condition to plan.
_MAX_RANGES: Final = 16


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Disjoint closed ranges that hold every value of a key column; at least one."""

    ranges: tuple[tuple[int, int], ...]

    def condition(self, column: str) -> str:
        """The SQL condition that `column` (an expression) lies in one of the ranges."""
        return f"({' OR '.join(f'{column} BETWEEN {low:d} AND {high:d}' for low, high in self.ranges)})"


def key_ranges(keys: pa.ChunkedArray) -> KeyRanges | None:
    """The ranges of an integer key column, split at their widest gaps; None for other types, and for a key that is NULL.

    A condition is text that ends up in the table's history and in Spark's own logs, and MERGE takes no parameters: so
    it never holds what a text column says.
    """
    if not len(keys) or keys.null_count or not pa.types.is_integer(keys.type):
        return None
    return KeyRanges(tuple(_split(np.unique(keys.to_numpy()))))


def _split(ordered: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    # as floats: the distance between the two ends of a bigint is no int64
    gaps = np.diff(ordered.astype(np.float64))
    widest = np.sort(np.argsort(gaps, kind="stable")[::-1][: _MAX_RANGES - 1])
    cuts = widest[gaps[widest] > 1]
    starts = ordered[np.concatenate([[0], cuts + 1])]
    ends = ordered[np.concatenate([cuts, [len(ordered) - 1]])]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
