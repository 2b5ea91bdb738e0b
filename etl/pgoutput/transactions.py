"""Which transaction each message belongs to, and its ordinal in it, for a whole chunk at once.

The rule by which ordinals are counted is `etl.lsn.ORDINAL_RULE`: positions are stored, so the rule is a format.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etl.pgoutput.frames import TAG_BEGIN, TAG_COMMIT, TAG_TRUNCATE, Frames
from etl.pgoutput.messages import Commits, begins, commits
from etl.pgoutput.wire import Bools, Int64s, UInt32s, UInt64s, first


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a chunk left open: what its Begin said, and how many changes it had so far."""

    commit_lsn: int
    timestamp: int
    xid: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Placement:
    """One entry per frame: commit LSN, commit time (µs since 1970), xid and ordinal of its transaction.

    Entries of frames outside any transaction have no meaning. `is_row` marks Insert, Update and Delete;
    `commit_index` the frames of the Commit messages, `commits` what they say; `open` the transaction that the chunk
    leaves open.
    """

    is_row: Bools
    commit_lsn: UInt64s
    timestamp: Int64s
    xid: UInt32s
    ordinal: Int64s
    commit_index: Int64s
    commits: Commits
    open: OpenTransaction | None


def place(frames: Frames, carried: OpenTransaction | None) -> Placement:
    """Place every frame. `carried` is the transaction that the chunk before left open.

    Raises `DecodeError` when Begin and Commit do not alternate, a change stands outside a transaction, or a Commit
    names another LSN than its Begin.
    """
    is_begin, is_commit, is_row = frames.tag == TAG_BEGIN, frames.tag == TAG_COMMIT, frames.is_row
    begin_index, commit_index = np.flatnonzero(is_begin), np.flatnonzero(is_commit)
    started, ended = begins(frames, begin_index), commits(frames, commit_index)
    counted = is_row | (frames.tag == TAG_TRUNCATE)
    count = np.cumsum(counted)
    transaction = np.cumsum(is_begin)
    _check_nesting(
        frames, transaction - np.cumsum(is_commit) + (carried is not None), is_begin, is_commit, counted
    )

    before = carried or OpenTransaction(0, 0, 0, 0)
    lsns = np.concatenate(([np.uint64(before.commit_lsn)], started.final_lsn))
    timestamps = np.concatenate(([np.int64(before.timestamp)], started.timestamp))
    xids = np.concatenate(([np.uint32(before.xid)], started.xid))
    bases = np.concatenate(([np.int64(-before.ordinal)], count[begin_index]))
    commit_lsn, ordinal = lsns[transaction], count - bases[transaction]
    _check_commits(frames, commit_index, ended.commit_lsn != commit_lsn[commit_index])
    is_open = (carried is not None) + len(begin_index) > len(commit_index)
    return Placement(
        is_row=is_row,
        commit_lsn=commit_lsn,
        timestamp=timestamps[transaction],
        xid=xids[transaction],
        ordinal=ordinal,
        commit_index=commit_index,
        commits=ended,
        open=_left_open(lsns, timestamps, xids, count, bases, before) if is_open else None,
    )


def _left_open(
    lsns: UInt64s, timestamps: Int64s, xids: UInt32s, count: Int64s, bases: Int64s, before: OpenTransaction
) -> OpenTransaction:
    ordinal = int(count[-1] - bases[-1]) if len(count) else before.ordinal
    return OpenTransaction(int(lsns[-1]), int(timestamps[-1]), int(xids[-1]), ordinal)


def _check_nesting(frames: Frames, depth: Int64s, is_begin: Bools, is_commit: Bools, counted: Bools) -> None:
    wrong = (is_begin & (depth != 1)) | (is_commit & (depth != 0)) | (counted & (depth != 1))
    if wrong.any():
        at = first(wrong)
        raise frames.error(
            at, int(frames.start[at]), "message stands outside a transaction, or one inside another"
        )


def _check_commits(frames: Frames, commit_index: Int64s, wrong: Bools) -> None:
    if wrong.any():
        at = int(commit_index[first(wrong)])
        raise frames.error(at, int(frames.start[at]) + 2, "Commit names another LSN than its Begin")
