"""The engine on accumulator models in threads: whatever goes on beside it, a sequence hears its own sums.

The same through processes, and what happens when one dies, is in ``test_engine_processes``.
"""

import asyncio
import os
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from asr_model.transcript import UtteranceEnd
from server.clock import SystemClock
from server.engine.engine import Engine
from server.engine.sequence_handle import SequenceHandle
from server.errors import (
    BadAudio,
    CapacityExceeded,
    ConfigError,
    DuplicateSequence,
    InstanceFailed,
    SequenceAlreadyEnded,
    ShuttingDown,
)
from server.events import CloseCause, Partial, SequenceClosed, SpeechStarted, UtteranceFinal
from server.ids import SequenceId
from server.plan import Samples, SequenceOptions
from server.workers import pool
from server.workers.orders import ModelSource
from tests.support.accumulator_model import (
    BOMB,
    CRASH,
    DUD,
    ENDPOINT,
    MUTE,
    POISON,
    QUIET,
    SLOW,
    TICK_SAMPLES,
    exact_audio,
    summary,
)
from tests.support.engines import ACCUMULATOR, CONFIG, FINAL, LIVE, SUM, Heard, listen, live_only, running, speak, until
from tests.support.manual_clock import ManualClock

MS = 1_000_000


def with_sample(value: float, position: int = 10, n_samples: int = 200) -> Samples:
    audio = exact_audio(7, n_samples)
    audio[position] = value
    return audio


async def closes(handle: SequenceHandle) -> Heard:
    heard = await asyncio.wait_for(listen(handle), 30.0)
    assert heard.terminal is not None
    return heard


def has_finalized(engine: Engine, times: int) -> bool:
    return engine.stats().utterances.get("finalize") == times


# What is heard


async def test_fifty_interleaved_sequences_in_random_cuts_hear_their_own_sums() -> None:
    async with running(CONFIG) as engine:
        heard = await asyncio.gather(*(speak(engine, seed) for seed in range(50)))
        stats = engine.stats()
    assert [each.failures for each in heard] == [[]] * 50
    assert stats.sequences_ended == {"end": 50}
    assert stats.sequences_live == stats.slots_used == stats.finals_waiting == stats.stale_results == 0
    assert stats.audio_s == pytest.approx(sum(each.n_samples for each in heard) / 16_000)
    assert stats.live.batch_size.total == stats.live.queue_s.count
    assert stats.live.batch_size.total > stats.live.batch_size.count, "no two sequences ever shared a step"
    assert stats.live.counters["encoder_frames"] == 10 * sum(each.n_ticks for each in heard)
    assert stats.final is not None
    assert stats.final.counters["samples"] == sum(each.n_samples for each in heard)


async def test_both_instances_serve() -> None:
    async with running(live_only()) as engine:
        handles = [engine.open(SequenceId(str(index))) for index in range(8)]
        for handle in handles:
            await handle.send(exact_audio(1, 100))
            await handle.end()
        used = {final.step.instance for handle in handles for final in (await closes(handle)).finals}
    assert used == {0, 1}


async def test_a_tick_is_told_without_waiting_for_more() -> None:
    async with running(live_only()) as engine:
        handle = engine.open(SequenceId("a"))
        audio = exact_audio(3, TICK_SAMPLES + 7)
        await handle.send(audio)
        events = handle.events()
        started, event = [await asyncio.wait_for(anext(events), 10.0) for _ in range(2)]
    assert started == SpeechStarted(sequence_id=SequenceId("a"), at_s=0.0)
    assert isinstance(event, Partial)
    assert [word.text for word in event.committed] == [summary(audio)]


