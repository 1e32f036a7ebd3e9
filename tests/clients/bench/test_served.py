"""The trials of a case, with a load client whose service holds a known number of streams."""

import math
import os
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from clients.bench.cases import QUICK, Effort
from clients.bench.child import Child
from clients.bench.load_job import LoadJob, LoadRecord
from clients.bench.served import Load, ServedLoop, Target
from clients.bench.track import Track
from tests.clients.bench.test_trial import record, ticks

EFFORT = replace(QUICK, settle_s=1.0, measure_s=4.0, trials=20)


@dataclass
class KnownClient:
    """Answers each job with streams that are in time up to ``capacity``, too late above it."""

    capacity: int
    pid: int = field(default_factory=os.getpid)
    jobs: list[LoadJob] = field(default_factory=list)
    lapses: list[int] = field(default_factory=list)
    """Numbers of the trials that are late whatever they hold."""

    def send(self, job: LoadJob) -> None:
        """Takes a job."""
        self.jobs.append(job)

    def receive(self) -> LoadRecord:
        """The record of the last job."""
        late = self.jobs[-1].streams > self.capacity or len(self.jobs) in self.lapses
        return record(*ticks(500.0 if late else 50.0))


def loop(client: KnownClient, effort: Effort = EFFORT, until_s: float = math.inf) -> ServedLoop:
    track = Track(samples=np.zeros(16_000, np.float32), words=(), utterances=((0, 16_000),), names=("silence",))
    target = Target(url="ws://x", tick_samples=2_560, lookahead_samples=240, service_pid=None, wait_empty=lambda: None)
    child = cast(Child[LoadJob, LoadRecord | str], client)
    load = Load(client=child, track=track, chunk_ms=80, effort=effort, say=lambda _: None, until_s=until_s)
    return ServedLoop(target, load)


def test_what_is_held_is_found() -> None:
    client = KnownClient(capacity=13)
    found = loop(client).search(7, 100)
    assert found is not None
    assert found.streams == 13
    assert [job.streams for job in client.jobs][:2] == [7, 8]


def test_nothing_is_held() -> None:
    assert loop(KnownClient(capacity=0)).search(7, 100) is None


def test_a_quick_search_on_a_busy_machine_gives_a_figure() -> None:
    """Bare 122, so a first guess of 85; the machine has room for a few."""
    client = KnownClient(capacity=6)
    found = loop(client, replace(EFFORT, trials=QUICK.trials)).search(85, 130)
    assert found is not None
    assert 5 <= found.streams <= 6
    assert [job.streams for job in client.jobs][:5] == [85, 42, 21, 10, 5]


def test_the_search_for_fewer_streams_ends_with_its_time() -> None:
    client = KnownClient(capacity=6)
    assert loop(client, until_s=0.0).search(85, 130) is None
    assert [job.streams for job in client.jobs] == [85]


def test_the_search_ends_when_its_time_is_used_up() -> None:
    client = KnownClient(capacity=13)
    found = loop(client, until_s=0.0).search(7, 100)
    assert found is not None
    assert (found.streams, len(client.jobs)) == (7, 1)


def test_a_confirmation_forgives_one_lapse_in_three() -> None:
    found = loop(KnownClient(capacity=13, lapses=[2]), replace(EFFORT, confirmations=3)).confirm(13)
    assert found is not None
    assert found.streams == 13
    assert found.is_held(160.0)


def test_a_confirmation_goes_down_until_most_trials_hold() -> None:
    client = KnownClient(capacity=11)
    found = loop(client, replace(EFFORT, confirmations=3)).confirm(13)
    assert found is not None
    assert found.streams == 11
    assert [job.streams for job in client.jobs] == [13] * 3 + [12] * 3 + [11] * 3


def test_light_load_is_a_tenth_and_left_out_on_request() -> None:
    light = loop(KnownClient(capacity=99), replace(EFFORT, light_load_s=4.0)).light_load(60)
    assert light is not None
    assert light.streams == 6
    assert loop(KnownClient(capacity=99), replace(EFFORT, light_load_s=0.0)).light_load(60) is None
