"""Utterances and what clients heard of them, made up."""

import numpy as np

from clients.demo.outcome import Outcome, SchedulerName
from clients.demo.playing import Played
from clients.demo.tick_story import ToldTick
from clients.demo.utterances import Utterance

TICK_SAMPLES = 3_840
RIGHT = "one two three four five six seven eight nine ten"
WRONG = "one two eight nine ten"


def utterance(name: str = "long.flac", n_ticks: int = 40, text: str = RIGHT) -> Utterance:
    samples = np.zeros(n_ticks * TICK_SAMPLES, dtype=np.float32)
    return Utterance(name=name, text=text.upper(), samples=samples, n_ticks=n_ticks)


def ticks(instances: str, text: str = "") -> tuple[ToldTick, ...]:
    """One tick for each digit, the last one the flush."""
    return tuple(
        ToldTick(tick=index + 1, instance=int(instance), batch_size=2, text=text, is_flush=index == len(instances) - 1)
        for index, instance in enumerate(instances)
    )


def played(text: str, instances: str = "000", of: Utterance | None = None, failure: str = "") -> Played:
    return Played(utterance=of or utterance(), text=text, ticks=ticks(instances, text), failure=failure)


def outcome(*, sequence_text: str = RIGHT, dynamic_text: str = WRONG, failure: str = "") -> Outcome:
    """A short and a long utterance at 1 and 8 clients; the dynamic batcher's long one is wrong at 8."""
    short = utterance("short.flac", 2, "yes")
    runs = {
        (SchedulerName.DYNAMIC, 1): [played("Yes.", of=short), played(RIGHT)],
        (SchedulerName.DYNAMIC, 8): [played("Yes.", of=short), played(dynamic_text, "00101", failure=failure)],
        (SchedulerName.SEQUENCE, 1): [played("Yes.", of=short), played(RIGHT)],
        (SchedulerName.SEQUENCE, 8): [played("Yes.", of=short), played(sequence_text)],
    }
    return Outcome(played=runs)
