"""Bounds of what a dynamic batcher is told."""

from typing import Any

import pytest

from server.batching.request_queue import QueueLevel, TimeoutAction
from server.errors import ConfigError
from tests.support.requests import make_dynamic_batcher

TWO = (QueueLevel(), QueueLevel())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        *((name, 0, f"{name} must be at least 1, not 0") for name in ("instances", "target_size", "max_queued")),
        *((name, 0, f"{name} must be at least 1, not 0") for name in ("max_batch_samples", "ageing_batches")),
        ("window_ns", -1, "window_ns must not be negative, but is -1"),
        ("preferred_sizes", (2, 4), "preferred_sizes must be 1 to 3, not 4"),
        ("preferred_sizes", (0,), "preferred_sizes must be 1 to 3, not 0"),
        ("default_level", 2, "default_level must be 1 to 1, not 2"),
        ("default_level", 0, "default_level must be 1 to 1, not 0"),
    ],
)
def test_bounds(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_dynamic_batcher(**{field: value})
    assert str(raised.value) == message


@pytest.mark.parametrize("levels", [TWO, (QueueLevel(timeout_action=TimeoutAction.DELAY),)])
def test_an_order_that_is_kept_cannot_be_changed(levels: tuple[QueueLevel, ...]) -> None:
    with pytest.raises(ConfigError, match="preserve_ordering is for one level whose timeout_action is reject"):
        make_dynamic_batcher(levels=levels, preserve_ordering=True)
    make_dynamic_batcher(levels=levels)
    make_dynamic_batcher(levels=(QueueLevel(timeout_ns=5),), preserve_ordering=True)


def test_bounds_of_a_level() -> None:
    with pytest.raises(ConfigError, match="max_queued must be at least 1, not 0"):
        QueueLevel(max_queued=0)
    with pytest.raises(ConfigError, match="timeout_ns must not be negative, but is -1"):
        QueueLevel(timeout_ns=-1)
    with pytest.raises(ConfigError, match="deadline_ns must not be negative, but is -2"):
        QueueLevel(deadline_ns=-2)


def test_the_default_level_may_be_any() -> None:
    make_dynamic_batcher(levels=TWO, default_level=2)
