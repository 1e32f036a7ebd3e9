"""A full engine with a line for slots: who waits is told its place, loses no audio, and gets its slot in turn."""

import asyncio
from dataclasses import replace

import pytest

from server.clock import SystemClock
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig
from server.engine.sequence_handle import SequenceHandle
from server.errors import CapacityExceeded, DuplicateSequence, SequenceAlreadyEnded
from server.events import CloseCause, Event, Queued, SequenceClosed
from server.ids import SequenceId
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import listen, live_only, running, until
from tests.support.manual_clock import ManualClock

S = 1_000_000_000


def lined_up(backlog: int, *, wait_s: float = 0.0, slots: int = 1) -> EngineConfig:
    """One instance with a line."""
    config = live_only(instances=1, slots=slots)
    return replace(config, live=replace(config.live, backlog=backlog, backlog_wait_s=wait_s))


def places(events: list[Event]) -> list[int]:
    return [event.position for event in events if isinstance(event, Queued)]


def open_(engine: Engine, name: str, *, priority: int = 0) -> SequenceHandle:
    return engine.open(SequenceId(name), priority=priority)


def told(handle: SequenceHandle) -> Event | None:
    return handle.replies.take()


async def test_who_waits_is_told_its_place_at_once_and_loses_no_audio() -> None:
    audio = exact_audio(3, 500)
    async with running(lined_up(2)) as engine:
        first, second, third = (open_(engine, name) for name in "abc")
        assert told(first) is None
        assert told(second) == Queued(sequence_id=SequenceId("b"), position=1, expected_wait_s=None)
        assert told(third) == Queued(sequence_id=SequenceId("c"), position=2, expected_wait_s=None)
        await second.send(audio)
        await second.end()
        await third.send(audio)
        await first.end()
        await asyncio.wait_for(listen(first), 10)
        heard = await asyncio.wait_for(listen(second), 10)
        assert places(heard.events) == [0]
        assert isinstance(heard.events[0], Queued), "it comes before everything else"
        assert heard.live_texts == [summary(audio)]
        await third.end()
        last = await asyncio.wait_for(listen(third), 10)
        assert last.live_texts == [summary(audio)]
        assert places(last.events) == [0], "of places that nobody has read only the newest is told"
        stats = engine.stats()
    assert stats.sequence_batchers["live"].queued == 2
    assert (stats.live.slot_wait_s.count, stats.slots_used) == (2, 0)
    assert (second.slot_wait_ns > 0, third.slot_wait_ns > 0, first.slot_wait_ns) == (True, True, 0)


async def test_a_full_line_refuses_and_says_when_to_come_again() -> None:
    async with running(lined_up(1)) as engine:
        first = open_(engine, "a")
        waiting = open_(engine, "b")
        with pytest.raises(CapacityExceeded) as refused:
            open_(engine, "c")
        assert refused.value.retry_after_s == 1, "nothing is known yet"
        assert engine.stats().refusals == {"capacity_exceeded": 1}
        assert engine.stats().sequence_batchers["live"].backlog == 1
        for handle in (waiting, first):
            await handle.cancel()
        assert engine.stats().slots_used == engine.stats().sequences_live == 0


async def test_the_hint_follows_what_slots_take_to_become_free() -> None:
    clock = ManualClock()
    async with running(lined_up(0), clock) as engine:
        for name in "abcd":
            handle = open_(engine, name)
            clock.advance(40 * S)
            await handle.cancel()
        open_(engine, "e")
        with pytest.raises(CapacityExceeded) as refused:
            open_(engine, "f")
        assert 20 <= refused.value.retry_after_s <= 60


async def test_a_higher_priority_goes_first_and_those_behind_are_told() -> None:
    async with running(lined_up(3)) as engine:
        first = open_(engine, "a")
        plain = open_(engine, "b")
        assert told(plain) == Queued(sequence_id=SequenceId("b"), position=1, expected_wait_s=None)
        urgent = open_(engine, "c", priority=1)
        assert told(urgent) == Queued(sequence_id=SequenceId("c"), position=1, expected_wait_s=None)
        assert told(plain) == Queued(sequence_id=SequenceId("b"), position=2, expected_wait_s=None)
        await first.cancel()
        moved = told(plain)
        assert isinstance(moved, Queued)
        placed = told(urgent)
        assert isinstance(placed, Queued)
        assert (placed.position, moved.position) == (0, 1)
        for handle in (urgent, plain):
            await handle.cancel()