async def test_options_reach_the_model_and_their_own_sequence_alone() -> None:
    audio = with_sample(ENDPOINT, position=TICK_SAMPLES + 7 - 1, n_samples=2 * TICK_SAMPLES)
    asked = [None, SequenceOptions(endpoint_silence_ms=0), SequenceOptions(endpoint_silence_ms=500), SequenceOptions()]
    async with running(live_only(instances=1)) as engine:
        handles = []
        for index, options in enumerate(asked):
            id_ = SequenceId(f"s{index}")
            handles.append(engine.open(id_) if options is None else engine.open(id_, options))
        for handle in handles:
            await handle.send(audio)
            await handle.end()
        plain, never, other, nothing = [(await closes(handle)).final_texts for handle in handles]
        again = engine.open(SequenceId("s1"))  # takes a slot that had options
        await again.send(audio)
        await again.end()
        assert (await closes(again)).final_texts == plain
    ends = [summary(audio[: TICK_SAMPLES + 7]), summary(audio)]
    assert plain == nothing == ends
    assert never == [f"{summary(audio)}@0"]
    assert other == [f"{text}@500" for text in ends]


async def test_without_a_final_model_the_live_text_is_final() -> None:
    async with running(live_only()) as engine:
        handle = engine.open(SequenceId("a"))
        audio = exact_audio(3, 1000)
        await handle.send(audio)
        await handle.end()
        heard = await closes(handle)
    assert heard.final_texts == heard.live_texts == [summary(audio)]
    assert heard.finals[0].cause is UtteranceEnd.END
    assert heard.terminal == SequenceClosed(sequence_id=SequenceId("a"), cause=CloseCause.END, audio_s=1000 / 16_000)


async def test_an_empty_sequence_ends_well_and_every_finalize_is_answered() -> None:
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        for _ in range(3):
            await handle.finalize()
        await handle.end()
        heard = await closes(handle)
        stats = engine.stats()
    assert [final.cause.value for final in heard.finals] == ["finalize"] * 3 + ["end"]
    assert heard.final_texts == [""] * 4
    assert stats.utterances == {"finalize": 3, "end": 1}
    assert stats.final is not None
    assert stats.final.batch_size.count == 0, "nothing was said, so there is nothing to read again"


async def test_word_times_of_a_final_text_count_from_the_sequence() -> None:
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        for _ in range(2):
            await handle.send(exact_audio(3, 1600))
            await handle.finalize()
        await handle.end()
        heard = await closes(handle)
    assert [(final.start_s, final.end_s) for final in heard.finals] == [(0.0, 0.1), (0.1, 0.2), (0.2, 0.2)]
    assert [(final.words[0].start_s, final.words[0].end_s) for final in heard.finals[:2]] == [(0.0, 0.1), (0.1, 0.2)]


async def test_finals_come_in_order_and_hold_back_no_partials() -> None:
    final = replace(FINAL, instances=2, target_size=1)
    async with running(replace(CONFIG, final=final)) as engine:
        handle = engine.open(SequenceId("a"))
        slow, quick = with_sample(SLOW), exact_audio(1, 200)
        await handle.send(slow)
        await handle.finalize()
        await handle.send(quick)
        await handle.finalize()
        await handle.end()
        heard = await closes(handle)
    assert heard.final_texts == [summary(slow), summary(quick), ""]
    kinds = [type(event).__name__ for event in heard.events if getattr(event, "utterance", None) == 1]
    first_final = heard.events.index(heard.finals[0])
    assert kinds[0] == "Partial"
    assert any(partial.utterance == 1 for partial in heard.partials if heard.events.index(partial) < first_final)


async def test_an_endpoint_of_the_model_ends_an_utterance() -> None:
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        audio = exact_audio(1, 3 * TICK_SAMPLES + 7)
        audio[2 * TICK_SAMPLES + 6] = ENDPOINT
        await handle.send(audio)
        await handle.end()
        heard = await closes(handle)
    cut = 2 * TICK_SAMPLES + 7
    assert [final.cause.value for final in heard.finals] == ["endpoint", "end"]
    assert heard.final_texts == [summary(audio[:cut]), summary(audio[cut:])]


# What fails


@pytest.mark.parametrize(
    "bad",
    [np.array([0.0, np.nan], np.float32), np.array([np.inf], np.float32), np.zeros(3), np.zeros((2, 2), np.float32)],
)
async def test_bad_audio_is_refused_whole_and_the_sequence_goes_on(bad: Samples) -> None:
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        audio = exact_audio(1, 500)
        await handle.send(audio[:200])
        with pytest.raises(BadAudio):
            await handle.send(bad)
        await handle.send(audio[200:])
        await handle.end()
        assert (await closes(handle)).final_texts == [summary(audio)]


