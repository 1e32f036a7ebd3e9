"""Audits in a running engine: quiet where all is well, and loud over one misrouted chunk."""

import asyncio
import logging
from dataclasses import replace

import pytest

from server.audit.auditor import MAX_KEPT_S, AuditSettings, AuditStats
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig
from server.errors import CapacityExceeded
from server.events import Queued, SequenceClosed
from server.figures.stats import EngineStats
from server.ids import SequenceId
from server.workers.orders import LoadLimits
from tests.support.accumulator_model import BOMB, exact_audio, summary
from tests.support.engines import CONFIG, Heard, listen, live_only, running, speak, until
from tests.support.manual_clock import ManualClock

AUDIT = AuditSettings(share=1.0, max_audio_s=1.0, alarm_s=60.0)
HONEST = replace(live_only(), audit=AUDIT)
UNPINNED = replace(
    HONEST,
    live=replace(
        live_only(step_s=0.002).live, limits=LoadLimits(max_batch=1), scheduler="dynamic", allow_wrong_scheduler=True
    ),
)
"""Two instances that take the ticks of any sequence as they come, one at a time."""


def audited(engine: Engine) -> int:
    """Audits that have come to a verdict."""
    outcomes = engine.stats().audit.outcomes
    return sum(outcomes.get(outcome, 0) for outcome in ("same", "tie", "mismatch"))


async def spoken(engine: Engine, name: str, *, seed: int = 1, n_samples: int = 1_000, finalize_at: int = 0) -> Heard:
    """A whole sequence."""
    audio = exact_audio(seed, n_samples)
    handle = engine.open(SequenceId(name))
    listening = asyncio.create_task(listen(handle))
    await handle.send(audio[:finalize_at])
    if finalize_at:
        await handle.finalize()
    for first in range(finalize_at, n_samples, 64):
        await handle.send(audio[first : first + 64])
        await asyncio.sleep(0)
    await handle.end()
    return await listening


def is_running_a_row(engine: Engine) -> bool:
    """Whether a step of the live model is in flight."""
    return any(each.steps_in_flight for each in engine.stats().sequence_batchers["live"].instances)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def counts(stats: EngineStats) -> tuple[object, ...]:
    """What clients did, which no audit may change."""
    delays = stats.delays
    return (
        stats.sequences_started,
        stats.sequences_live,
        dict(stats.sequences_ended),
        dict(stats.utterances),
        stats.audio_s,
        delays.lag_s.count,
        {cause: histogram.count for cause, histogram in delays.final_s.items()},
    )


class TestAllIsWell:
    async def test_every_sequence_is_heard_the_same_alone(self, caplog: pytest.LogCaptureFixture) -> None:
        async with running(HONEST) as engine:
            for number in range(3):
                heard = await spoken(engine, f"s{number}", seed=number, finalize_at=500)
                assert heard.live_texts[-1] == summary(exact_audio(number, 1_000))
            await until(lambda: audited(engine) == 3)
            assert engine.stats().audit.outcomes == {"same": 3}
            assert engine.stats().audit.alarm is None
        assert errors(caplog) == []

    async def test_it_is_in_no_count_and_no_final_model_hears_of_it(self) -> None:
        async with running(replace(CONFIG, audit=AUDIT)) as engine, running(CONFIG) as other:
            for each in (engine, other):
                await spoken(each, "s", finalize_at=300)
            await until(lambda: audited(engine) == 1)
            await until(lambda: engine.stats().slots_used == 0)
            assert counts(engine.stats()) == counts(other.stats())
            final, plain = engine.stats().final, other.stats().final
            assert final is not None
            assert plain is not None
            assert final.batch_size.count == plain.batch_size.count

    async def test_crowds_of_every_kind_are_heard_the_same(self) -> None:
        async with running(replace(CONFIG, audit=AUDIT)) as engine:
            spoken_by = await asyncio.gather(*(speak(engine, seed) for seed in range(10)))
            assert [failure for each in spoken_by for failure in each.failures] == []
            await until(lambda: engine.stats().audit.waiting == 0 and audited(engine) >= 5)
            assert set(engine.stats().audit.outcomes) <= {"same", "dropped"}

    async def test_without_a_share_nothing_is_kept(self) -> None:
        async with running(live_only()) as engine:
            await spoken(engine, "s")
            assert engine.stats().audit.outcomes == {}

    async def test_only_the_beginning_of_a_long_one(self) -> None:
        async with running(replace(HONEST, audit=replace(AUDIT, max_audio_s=0.05))) as engine:
            await spoken(engine, "s", n_samples=5_000, finalize_at=600)
            await until(lambda: audited(engine) == 1)
            assert engine.stats().audit.outcomes == {"same": 1}

    @pytest.mark.parametrize("leaves", ["cancel", "fails"])
    async def test_what_was_not_answered_to_its_end_is_not_audited(self, leaves: str) -> None:
        async with running(HONEST) as engine:
            handle = engine.open(SequenceId("s"))
            audio = exact_audio(0, 200)
            if leaves == "fails":
                audio[10] = BOMB
            await handle.send(audio)
            if leaves == "cancel":
                await handle.cancel()
            await listen(handle)
            assert engine.stats().audit.recording == 0
            assert engine.stats().audit.waiting == 0


