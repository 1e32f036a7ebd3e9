"""What one sequence is told, in order: turns the batchers' effects into events. Pure: no asyncio, no clock.

Upholds I4 (exactly one terminal event, the last) and I5 (what waits for a reader is bounded). Of Partials in a row only
the newest waits, and so of places in the line for a slot; all else is told in full, finals in the order of their
utterances, whatever the order in which their texts arrive.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from asr_model.transcript import EndedUtterance, FinalOutput, LiveOutput, Sentiment, UtteranceEnd, Word
from server.effects import RowCompleted
from server.errors import MoorageError
from server.events import (
    CloseCause,
    Event,
    Partial,
    Queued,
    SequenceClosed,
    SequenceFailed,
    SpeechStarted,
    StepInfo,
    UtteranceFinal,
)
from server.ids import SequenceId

SAMPLE_RATE: Final = 16_000
QUIET_SAMPLES: Final = SAMPLE_RATE
"""Speech after so much without any begins anew."""


@dataclass(slots=True, kw_only=True, eq=False)
class OpenFinal:
    """An utterance whose live text is complete and whose final text may be pending."""

    ended: EndedUtterance
    event: UtteranceFinal
    """Carries the live words as final ones until others come."""
    wants_text: bool
    """The final model's is pending."""
    wants_sentiment: bool
    """Pending too, once the text is there."""
    is_closed: bool = False
    """It is told as it is, whatever is pending."""

    @property
    def is_resolved(self) -> bool:
        """Whether it may be told."""
        return self.is_closed or not (self.wants_text or self.wants_sentiment)


