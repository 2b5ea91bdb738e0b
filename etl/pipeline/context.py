"""What the parts of a running pipeline share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from etl.config.models import PipelineConfig
from etl.config.progress import CopyProgress
from etl.destinations.base import Destination
from etl.schema.types import ArrayForm, NumericForm, TypeOptions
from etl.store.base import StateStore
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse


@dataclass(frozen=True, slots=True)
class PipelineContext:
    """Made once by the composition root. `parameters` are libpq's, secrets included: never logged.

    `stop` asks for a graceful end; `clock` is monotonic seconds.
    """

    config: PipelineConfig
    parameters: Mapping[str, str] = field(repr=False)
    store: StateStore
    destination: Destination
    metrics: Metrics
    pulse: Pulse = field(default_factory=Pulse)
    progress: CopyProgress | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic

    @property
    def pipeline_id(self) -> int:
        """Identity of the pipeline."""
        return self.config.pipeline.id

    @property
    def type_options(self) -> TypeOptions:
        """How values of some types are carried."""
        return type_options(self.config)


def type_options(config: PipelineConfig) -> TypeOptions:
    """How values of some types are carried, as configured."""
    return TypeOptions(numeric=NumericForm(config.types.numeric), arrays=ArrayForm(config.types.arrays))