async def test_a_failing_step_ends_its_rows_alone_and_its_slots_are_used_again() -> None:
    config = live_only(instances=1, slots=2)
    async with running(config) as engine:
        for round_ in range(3):
            broken, well = engine.open(SequenceId("broken")), engine.open(SequenceId("well"))
            await broken.send(with_sample(BOMB))
            heard = await closes(broken)
            assert heard.failure == "step_failed"
            assert "internals" not in str(heard.terminal)
            audio = exact_audio(round_, 300)
            await well.send(audio)
            await well.end()
            assert (await closes(well)).final_texts == [summary(audio)]
        stats = engine.stats()
    assert stats.sequences_ended == {"step_failed": 3, "end": 3}
    assert stats.live.failures == 3


async def test_a_lost_instance_is_replaced_as_soon_as_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FIRST_RETRY_S", 0.01)
    refuse_file = tmp_path / "refuse"
    source = replace(ACCUMULATOR, options={"refuse_file": str(refuse_file)})
    config = replace(CONFIG, live=replace(LIVE, source=source, instances=1))
    async with running(config) as engine:
        refuse_file.touch()
        handle, other = engine.open(SequenceId("a")), engine.open(SequenceId("b"))
        await handle.send(with_sample(CRASH))
        assert (await closes(handle)).failure == (await closes(other)).failure == "instance_failed"
        assert not engine.is_ready
        with pytest.raises(CapacityExceeded):
            engine.open(SequenceId("c"))
        await asyncio.sleep(0.05)
        assert engine.stats().models[0].instances_ready == 0
        refuse_file.unlink()
        await until(lambda: engine.is_ready and engine.stats().slots_quarantined == 0)
        assert (await speak(engine, 1)).failures == []
        assert engine.stats().models[0].instances_restarted == 1


async def test_stop_ends_an_attempt_to_replace_an_instance(tmp_path: Path) -> None:
    tasks, refuse_file = asyncio.all_tasks(), tmp_path / "refuse"
    source = replace(ACCUMULATOR, options={"refuse_file": str(refuse_file)})
    async with running(replace(CONFIG, live=replace(LIVE, source=source))) as engine:
        refuse_file.touch()
        handle = engine.open(SequenceId("a"))
        await handle.send(with_sample(CRASH))
        await closes(handle)
    assert asyncio.all_tasks() == tasks


async def test_an_answer_that_is_none_ends_its_sequence() -> None:
    source = ModelSource(name="mute", factory="tests.support.accumulator_model:make_mute")
    async with running(replace(CONFIG, live=replace(LIVE, source=source), final=None)) as engine:
        handle = engine.open(SequenceId("a"))
        await handle.send(exact_audio(0, 100))
        assert (await closes(handle)).failure == "step_failed"
        assert engine.stats().slots_used == 0


async def test_a_failing_row_is_that_sequences_alone() -> None:
    async with running(live_only(instances=1, slots=2)) as engine:
        broken, well = engine.open(SequenceId("broken")), engine.open(SequenceId("well"))
        audio = exact_audio(1, 200)
        await asyncio.gather(broken.send(with_sample(POISON)), well.send(audio))
        await well.end()
        assert (await closes(broken)).failure == "step_failed"
        assert (await closes(well)).final_texts == [summary(audio)]


async def test_the_live_text_serves_where_no_batch_takes_an_utterance_in_time() -> None:
    final = replace(FINAL, target_size=8, window_ms=60_000.0, timeout_ms=20.0)
    audio = exact_audio(1, 300)
    async with running(replace(CONFIG, final=final)) as engine:
        handle = engine.open(SequenceId("a"))
        await handle.send(audio)
        await handle.end()
        heard = await closes(handle)
        assert engine.stats().finals_replaced == {"request_timeout": 1}
    assert [final.has_final_pass for final in heard.finals] == [False]
    assert heard.final_texts == heard.live_texts == [summary(audio)]