class TestMisrouted:
    async def test_it_is_found_and_told_with_both_texts_and_the_batches(self, caplog: pytest.LogCaptureFixture) -> None:
        async with running(UNPINNED) as engine:
            names = [f"s{number}" for number in range(3)]
            heard = await asyncio.gather(*(spoken(engine, name, seed=at) for at, name in enumerate(names)))
            assert all(isinstance(each.terminal, SequenceClosed) for each in heard), "no error shows it"
            wrong = [
                name
                for at, (name, each) in enumerate(zip(names, heard, strict=True))
                if each.live_texts[-1] != summary(exact_audio(at, 1_000))
            ]
            assert wrong, "the wrong scheduler had luck"
            await until(lambda: audited(engine) == 3)
            stats = engine.stats().audit
            assert stats.outcomes["mismatch"] == len(wrong)
            assert stats.alarm is not None
        told = [line for line in errors(caplog) if line.startswith("audit: a difference that no rounding explains")]
        assert len(told) == len(wrong)
        for at, name in enumerate(names):
            if name in wrong:
                (line,) = [each for each in told if f"sequence {name} heard" in each]
                assert f"alone “{summary(exact_audio(at, 1_000))}”" in line
                assert "it ran on instances 0, 1 (" in line
                assert "plan " in line

    async def test_where_logs_must_hold_no_words_there_are_none(self, caplog: pytest.LogCaptureFixture) -> None:
        async with running(replace(UNPINNED, audit=replace(AUDIT, shows_words=False))) as engine:
            await asyncio.gather(*(spoken(engine, f"s{number}", seed=number) for number in range(3)))
            await until(lambda: audited(engine) == 3)
        told = [line for line in errors(caplog) if line.startswith("audit: a difference")]
        assert told
        assert all("heard 1 word, alone 1 word: word 1" in line for line in told)