class SequenceReplies:
    """The events of one sequence, from its effects to its reader.

    Args:
        sequence_id: Whose events they are.
        has_final_pass: Whether utterances with words wait for a final model's text.
        max_finals: Finals that are pending, and events that are unread, Partials aside, above which ``is_full`` asks
            the sender to wait.
        wants_sentiment: Whether utterances with words wait for their sentiment.
    """

    def __init__(
        self, sequence_id: SequenceId, *, has_final_pass: bool, max_finals: int, wants_sentiment: bool = False
    ) -> None:
        self._sequence_id = sequence_id
        self._has_final_pass = has_final_pass
        self._max_finals = max_finals
        self._wants_sentiment = wants_sentiment
        self._events: deque[Event] = deque()
        self._finals: deque[OpenFinal] = deque()
        self._terminal: SequenceClosed | SequenceFailed | None = None
        self._is_told = False
        self._utterance = 0
        self._next_start_s = 0.0
        self._n_unread = 0
        self.n_finals_told = 0
        """Finals that the reader has or can take."""
        self._speech_until_sample: int | None = None
        """Where the last speech ended; None: the next begins anew."""
        self._owes_endpoint = False
        """The last utterance was ended in mid-speech, so that the silence after it is still to be told."""

    @property
    def terminal(self) -> SequenceClosed | SequenceFailed | None:
        """The terminal event once it is decided; it may still wait for finals before it."""
        return self._terminal

    @property
    def is_told(self) -> bool:
        """Whether the terminal event is among the events, or read already: nothing more will come."""
        return self._is_told

    @property
    def is_full(self) -> bool:
        """Whether so much waits that the sender should."""
        return len(self._finals) + self._n_unread >= self._max_finals

    @property
    def is_overrun(self) -> bool:
        """Whether events pile up although the sender was asked to wait: the reader is gone or far too slow."""
        return len(self._finals) + self._n_unread > 2 * self._max_finals

    def take(self) -> Event | None:
        """The next event for the reader, None if there is none now."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._n_unread -= isinstance(event, UtteranceFinal | SpeechStarted)
        return event

    def queue(self, position: int, expected_wait_ns: int | None) -> None:
        """Its place in the line for a slot; 0: it has one now."""
        if self._terminal is not None:
            return
        if self._events and isinstance(self._events[-1], Queued):
            self._events.pop()
        wait_s = None if expected_wait_ns is None else expected_wait_ns / 1e9
        self._events.append(Queued(sequence_id=self._sequence_id, position=position, expected_wait_s=wait_s))

    def complete_row(self, effect: RowCompleted, output: LiveOutput) -> OpenFinal | None:
        """A live step's output for this sequence, out of its effect.

        Returns:
            The utterance that ended in it, if more is to be had of it: ``resolve`` must follow where it wants a text,
            then ``feel`` where it wants a sentiment.
        """
        step = _step_info(effect)
        self._notice_speech(output)
        final = self._end_utterance(effect, output.ended, step) if output.ended is not None else None
        if not effect.row.flush:
            self._append_partial(output, step)
        return final

    def resolve(self, final: OpenFinal, output: FinalOutput | None) -> None:
        """The final model's text of an utterance; None if there will be none: then the live text serves."""
        if output is not None and not final.is_resolved:
            offset_s = final.ended.first_sample / SAMPLE_RATE
            words = tuple(_shifted(word, offset_s) for word in output.words)
            final.event = replace(final.event, words=words, has_final_pass=True)
        final.wants_text = False
        self._release()

    def feel(self, final: OpenFinal, sentiment: Sentiment | None) -> None:
        """The sentiment of an utterance's text; None if there will be none."""
        if not final.is_resolved:
            final.event = replace(final.event, sentiment=sentiment)
        final.wants_sentiment = False
        self._release()

    def close(self, cause: CloseCause, received_samples: int) -> None:
        """The sequence ended: END is told after the last final, CANCELLED at once."""
        if cause is CloseCause.CANCELLED and not self._is_told:
            self._finals.clear()
            if isinstance(self._terminal, SequenceClosed):
                self._terminal = None
        self._finish(SequenceClosed(sequence_id=self._sequence_id, cause=cause, audio_s=received_samples / SAMPLE_RATE))

    def fail(self, error: MoorageError, *, at_once: bool = False) -> None:
        """The sequence failed. What is complete is told before that: ``at_once`` with the live text where the final one
        is pending.
        """
        if at_once:
            if self._events and isinstance(self._events[-1], Queued):
                self._events.pop()  # it has no place any more
            for final in self._finals:
                final.is_closed = True
        self._finish(SequenceFailed(sequence_id=self._sequence_id, error=error))

    def _end_utterance(self, effect: RowCompleted, ended: EndedUtterance, step: StepInfo) -> OpenFinal | None:
        """Numbers and tiles it. Without words only a flush is answered, and the endpoint after an utterance that was
        ended in mid-speech; else what follows counts as the same utterance.
        """
        if not (ended.words or effect.row.flush or (self._owes_endpoint and ended.cause is UtteranceEnd.ENDPOINT)):
            return None
        self._owes_endpoint = ended.cause in (UtteranceEnd.LENGTH, UtteranceEnd.STALL)
        end_s = max(self._next_start_s, ended.end_sample / SAMPLE_RATE)
        event = UtteranceFinal(
            sequence_id=self._sequence_id,
            utterance=self._utterance,
            cause=ended.cause,
            start_s=self._next_start_s,
            end_s=end_s,
            words=ended.words,
            live_words=ended.words,
            has_final_pass=False,
            step=step,
        )
        self._utterance += 1
        if ended.cause in (UtteranceEnd.ENDPOINT, UtteranceEnd.FINALIZE):
            self._speech_until_sample = None
        self._next_start_s = end_s
        has_words = bool(ended.words)
        final = OpenFinal(
            ended=ended,
            event=event,
            wants_text=has_words and self._has_final_pass,
            wants_sentiment=has_words and self._wants_sentiment,
        )
        self._finals.append(final)
        self._release()
        return None if final.is_resolved else final

    def _notice_speech(self, output: LiveOutput) -> None:
        """Tells where speech begins."""
        from_sample, until_sample = output.speech_from_sample, output.speech_until_sample
        if from_sample is None or until_sample is None:
            return
        before = self._speech_until_sample
        if before is None or from_sample - before >= QUIET_SAMPLES:
            self._events.append(SpeechStarted(sequence_id=self._sequence_id, at_s=from_sample / SAMPLE_RATE))
            self._n_unread += 1
        self._speech_until_sample = until_sample

    def _append_partial(self, output: LiveOutput, step: StepInfo) -> None:
        is_speech = output.is_speech
        if self._events and isinstance(waiting := self._events[-1], Partial):
            is_speech |= waiting.is_speech
            self._events.pop()
        self._events.append(
            Partial(
                sequence_id=self._sequence_id,
                utterance=self._utterance,
                start_s=self._next_start_s,
                covered_s=output.encoded_samples / SAMPLE_RATE,
                committed=output.committed,
                draft=output.draft,
                is_speech=is_speech,
                step=step,
            )
        )

    def _release(self) -> None:
        """Moves finals whose turn it is to the reader, and the terminal event after the last of them."""
        while self._finals and self._finals[0].is_resolved:
            self._events.append(self._finals.popleft().event)
            self.n_finals_told += 1
            self._n_unread += 1
        if self._terminal is not None and not self._finals and not self._is_told:
            self._events.append(self._terminal)
            self._is_told = True

    def _finish(self, terminal: SequenceClosed | SequenceFailed) -> None:
        if self._terminal is None:
            self._terminal = terminal
        self._release()


def _step_info(effect: RowCompleted) -> StepInfo:
    return StepInfo(
        instance=effect.instance,
        slot=effect.row.slot,
        batch_size=effect.batch_size,
        queue_ms=effect.queue_ns / 1e6,
        step_ms=effect.step_ns / 1e6,
    )


def _shifted(word: Word, offset_s: float) -> Word:
    return replace(word, start_s=word.start_s + offset_s, end_s=word.end_s + offset_s)