async def test_the_live_text_serves_where_the_final_pass_fails_or_is_full() -> None:
    final = replace(FINAL, target_size=1, max_queued=1)
    async with running(replace(CONFIG, final=final)) as engine:
        handle = engine.open(SequenceId("a"))
        texts = []
        for index in range(4):
            audio = with_sample(SLOW, n_samples=50 + index)
            texts.append(summary(audio))
            await handle.send(audio)
            await handle.finalize()
        await handle.end()
        heard = await closes(handle)
        replaced = engine.stats().finals_replaced
    assert heard.final_texts[0] == texts[0]
    assert replaced["queue_full"] == sum(each.words == each.live_words for each in heard.finals[1:4]) > 0


async def test_what_the_live_model_heard_is_told_where_the_final_one_hears_nothing() -> None:
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        heard_by_both, muted = exact_audio(1, 200), with_sample(MUTE)
        for audio in (heard_by_both, muted):
            await handle.send(audio)
            await handle.finalize()
        await handle.end()
        heard = await closes(handle)
        assert heard.final_texts[0] == summary(heard_by_both)
        assert heard.finals[1].words == heard.finals[1].live_words != ()
        assert [each.has_final_pass for each in heard.finals[:2]] == [True, False]
        assert engine.stats().finals_replaced == {"empty": 1}


async def test_an_utterance_longer_than_is_kept_has_its_live_text() -> None:
    async with running(replace(CONFIG, max_utterance_s=0.05)) as engine:
        handle = engine.open(SequenceId("a"))
        audio = exact_audio(1, 900)
        await handle.send(audio)
        await handle.end()
        heard = await closes(handle)
        assert heard.final_texts == [summary(audio)]
        assert engine.stats().finals_replaced == {"no_audio": 1}


