"""What a sequence is told: finals in order, tiled, never lost; partials coalesced; one terminal event, the last."""

import itertools
from dataclasses import replace

import pytest

from asr_model.transcript import EndedUtterance, FinalOutput, LiveOutput, Sentiment, UtteranceEnd, Word
from server.effects import RowCompleted
from server.engine.replies import OpenFinal, SequenceReplies
from server.errors import InstanceFailed, ShuttingDown
from server.events import (
    CloseCause,
    Event,
    Partial,
    Queued,
    SequenceClosed,
    SequenceFailed,
    SpeechStarted,
    UtteranceFinal,
)
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchRow

SECOND = 16_000
S = SequenceId("s")


def word(text: str, start_s: float = 0.0) -> Word:
    return Word(text=text, start_s=start_s, end_s=start_s + 0.5, confidence=0.9)


def replies(*, has_final_pass: bool = True, max_finals: int = 100) -> SequenceReplies:
    return SequenceReplies(S, has_final_pass=has_final_pass, max_finals=max_finals)


def effect(output: object, *, flush: bool = False, end: bool = False) -> RowCompleted:
    row = BatchRow(
        slot=SlotIndex(3),
        generation=1,
        sequence_id=S,
        start=False,
        flush=flush,
        end=end,
        first_sample=0,
        n_samples=10,
        ready_at_ns=0,
    )
    return RowCompleted(
        row=row, instance=InstanceIndex(1), output=output, batch_size=4, queue_ns=2_000_000, step_ns=5_000_000
    )


def tick(
    *committed: str,
    at: int = 0,
    ended: EndedUtterance | None = None,
    speech: tuple[int, int] | None = None,
    is_speech: bool = True,
) -> RowCompleted:
    output = LiveOutput(
        encoded_samples=at,
        committed=tuple(word(text) for text in committed),
        draft=(),
        ended=ended,
        keep_from_sample=0,
        is_speech=is_speech,
        speech_from_sample=speech[0] if speech else None,
        speech_until_sample=speech[1] if speech else None,
    )
    return effect(output)


def ended(*words: str, first: int, end: int, cause: UtteranceEnd = UtteranceEnd.ENDPOINT) -> EndedUtterance:
    return EndedUtterance(
        cause=cause, first_sample=first, end_sample=end, words=tuple(word(text, first / SECOND) for text in words)
    )


def flush(*words: str, first: int, end: int, cause: UtteranceEnd = UtteranceEnd.FINALIZE) -> RowCompleted:
    output = LiveOutput(
        encoded_samples=end,
        committed=(),
        draft=(),
        ended=ended(*words, first=first, end=end, cause=cause),
        keep_from_sample=end,
        is_speech=True,
    )
    return effect(output, flush=True, end=cause is UtteranceEnd.END)


def drain(heard: SequenceReplies) -> list[Event]:
    return list(iter(heard.take, None))


def finals(events: list[Event]) -> list[UtteranceFinal]:
    return [event for event in events if isinstance(event, UtteranceFinal)]


def texts(events: list[Event]) -> list[str]:
    return [" ".join(each.text for each in event.words) for event in finals(events)]


def complete(heard: SequenceReplies, row: RowCompleted) -> OpenFinal | None:
    assert isinstance(row.output, LiveOutput)
    return heard.complete_row(row, row.output)


def opened(heard: SequenceReplies, row: RowCompleted) -> OpenFinal:
    final = complete(heard, row)
    assert final is not None
    return final


