"""The rules every destination keeps.

To test a destination of your own, write a `DestinationKit` for it, subclass `DestinationSuite`, and override its
fixture `kit`. Where the contract leaves a choice, a rule reads it from the destination's `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl.telemetry import failpoints
from etl.testing.destination_kit import DestinationKit
from etl.testing.destination_rules.beside import CopyBesideRules, CopyingThreadRules
from etl.testing.destination_rules.changelog import ChangelogRules
from etl.testing.destination_rules.copying import CopyRules
from etl.testing.destination_rules.crash import CrashRules
from etl.testing.destination_rules.failure import FailureRules
from etl.testing.destination_rules.keyless import KeylessRules
from etl.testing.destination_rules.mirror import MirrorRules, ValueRules
from etl.testing.destination_rules.names import NameRules
from etl.testing.destination_rules.randomised import RandomRules
from etl.testing.destination_rules.replay import FenceRules, ReplayRules
from etl.testing.destination_rules.schema import SchemaRules

__all__ = ["DestinationKit", "DestinationSuite"]


class DestinationSuite(
    CopyRules,
    CopyBesideRules,
    CopyingThreadRules,
    MirrorRules,
    KeylessRules,
    ValueRules,
    ChangelogRules,
    SchemaRules,
    ReplayRules,
    FenceRules,
    FailureRules,
    CrashRules,
    NameRules,
    RandomRules,
):
    """All rules. Override `kit`."""

    @pytest.fixture
    def kit(self) -> DestinationKit:
        """An empty storage of the destination under test."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _disarmed(self) -> Iterator[None]:
        """No failpoint outlives its test."""
        yield
        failpoints.configure("")