async def test_a_wait_that_is_too_long_ends_with_its_reason() -> None:
    clock = ManualClock()
    async with running(lined_up(2, wait_s=5.0), clock) as engine:
        first, second = open_(engine, "a"), open_(engine, "b")
        clock.advance(2 * S)
        third = open_(engine, "c")
        clock.advance(3 * S)
        heard = await asyncio.wait_for(listen(second), 10)
        assert heard.failure == "backlog_timeout"
        with pytest.raises(SequenceAlreadyEnded):
            await second.send(exact_audio(1, 10))
        moved = told(third)
        assert isinstance(moved, Queued)
        assert moved.position == 1, "the line has moved up"
        await first.cancel()
        placed = told(third)
        assert isinstance(placed, Queued)
        assert placed.position == 0
        assert engine.stats().sequences_ended == {"backlog_timeout": 1, "cancelled": 1}
        await third.cancel()


async def test_who_leaves_the_line_frees_its_place_and_only_its_place() -> None:
    async with running(lined_up(3)) as engine:
        first, second, third = (open_(engine, name) for name in "abc")
        told(third)
        await second.send(exact_audio(1, 50))
        await second.cancel()
        heard = await asyncio.wait_for(listen(second), 10)
        assert heard.terminal == SequenceClosed(
            sequence_id=SequenceId("b"), cause=CloseCause.CANCELLED, audio_s=50 / 16_000
        )
        moved = told(third)
        assert isinstance(moved, Queued)
        assert moved.position == 1
        assert engine.stats().slots_used == 1
        await first.cancel()
        assert engine.stats().slots_used == 1, "it has gone to the third"
        await third.cancel()
        await until(lambda: engine.stats().slots_used == 0)


async def test_who_waits_keeps_the_place_where_the_model_is_replaced() -> None:
    """The new copy has two slots: of four that wait the first two get them, and a newcomer comes last."""
    audio = exact_audio(4, 900)
    config = lined_up(8)
    engine = Engine(config, SystemClock(), lambda _, overrides: replace(config.live, **overrides))  # type: ignore[arg-type]
    await engine.start()
    try:
        first, b, c, d, e = (open_(engine, name) for name in "abcde")
        urgent = open_(engine, "u", priority=1)
        for handle in (b, c, d, e, urgent):
            assert isinstance(told(handle), Queued)
            await handle.send(audio[:500])
        await b.finalize()
        await d.end()
        await first.send(audio)
        await engine.repository.load("live", {"slots": 2})
        late = open_(engine, "late")
        assert [each.place for each in (urgent, b, c, d, e, late)] == [0, 0, 1, 2, 3, 4]
        for handle, place in ((urgent, 0), (b, 0), (c, 1), (d, 2), (e, 3), (late, 4)):
            event = told(handle)
            assert isinstance(event, Queued), handle.sequence_id
            assert event.position == place
        assert engine.stats().sequence_batchers["live"].backlog == 4
        with pytest.raises(DuplicateSequence):
            open_(engine, "c")
        for handle in (first, urgent, b, c, e, late):
            if handle is not first:
                await handle.send(audio[500:] if handle is not late else audio)
            await handle.end()
        heard = [await asyncio.wait_for(listen(each), 20) for each in (first, urgent, c, e, late, b, d)]
        assert [each.live_texts for each in heard[:5]] == [[summary(audio)]] * 5
        assert heard[5].live_texts == [summary(audio[:500]), summary(audio)]
        assert heard[6].live_texts == [summary(audio[:500])]
        assert all(isinstance(each.terminal, SequenceClosed) for each in heard)
        await until(lambda: not engine.stats().models[0].copies_ending)
        assert engine.stats().sequences_ended == {"end": 7}
    finally:
        await engine.stop()


async def test_a_wait_that_is_too_long_began_before_the_model_was_replaced() -> None:
    clock = ManualClock()
    async with running(lined_up(2, wait_s=5.0), clock) as engine:
        first, second, third = (open_(engine, name) for name in "abc")
        clock.advance(4 * S)
        await engine.repository.load("live")
        assert [each.place for each in (second, third)] == [0, 1]
        fourth = open_(engine, "d")
        clock.advance(1 * S)
        assert (await asyncio.wait_for(listen(third), 10)).failure == "backlog_timeout"
        assert fourth.place == 1
        for handle in (first, second, fourth):
            await handle.cancel()


async def test_stopping_ends_those_that_wait() -> None:
    async with running(lined_up(1)) as engine:
        open_(engine, "a")
        waiting = open_(engine, "b")
    heard = await asyncio.wait_for(listen(waiting), 10)
    assert heard.failure == "shutting_down"
