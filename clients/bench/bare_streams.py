"""From step times to streams in real time. Pure.

Bare streams are an upper bound: steps follow each other without a gap, nobody waits for a socket, and the final model
gets exactly the time that live steps leave on the cores or devices they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clients.bench.figures import BareFinals, BarePoint

MOST_STREAMS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSetting:
    """What the bare streams share."""

    tick_ms: float
    instances: int
    """Of the live model."""
    max_batch: int
    """Rows of a step at most."""
    units: int
    """What live and final model have together: cores of the CPU, or devices."""
    units_each: int = 1
    """What each instance takes of them while it runs: its threads, or the device."""
    final_instances: int = 0


def bare_streams(points: Sequence[BarePoint], setting: BareSetting, finals: BareFinals | None = None) -> float:
    """The most streams for which every instance needs no more than a tick for a tick, in tenths.

    Args:
        points: step times at ascending batch sizes.
        setting: what they share.
        finals: the final model's part; None: none.
    """
    tenths = 0
    while tenths < MOST_STREAMS * 10 and _fits((tenths + 1) / 10, points, setting, finals):
        tenths += 1
    return tenths / 10


def _fits(streams: float, points: Sequence[BarePoint], setting: BareSetting, finals: BareFinals | None) -> bool:
    rows = streams / setting.instances
    step_ms = step_time(rows, points, setting.max_batch)
    if step_ms > setting.tick_ms:
        return False
    if finals is None:
        return True
    finals_ms = streams * setting.tick_ms / 1000 * finals.utterances_per_stream_s * finals.utterance_ms
    if finals_ms > setting.tick_ms * setting.final_instances:
        return False
    return (step_ms * setting.instances + finals_ms) * setting.units_each <= setting.tick_ms * setting.units


def step_time(rows: float, points: Sequence[BarePoint], max_batch: int) -> float:
    """Milliseconds that an instance needs for one tick of so many rows.

    Between two points by interpolation, beyond the last one along the line of the last two; above ``max_batch`` rows a
    tick takes several full steps.
    """
    if rows > max_batch:
        return step_time(max_batch, points, max_batch) * rows / max_batch
    if rows <= points[0].batch or len(points) == 1:
        return points[0].step_ms * max(1.0, rows / points[0].batch)
    after = next((i for i, point in enumerate(points) if point.batch >= rows), len(points) - 1)
    before, last = points[after - 1], points[after]
    share = (rows - before.batch) / (last.batch - before.batch)
    return before.step_ms + share * (last.step_ms - before.step_ms)