class TestRoom:
    async def test_an_audit_takes_no_last_slot_and_comes_when_there_is_room(self) -> None:
        config = replace(live_only(instances=1, slots=2), audit=AUDIT)
        async with running(config) as engine:
            other = engine.open(SequenceId("other"))
            await spoken(engine, "s")
            assert engine.stats().audit.waiting == 1, "there is one free slot, which is a client's"
            await other.cancel()
            await until(lambda: audited(engine) == 1)

    async def test_it_goes_when_a_client_takes_the_last_slot(self) -> None:
        config: EngineConfig = replace(live_only(instances=1, slots=2, step_s=0.01), audit=AUDIT)
        async with running(config) as engine:
            await spoken(engine, "s", n_samples=1_500)
            await until(lambda: engine.stats().slots_used == 1)
            handles = [engine.open(SequenceId("a"))]
            await until(lambda: engine.stats().slots_used == 1)
            handles.append(engine.open(SequenceId("b")))
            with pytest.raises(CapacityExceeded):
                engine.open(SequenceId("c"))
            assert engine.stats().audit.waiting == 1
            for handle in handles:
                await handle.cancel()
            await until(lambda: audited(engine) == 1)
            assert engine.stats().audit.outcomes == {"same": 1}

    @pytest.mark.parametrize("is_in_flight", [True, False])
    @pytest.mark.parametrize(("instances", "slots"), [(2, 1), (1, 2), (2, 3)])
    async def test_clients_get_every_slot_at_once(self, instances: int, slots: int, is_in_flight: bool) -> None:
        """All in the same moment, whatever the replay is at; the next is refused as ever."""
        config = replace(live_only(instances=instances, slots=slots, step_s=0.02), audit=AUDIT)
        async with running(config) as engine:
            await spoken(engine, "s", n_samples=300)
            await until(lambda: engine.stats().audit.running == 1 and is_running_a_row(engine) is is_in_flight)
            names = [f"client-{number}" for number in range(instances * slots)]
            clients = [
                asyncio.create_task(spoken(engine, name, seed=at, n_samples=200)) for at, name in enumerate(names)
            ]
            await asyncio.sleep(0)
            with pytest.raises(CapacityExceeded):
                engine.open(SequenceId("one-too-many"))
            assert engine.stats().audit.running == 0
            for at, heard in enumerate(await asyncio.gather(*clients)):
                assert heard.live_texts[-1] == summary(exact_audio(at, 200))
                assert not [event for event in heard.events if isinstance(event, Queued)]
            assert engine.stats().refusals == {"capacity_exceeded": 1}
            assert engine.stats().audit.outcomes.get("failed", 0) == 0

    async def test_nobody_stands_in_line_because_of_an_audit(self) -> None:
        config = live_only(instances=2, slots=1, step_s=0.02)
        config = replace(config, live=replace(config.live, backlog=1), audit=AUDIT)
        async with running(config) as engine:
            await spoken(engine, "s", n_samples=300)
            await until(lambda: engine.stats().audit.running == 1 and is_running_a_row(engine))
            names = [f"client-{number}" for number in range(3)]
            clients = [asyncio.create_task(spoken(engine, name, n_samples=200)) for name in names]
            await asyncio.sleep(0)
            with pytest.raises(CapacityExceeded):
                engine.open(SequenceId("one-too-many"))
            first, second, third = await asyncio.gather(*clients)
            queued = [[each for each in heard.events if isinstance(each, Queued)] for heard in (first, second, third)]
            assert queued[:2] == [[], []]
            assert queued[2], "there are two slots for three"

    async def test_under_the_wrong_scheduler_too(self) -> None:
        async with running(replace(UNPINNED, live=replace(UNPINNED.live, slots=1))) as engine:
            await spoken(engine, "s", n_samples=300)
            await until(lambda: engine.stats().audit.running == 1 and is_running_a_row(engine))
            handles = [engine.open(SequenceId(name)) for name in "ab"]
            with pytest.raises(CapacityExceeded):
                engine.open(SequenceId("c"))
            for handle in handles:
                await handle.cancel()

    async def test_with_no_slot_to_spare_nothing_is_kept_and_that_is_said(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(replace(live_only(instances=1, slots=1), audit=AUDIT)) as engine:
            handle = engine.open(SequenceId("s"))
            await handle.send(exact_audio(0, 200))
            assert engine.stats().audit.recording == 0
            await handle.end()
            await listen(handle)
            assert engine.stats().audit == AuditStats()
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert [each for each in warnings if each.startswith("audit.share has no effect")] == warnings
        assert len(warnings) == 1

    async def test_what_finds_no_idle_time_is_dropped_in_the_end(self) -> None:
        clock = ManualClock()
        async with running(replace(live_only(instances=1, slots=2), audit=AUDIT), clock) as engine:
            engine.open(SequenceId("other"))
            await spoken(engine, "s")
            clock.advance(MAX_KEPT_S * 1_000_000_000 - 1)
            assert (engine.stats().audit.waiting, engine.stats().audit.outcomes) == (1, {})
            clock.advance(1_000_000_001)
            assert (engine.stats().audit.waiting, engine.stats().audit.outcomes) == (0, {"dropped": 1})

    async def test_a_replay_takes_no_longer_either(self) -> None:
        clock = ManualClock()
        async with running(replace(live_only(step_s=0.01), audit=AUDIT), clock) as engine:
            await spoken(engine, "s", n_samples=1_500)
            await until(lambda: engine.stats().audit.running == 1)
            clock.advance(MAX_KEPT_S * 1_000_000_000)
            await until(lambda: engine.stats().audit.outcomes == {"dropped": 1})
            assert (engine.stats().audit.waiting, engine.stats().audit.running) == (0, 0)

    async def test_it_goes_when_another_model_comes_and_is_compared_with_nothing(self) -> None:
        async with running(replace(live_only(step_s=0.01), audit=AUDIT)) as engine:
            await spoken(engine, "s", n_samples=1_500)
            await until(lambda: engine.stats().slots_used == 1)
            await engine.repository.load("live")
            await until(lambda: engine.stats().audit.outcomes == {"dropped": 1})
            await until(lambda: engine.stats().models[0].copies_ending == 0)
            await spoken(engine, "t", n_samples=300)
            await until(lambda: audited(engine) == 1)
            assert engine.stats().audit.outcomes == {"dropped": 1, "same": 1}

    async def test_stopping_leaves_none(self) -> None:
        tasks = asyncio.all_tasks()
        async with running(replace(live_only(step_s=0.01), audit=AUDIT)) as engine:
            await spoken(engine, "s", n_samples=1_500)
            await until(lambda: engine.stats().slots_used == 1)
        assert asyncio.all_tasks() == tasks