def test_a_tick_is_told_with_where_it_was_computed() -> None:
    heard = replies()
    assert complete(heard, tick("one", at=SECOND)) is None
    (event,) = drain(heard)
    assert isinstance(event, Partial)
    assert [each.text for each in event.committed] == ["one"]
    assert (event.utterance, event.start_s, event.covered_s) == (0, 0.0, 1.0)
    assert (event.step.instance, event.step.slot, event.step.batch_size) == (1, 3, 4)
    assert (event.step.queue_ms, event.step.step_ms) == (2.0, 5.0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_finals_come_in_order_of_utterances_whatever_the_order_of_their_texts(order: tuple[int, ...]) -> None:
    heard = replies()
    waiting = [
        opened(heard, tick(ended=ended(f"live{index}", first=index * SECOND, end=(index + 1) * SECOND)))
        for index in range(3)
    ]
    heard.close(CloseCause.END, 3 * SECOND)
    events = drain(heard)
    assert [type(event) for event in events] == [Partial]  # not held back by the finals that are pending
    for index in order:
        heard.resolve(waiting[index], FinalOutput(words=(word(f"final{index}", 0.25),)))
        events += drain(heard)
    assert texts(events) == ["final0", "final1", "final2"]
    assert [event.live_words[0].text for event in finals(events)] == ["live0", "live1", "live2"]
    assert [event.words[0].start_s for event in finals(events)] == [0.25, 1.25, 2.25]
    assert [event.utterance for event in finals(events)] == [0, 1, 2]
    assert events[-1] == SequenceClosed(sequence_id=S, cause=CloseCause.END, audio_s=3.0)


def test_utterances_tile_the_timeline_across_silent_ones() -> None:
    heard = replies(has_final_pass=False)
    complete(heard, tick(ended=ended("a", first=SECOND // 2, end=SECOND)))
    complete(heard, tick(ended=ended(first=2 * SECOND, end=3 * SECOND)))  # an endpoint without words: no event
    complete(heard, tick(at=4 * SECOND))
    complete(heard, flush("b", first=5 * SECOND, end=6 * SECOND))
    complete(heard, flush(first=6 * SECOND, end=7 * SECOND, cause=UtteranceEnd.END))
    events = drain(heard)
    assert [(event.utterance, event.start_s, event.end_s) for event in finals(events)] == [
        (0, 0.0, 1.0),
        (1, 1.0, 6.0),
        (2, 6.0, 7.0),
    ]
    partials = [event for event in events if isinstance(event, Partial)]
    assert [(event.utterance, event.start_s, event.covered_s) for event in partials] == [(1, 1.0, 4.0)]


@pytest.mark.parametrize("cause", [UtteranceEnd.LENGTH, UtteranceEnd.STALL])
def test_the_silence_after_an_utterance_cut_in_mid_speech_is_told_once(cause: UtteranceEnd) -> None:
    heard = replies(has_final_pass=False)
    complete(heard, tick(ended=ended("one", first=0, end=SECOND, cause=cause)))
    for index in range(2, 4):
        complete(heard, tick(ended=ended(first=SECOND, end=index * SECOND)))
    told = [(event.cause, len(event.words), event.start_s, event.end_s) for event in finals(drain(heard))]
    assert told == [(cause, 1, 0.0, 1.0), (UtteranceEnd.ENDPOINT, 0, 1.0, 2.0)]


def test_every_flush_is_answered_once_and_one_without_words_needs_no_final_pass() -> None:
    heard = replies()
    for _ in range(3):
        assert complete(heard, flush(first=0, end=100)) is None
    assert complete(heard, flush(first=0, end=100, cause=UtteranceEnd.END)) is None
    causes = [event.cause for event in finals(drain(heard))]
    assert causes == [UtteranceEnd.FINALIZE] * 3 + [UtteranceEnd.END]


def test_a_text_that_cannot_be_had_is_the_live_one() -> None:
    heard = replies()
    heard.resolve(opened(heard, flush("live", first=0, end=100)), None)
    assert texts(drain(heard)) == ["live"]


def test_a_final_pass_may_find_no_words() -> None:
    heard = replies()
    heard.resolve(opened(heard, flush("live", first=0, end=100)), FinalOutput(words=()))
    (event,) = finals(drain(heard))
    assert (event.words, event.live_words[0].text) == ((), "live")


def test_partials_in_a_row_coalesce_to_the_newest_and_nothing_else_is_dropped() -> None:
    heard = replies(has_final_pass=False)
    complete(heard, tick("v0", speech=(0, 10)))
    complete(heard, tick("v1"))
    complete(heard, flush("a", first=0, end=100))
    for index in range(9):
        complete(heard, tick(f"w{index}", at=index, speech=(200, 300)))
    complete(heard, flush("b", first=100, end=200))
    events = drain(heard)
    kinds = [SpeechStarted, Partial, UtteranceFinal, SpeechStarted, Partial, UtteranceFinal]
    assert [type(event) for event in events] == kinds
    assert texts(events) == ["a", "b"]
    partials = [event for event in events if isinstance(event, Partial)]
    assert [(each.committed[0].text, each.covered_s) for each in partials] == [("v1", 0.0), ("w8", 8 / SECOND)]


@pytest.mark.parametrize(
    ("heard_speech", "told"), [((True, False), True), ((False, True), True), ((False,) * 2, False)]
)
def test_a_coalesced_partial_remembers_speech(heard_speech: tuple[bool, bool], told: bool) -> None:
    heard = replies()
    for is_speech in heard_speech:
        complete(heard, tick("w", is_speech=is_speech))
    (partial,) = drain(heard)
    assert isinstance(partial, Partial)
    assert partial.is_speech is told


def started_at_s(events: list[Event]) -> list[float]:
    return [event.at_s for event in events if isinstance(event, SpeechStarted)]


def test_speech_that_goes_on_starts_once_and_before_its_partial() -> None:
    heard = replies()
    complete(heard, tick(is_speech=False))
    complete(heard, tick("one", speech=(4000, 5000)))
    complete(heard, tick("one", speech=(5000 + SECOND - 1, 6000 + SECOND)))
    complete(heard, tick("one"))
    events = drain(heard)
    assert [type(event) for event in events] == [Partial, SpeechStarted, Partial]
    assert started_at_s(events) == [0.25]


def test_speech_after_a_second_of_silence_starts_anew() -> None:
    heard = replies()
    complete(heard, tick("one", speech=(0, 5000)))
    complete(heard, tick("one", speech=(5000 + SECOND, 6000 + SECOND)))
    assert started_at_s(drain(heard)) == [0.0, 21_000 / SECOND]


@pytest.mark.parametrize(
    ("cause", "anew"),
    [
        (UtteranceEnd.ENDPOINT, True),
        (UtteranceEnd.FINALIZE, True),
        (UtteranceEnd.LENGTH, False),
        (UtteranceEnd.STALL, False),
    ],
)
def test_speech_starts_anew_after_an_end_that_speech_or_the_client_made(cause: UtteranceEnd, anew: bool) -> None:
    heard = replies(has_final_pass=False)
    complete(heard, tick("one", speech=(0, 5000)))
    complete(heard, tick(ended=ended("one", first=0, end=5000, cause=cause)))
    complete(heard, tick("two", speech=(8000, 8100)))
    events = drain(heard)
    assert started_at_s(events) == ([0.0, 0.5] if anew else [0.0])


def test_speech_in_a_flush_alone_is_told_before_its_final() -> None:
    heard = replies(has_final_pass=False)
    row = flush("stop", first=0, end=3000, cause=UtteranceEnd.END)
    assert isinstance(row.output, LiveOutput)
    complete(heard, replace(row, output=replace(row.output, speech_from_sample=400, speech_until_sample=2000)))
    assert [type(event) for event in drain(heard)] == [SpeechStarted, UtteranceFinal]


def test_speech_that_starts_again_and_again_unread_fills_it() -> None:
    heard = replies(max_finals=2)
    for index in range(5):
        at = index * 2 * SECOND
        complete(heard, tick(speech=(at, at + 1000)))
        assert (heard.is_full, heard.is_overrun) == (index >= 1, index >= 4)
    assert len(started_at_s(drain(heard))) == 5
    assert not heard.is_full


def test_finals_that_wait_or_are_unread_fill_it_and_reading_makes_room() -> None:
    heard = replies(max_finals=2)
    first = opened(heard, flush("a", first=0, end=100))
    assert not heard.is_full
    complete(heard, flush(first=100, end=200))
    assert heard.is_full
    heard.resolve(first, None)
    assert heard.is_full
    assert not heard.is_overrun
    for _ in range(3):
        complete(heard, flush(first=100, end=200))
    assert heard.is_overrun
    assert len(finals(drain(heard))) == 5
    assert not heard.is_full


def test_a_failure_comes_after_the_finals_that_are_complete() -> None:
    heard = replies()
    final = opened(heard, flush("live", first=0, end=100))
    error = InstanceFailed("gone")
    heard.fail(error)
    assert (drain(heard), heard.is_told) == ([], False)
    heard.resolve(final, FinalOutput(words=(word("final"),)))
    events = drain(heard)
    assert texts(events) == ["final"]
    assert events[-1] == SequenceFailed(sequence_id=S, error=error)
    assert heard.is_told


def test_a_failure_at_once_does_not_wait_for_final_texts() -> None:
    heard = replies()
    final = opened(heard, flush("live", first=0, end=100))
    heard.fail(ShuttingDown("bye"), at_once=True)
    events = drain(heard)
    assert texts(events) == ["live"]
    assert isinstance(events[-1], SequenceFailed)
    heard.resolve(final, FinalOutput(words=(word("late"),)))
    assert drain(heard) == []


def test_who_is_ended_hears_no_place_that_was_not_read_yet() -> None:
    heard = replies()
    heard.queue(2, None)
    assert [type(event) for event in drain(heard)] == [Queued]
    heard.queue(1, None)
    heard.fail(ShuttingDown("bye"), at_once=True)
    assert [type(event) for event in drain(heard)] == [SequenceFailed]


def test_an_end_that_only_waits_for_texts_is_still_an_end_at_shutdown() -> None:
    heard = replies()
    opened(heard, flush("live", first=0, end=100, cause=UtteranceEnd.END))
    heard.close(CloseCause.END, 100)
    heard.fail(ShuttingDown("bye"), at_once=True)
    events = drain(heard)
    assert texts(events) == ["live"]
    assert isinstance(events[-1], SequenceClosed)


def test_leaving_drops_what_is_pending_and_is_told_at_once() -> None:
    for ends_first in (False, True):
        heard = replies()
        final = opened(heard, flush("live", first=0, end=100, cause=UtteranceEnd.END))
        if ends_first:
            heard.close(CloseCause.END, SECOND)
        heard.close(CloseCause.CANCELLED, SECOND)
        heard.resolve(final, None)
        assert drain(heard) == [SequenceClosed(sequence_id=S, cause=CloseCause.CANCELLED, audio_s=1.0)]


def test_there_is_one_terminal_event_whatever_follows() -> None:
    heard = replies()
    heard.close(CloseCause.END, SECOND)
    heard.fail(InstanceFailed("gone"))
    heard.fail(ShuttingDown("bye"), at_once=True)
    heard.close(CloseCause.CANCELLED, SECOND)
    assert drain(heard) == [SequenceClosed(sequence_id=S, cause=CloseCause.END, audio_s=1.0)]
    heard.close(CloseCause.CANCELLED, SECOND)
    heard.fail(ShuttingDown("bye"), at_once=True)
    assert drain(heard) == []


def test_leaving_a_sequence_that_failed_tells_the_failure() -> None:
    heard = replies()
    opened(heard, flush("live", first=0, end=100))
    heard.fail(InstanceFailed("gone"))
    heard.close(CloseCause.CANCELLED, SECOND)
    (event,) = drain(heard)
    assert isinstance(event, SequenceFailed)


def test_places_in_the_line_come_before_all_else_and_only_the_newest_waits() -> None:
    heard = replies()
    heard.queue(2, None)
    heard.queue(1, 1_500_000_000)
    assert drain(heard) == [Queued(sequence_id=S, position=1, expected_wait_s=1.5)]
    heard.queue(1, 500_000_000)
    heard.queue(0, 0)
    heard.fail(ShuttingDown("x"))
    heard.queue(3, None)
    told = drain(heard)
    assert told[0] == Queued(sequence_id=S, position=0, expected_wait_s=0.0)
    assert [type(event) for event in told[1:]] == [SequenceFailed]


def test_a_final_waits_for_its_text_then_for_its_sentiment() -> None:
    heard = SequenceReplies(S, has_final_pass=True, max_finals=100, wants_sentiment=True)
    first = opened(heard, tick(ended=ended("one", first=0, end=SECOND)))
    second = opened(heard, tick(ended=ended("two", first=SECOND, end=2 * SECOND)))
    heard.resolve(second, None)
    heard.feel(second, Sentiment.of(-1.0))
    heard.resolve(first, FinalOutput(words=(word("One."),)))
    assert finals(drain(heard)) == []
    heard.feel(first, Sentiment.of(1.0))
    one, two = finals(drain(heard))
    assert [each.text for each in (*one.words, *two.words)] == ["One.", "two"]
    assert (one.sentiment, two.sentiment) == (Sentiment.of(1.0), Sentiment.of(-1.0))


def test_without_a_final_pass_it_waits_for_its_sentiment_alone() -> None:
    heard = SequenceReplies(S, has_final_pass=False, max_finals=100, wants_sentiment=True)
    final = opened(heard, tick(ended=ended("one", first=0, end=SECOND)))
    assert not final.wants_text
    assert finals(drain(heard)) == []
    heard.feel(final, None)
    (told,) = finals(drain(heard))
    assert told.sentiment is None


def test_an_utterance_without_words_waits_for_no_sentiment() -> None:
    heard = SequenceReplies(S, has_final_pass=True, max_finals=100, wants_sentiment=True)
    assert complete(heard, flush(first=0, end=SECOND)) is None
    assert len(finals(drain(heard))) == 1


def test_what_is_told_at_once_takes_no_sentiment_any_more() -> None:
    heard = SequenceReplies(S, has_final_pass=False, max_finals=100, wants_sentiment=True)
    final = opened(heard, tick(ended=ended("one", first=0, end=SECOND)))
    heard.fail(ShuttingDown("bye"), at_once=True)
    heard.feel(final, Sentiment.of(1.0))
    told, failed = [each for each in drain(heard) if not isinstance(each, Partial)]
    assert isinstance(told, UtteranceFinal)
    assert told.sentiment is None
    assert isinstance(failed, SequenceFailed)
    assert heard.is_told
