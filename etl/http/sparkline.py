"""A line of numbers as the path of an SVG, so that a page needs no script to draw it."""

from __future__ import annotations

from collections.abc import Sequence

from etl.pipeline.observation import RATE_STEPS

WIDTH, HEIGHT = 120, 24


def sparkline(values: Sequence[float]) -> str:
    """The ``d`` of a path in a box of `WIDTH` by `HEIGHT`, the newest value at the right; empty for nothing but zeros."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    step = WIDTH / (RATE_STEPS - 1)
    start = WIDTH - step * (len(values) - 1)
    points = (
        f"{start + at * step:.1f} {HEIGHT - 1 - (HEIGHT - 2) * value / top:.1f}"
        for at, value in enumerate(values)
    )
    return "M" + "L".join(points)