async def test_audio_that_no_utterance_needs_any_more_makes_room_for_the_next() -> None:
    async with running(replace(CONFIG, max_utterance_s=0.05)) as engine:
        handle = engine.open(SequenceId("a"))
        audio = exact_audio(1, 10 * 400)
        for first in range(0, audio.size, 400):
            await handle.send(audio[first : first + 400])
            await handle.finalize()
            await until(partial(has_finalized, engine, first // 400 + 1))
        await handle.end()
        heard = await closes(handle)
        assert engine.stats().finals_replaced == {}
        assert handle.finals is not None
        assert handle.finals.n_samples == 0
    assert heard.final_texts[:-1] == [summary(audio[first : first + 400]) for first in range(0, audio.size, 400)]


# Coming and going


async def test_a_full_engine_refuses_and_a_slot_is_free_after_an_end_or_a_cancel() -> None:
    async with running(live_only(instances=1, slots=2)) as engine:
        first, second = engine.open(SequenceId("1")), engine.open(SequenceId("2"))
        with pytest.raises(CapacityExceeded):
            engine.open(SequenceId("3"))
        with pytest.raises(DuplicateSequence):
            engine.open(SequenceId("1"))
        await first.cancel()
        assert [type(event) for event in (await closes(first)).events] == [SequenceClosed]
        third = engine.open(SequenceId("3"))
        await second.end()
        await closes(second)
        engine.open(SequenceId("1"))
        await third.cancel()
        await third.cancel()
        stats = engine.stats()
    assert stats.refusals == {"capacity_exceeded": 1, "duplicate_sequence": 1}
    assert stats.sequences_ended == {"cancelled": 2, "end": 1}


async def test_nothing_is_taken_after_the_end_nor_for_a_later_tenant_of_the_id() -> None:
    async with running(live_only()) as engine:
        old = engine.open(SequenceId("a"))
        await old.end()
        with pytest.raises(SequenceAlreadyEnded):
            await old.send(exact_audio(1, 10))
        await closes(old)
        new = engine.open(SequenceId("a"))
        for call in (old.send(exact_audio(1, 10)), old.finalize(), old.end()):
            with pytest.raises(SequenceAlreadyEnded):
                await call
        with pytest.raises(SequenceAlreadyEnded):
            old.keep_alive()
        await old.cancel()
        await new.end()
        assert (await closes(new)).final_texts == [""]


async def test_a_caller_that_leaves_while_finals_are_pending_hears_that_it_left() -> None:
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        await handle.send(with_sample(SLOW))
        await handle.end()
        await until(lambda: engine.stats().finals_waiting == 1)
        await handle.cancel()
        heard = await closes(handle)
        assert heard.terminal == SequenceClosed(
            sequence_id=SequenceId("a"), cause=CloseCause.CANCELLED, audio_s=200 / 16_000
        )
        assert heard.finals == []
        assert engine.stats().finals_waiting == 0


async def test_an_idle_sequence_is_told_and_its_slot_is_free() -> None:
    clock = ManualClock()
    config = replace(live_only(instances=1, slots=1), idle_timeout_s=10.0)
    async with running(config, clock) as engine:
        handle = engine.open(SequenceId("a"))
        clock.advance(9_000 * MS)
        handle.keep_alive()
        clock.advance(9_000 * MS)
        await handle.send(np.empty(0, np.float32))
        clock.advance(9_999 * MS)
        assert engine.stats().sequences_live == 1
        clock.advance(1 * MS)
        assert (await closes(handle)).failure == "idle_timeout"
        with pytest.raises(SequenceAlreadyEnded):
            await handle.send(exact_audio(0, 10))
        engine.open(SequenceId("b"))
        assert engine.stats().sequences_ended == {"idle_timeout": 1}


async def test_a_timer_that_fires_early_still_meets_its_deadline() -> None:
    class Early(ManualClock):
        def now_ns(self) -> int:
            return super().now_ns() - 1

    clock = Early()
    async with running(replace(live_only(), idle_timeout_s=1.0), clock) as engine:
        handle = engine.open(SequenceId("a"))
        clock.advance(1_000 * MS)
        assert (await closes(handle)).failure == "idle_timeout"


async def test_a_sender_waits_while_its_queue_is_full() -> None:
    config = replace(live_only(instances=1, max_queued_s=200 / 16_000, step_s=0.002), final=FINAL)
    async with running(config) as engine:
        handle = engine.open(SequenceId("a"))
        audio, more = exact_audio(5, 5_000), exact_audio(6, 1_000)
        sending = asyncio.create_task(handle.send(audio))
        await asyncio.sleep(0)
        assert not sending.done()
        assert engine.stats().audio_s * 16_000 <= 400
        await sending
        await handle.finalize()
        await handle.send(more)
        await handle.end()
        heard = await closes(handle)
    assert heard.final_texts == [summary(audio), summary(more)]
    assert heard.live_texts == [summary(audio), summary(np.concatenate((audio, more)))]


async def test_there_is_room_as_soon_as_a_step_has_taken_its_audio() -> None:
    clock = ManualClock()
    config = live_only(instances=1, max_queued_s=100 / 16_000, step_s=0.1, max_delay_ms=10.0)
    async with running(config, clock) as engine:
        handle, _ = engine.open(SequenceId("a")), engine.open(SequenceId("company to wait for"))
        sending = asyncio.create_task(handle.send(exact_audio(5, 150)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        clock.advance(10 * MS)
        await sending
        assert handle.replies.take() is None, "the sender waited for the step's result"


async def test_a_sender_that_waits_learns_that_its_sequence_is_over() -> None:
    async with running(live_only(instances=1, max_queued_s=100 / 16_000, step_s=0.01)) as engine:
        handle = engine.open(SequenceId("a"))
        sending = asyncio.create_task(handle.send(exact_audio(5, 50_000)))
        await asyncio.sleep(0.02)
        await handle.cancel()
        with pytest.raises(SequenceAlreadyEnded):
            await asyncio.wait_for(sending, 10.0)


async def test_a_sender_waits_for_a_reader_and_a_reader_that_never_comes_loses_the_sequence() -> None:
    async with running(replace(live_only(), max_finals=4)) as engine:
        handle = engine.open(SequenceId("a"))
        for _ in range(4):
            await handle.finalize()
        await until(partial(has_finalized, engine, 4))
        sending = asyncio.create_task(handle.send(exact_audio(0, 10)))
        await asyncio.sleep(0.01)
        assert not sending.done()
        events = handle.events()
        await anext(events)
        await asyncio.wait_for(sending, 10.0)
        for _ in range(8):
            await handle.finalize()
        await until(lambda: engine.stats().sequences_ended == {"queue_full": 1})
        heard = await closes(handle)
        assert engine.stats().slots_used == 0
    assert heard.failure == "queue_full"
    assert len(heard.finals) >= 8


async def test_the_loop_is_free_while_a_step_runs() -> None:
    async with running(live_only(instances=1, step_s=0.05)) as engine:
        handle = engine.open(SequenceId("a"))
        await handle.end()
        hearing = asyncio.create_task(listen(handle))
        n_turns = 0
        while not hearing.done():
            n_turns += 1
            await asyncio.sleep(0.001)
        assert n_turns > 5


# Starting and stopping


async def test_stop_tells_everybody_and_leaves_nothing() -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    engine = Engine(CONFIG, SystemClock())
    await engine.start()
    assert engine.is_ready
    idle, said, ended = (engine.open(SequenceId(each)) for each in "abc")
    await said.send(with_sample(SLOW))
    await said.finalize()
    await ended.send(with_sample(SLOW))
    await ended.end()
    await until(lambda: engine.stats().finals_waiting == 2)
    await engine.stop()
    assert (await closes(idle)).failure == "shutting_down"
    heard = await closes(said)
    assert (heard.failure, heard.final_texts) == ("shutting_down", [summary(with_sample(SLOW))])
    heard = await closes(ended)
    assert isinstance(heard.terminal, SequenceClosed)
    assert heard.final_texts == [summary(with_sample(SLOW))]
    assert not engine.is_ready
    with pytest.raises(ShuttingDown):
        engine.open(SequenceId("d"))
    await engine.stop()
    assert asyncio.all_tasks() == tasks
    assert os.getpriority(os.PRIO_PROCESS, 0) == niceness, "a final model in a thread made the whole process nice"
    left = {thread.name for thread in set(threading.enumerate()) - threads if not thread.name.startswith("asyncio_")}
    assert left == set()


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (replace(CONFIG, live=replace(LIVE, source=SUM)), ConfigError, r"live\.model: .* needs the dynamic batcher"),
        (replace(CONFIG, final=replace(FINAL, source=LIVE.source)), ConfigError, r"final\.model: .* sequence batcher"),
        (replace(CONFIG, final=replace(FINAL, source=ModelSource(name="nope"))), ConfigError, "nope"),
        (replace(CONFIG, final=replace(FINAL, source=ModelSource(name="x", factory="a:b"))), InstanceFailed, "final-0"),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    config: object, error: type[Exception], message: str
) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    with pytest.raises(error, match=message):
        await Engine(config, SystemClock()).start()  # type: ignore[arg-type]  # parametrised as objects
    assert asyncio.all_tasks() == tasks
    left = {thread.name for thread in set(threading.enumerate()) - threads if not thread.name.startswith("asyncio_")}
    assert left == set()


async def test_models_and_slots_are_in_the_statistics() -> None:
    async with running(CONFIG) as engine:
        engine.open(SequenceId("a"))
        stats = engine.stats()
    live, final = stats.models
    assert (live.role, live.name, live.scheduler, live.device) == ("live", "accumulator", "sequence", "cpu")
    assert (live.instances, live.instances_ready, live.slots, live.slot_bytes) == (2, 2, 4, 100)
    assert (final.role, final.name, final.scheduler, final.slots) == ("final", "sum", "dynamic", 0)
    assert (stats.slots_total, stats.slots_used, stats.slots_quarantined) == (8, 1, 0)
    assert (stats.sequences_live, stats.sequences_started) == (1, 1)


def quiet(n_samples: int) -> Samples:
    return np.full(n_samples, QUIET, dtype=np.float32)


def n_read(engine: Engine) -> int:
    """Batches of the final model that ran to their end."""
    final = engine.stats().final
    assert final is not None
    return final.step_s.count


def n_failed(engine: Engine) -> int:
    """Batches of the final model that failed."""
    final = engine.stats().final
    assert final is not None
    return final.failures


SPEECH, TICK_END = 50, TICK_SAMPLES + 7
"""Samples of speech, and the end of the first tick, which is in the pause after them."""


async def pausing(engine: Engine, name: str, audio: Samples) -> SequenceHandle:
    """A sequence that said ``audio`` and is in a pause."""
    handle = engine.open(SequenceId(name))
    await handle.send(np.concatenate((audio, quiet(TICK_END - audio.size))))
    return handle


async def test_an_utterance_in_a_pause_is_read_early_and_its_text_told_when_it_ends() -> None:
    audio = exact_audio(3, SPEECH)
    async with running(CONFIG) as engine:
        handle = await pausing(engine, "a", audio)
        await until(lambda: n_read(engine) == 1)
        assert not any(isinstance(event, UtteranceFinal) for event in iter(handle.replies.take, None))
        await handle.send(quiet(30))
        await handle.finalize()
        await handle.end()
        heard = await closes(handle)
        assert n_read(engine) == 1
        assert engine.stats().finals_replaced == {}
    assert heard.final_texts == [summary(audio), ""]
    assert heard.finals[0].has_final_pass


async def test_an_end_while_it_is_read_early_waits_for_that_reading() -> None:
    audio = with_sample(SLOW, n_samples=SPEECH)
    async with running(CONFIG) as engine:
        handle = await pausing(engine, "a", audio)
        await until(lambda: engine.stats().live.counters.get("encoder_frames") == 10)
        await handle.finalize()
        await handle.end()
        assert (await closes(handle)).final_texts == [summary(audio), ""]
        assert n_read(engine) == 1


async def test_speech_that_goes_on_makes_the_early_reading_void() -> None:
    audio, more = with_sample(SLOW, n_samples=SPEECH), exact_audio(4, TICK_SAMPLES)
    async with running(CONFIG) as engine:
        handle = await pausing(engine, "a", audio)
        await until(lambda: engine.stats().live.counters.get("encoder_frames") == 10)
        await handle.send(more)
        await handle.finalize()
        await handle.end()
        heard = await closes(handle)
        whole = np.concatenate((audio, quiet(TICK_END - SPEECH), more))
        assert heard.final_texts == [summary(whole), ""]
        assert n_read(engine) == 1  # the early one was abandoned


async def test_an_early_reading_gives_way_to_a_real_one_and_is_made_up_for() -> None:
    slow, real = with_sample(SLOW, n_samples=SPEECH), exact_audio(5, 500)
    async with running(CONFIG) as engine:
        waiting = await pausing(engine, "early", slow)
        await until(lambda: engine.stats().live.counters.get("encoder_frames") == 10)
        other = engine.open(SequenceId("real"))
        await other.send(real)
        await other.end()
        assert (await closes(other)).final_texts == [summary(real)]
        assert n_read(engine) == 1
        await waiting.end()
        assert (await closes(waiting)).final_texts == [summary(slow)]
        assert n_read(engine) == 2


async def test_an_early_reading_that_fails_is_tried_again_at_the_end() -> None:
    async with running(CONFIG) as engine:
        handle = await pausing(engine, "a", with_sample(DUD, n_samples=SPEECH))
        await until(lambda: n_failed(engine) == 1)
        assert engine.stats().finals_replaced == {}
        await handle.end()
        heard = await closes(handle)
        assert n_failed(engine) == 2
        assert engine.stats().finals_replaced == {"failed": 1}
    assert heard.final_texts == heard.live_texts


async def test_an_early_reading_that_hears_nothing_leaves_the_live_text() -> None:
    async with running(CONFIG) as engine:
        handle = await pausing(engine, "a", with_sample(MUTE, n_samples=SPEECH))
        await until(lambda: n_read(engine) == 1)
        assert engine.stats().finals_replaced == {}
        await handle.end()
        heard = await closes(handle)
        assert engine.stats().finals_replaced == {"empty": 1}
    assert heard.final_texts == heard.live_texts


async def test_a_sequence_that_leaves_or_says_more_leaves_nothing_early_behind() -> None:
    async with running(CONFIG) as engine:
        handle = await pausing(engine, "a", with_sample(SLOW, n_samples=SPEECH))
        await until(lambda: engine.stats().live.counters.get("encoder_frames") == 10)
        await handle.cancel()
        other = engine.open(SequenceId("b"))
        await other.send(exact_audio(5, 500))
        await other.end()
        assert (await closes(other)).terminal
        assert n_read(engine) == 1
