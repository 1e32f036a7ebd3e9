"""What one sequence is told, in order: turns the batchers' effects into events. Pure: no asyncio, no clock.

Upholds I4 (exactly one terminal event, the last) and I5 (what waits for a reader is bounded). Partials coalesce, finals
are never dropped and come in the order of their utterances, whatever the order in which their texts arrive.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from asr_model.transcript import EndedUtterance, FinalOutput, LiveOutput, Word
from server.effects import RowCompleted
from server.errors import MoorageError
from server.events import CloseCause, Event, Partial, SequenceClosed, SequenceFailed, StepInfo, UtteranceFinal
from server.ids import SequenceId

SAMPLE_RATE: Final = 16_000
MAX_PARTIALS: Final = 8
"""Partials that wait for a reader; beyond them only the newest is kept."""


@dataclass(slots=True, kw_only=True, eq=False)
class OpenFinal:
    """An utterance whose live text is complete and whose final text may be pending."""

    ended: EndedUtterance
    event: UtteranceFinal
    """Carries the live words as final ones until others come."""
    is_resolved: bool = False


class SequenceReplies:
    """The events of one sequence, from its effects to its reader.

    Args:
        sequence_id: Whose events they are.
        has_final_pass: Whether utterances with words wait for a final model's text.
        max_finals: Finals, pending and unread together, above which ``is_full`` asks the sender to wait.
    """

    def __init__(self, sequence_id: SequenceId, *, has_final_pass: bool, max_finals: int) -> None:
        self._sequence_id = sequence_id
        self._has_final_pass = has_final_pass
        self._max_finals = max_finals
        self._events: deque[Event] = deque()
        self._finals: deque[OpenFinal] = deque()
        self._terminal: SequenceClosed | SequenceFailed | None = None
        self._is_told = False
        self._utterance = 0
        self._next_start_s = 0.0
        self._n_unread_finals = 0

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
        """Whether so many finals wait that the sender should."""
        return len(self._finals) + self._n_unread_finals >= self._max_finals

    @property
    def is_overrun(self) -> bool:
        """Whether finals pile up although the sender was asked to wait: the reader is gone or far too slow."""
        return len(self._finals) + self._n_unread_finals > 2 * self._max_finals

    def take(self) -> Event | None:
        """The next event for the reader, None if there is none now."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._n_unread_finals -= isinstance(event, UtteranceFinal)
        return event

    def complete_row(self, effect: RowCompleted, output: LiveOutput) -> OpenFinal | None:
        """A live step's output for this sequence, out of its effect.

        Returns:
            The utterance that ended in it, if a final pass should read it. ``resolve`` must follow.
        """
        step = _step_info(effect)
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
        final.is_resolved = True
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
            for final in self._finals:
                final.is_resolved = True
        self._finish(SequenceFailed(sequence_id=self._sequence_id, error=error))

    def _end_utterance(self, effect: RowCompleted, ended: EndedUtterance, step: StepInfo) -> OpenFinal | None:
        """Numbers and tiles it. Without words only a flush is answered: what follows counts as the same utterance."""
        if not ended.words and not effect.row.flush:
            return None
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
        self._next_start_s = end_s
        final = OpenFinal(ended=ended, event=event, is_resolved=not (ended.words and self._has_final_pass))
        self._finals.append(final)
        self._release()
        return None if final.is_resolved else final

    def _append_partial(self, output: LiveOutput, step: StepInfo) -> None:
        if sum(isinstance(event, Partial) for event in self._events) >= MAX_PARTIALS:
            self._events = deque(event for event in self._events if not isinstance(event, Partial))
        self._events.append(
            Partial(
                sequence_id=self._sequence_id,
                utterance=self._utterance,
                start_s=self._next_start_s,
                covered_s=output.encoded_samples / SAMPLE_RATE,
                committed=output.committed,
                draft=output.draft,
                is_speech=output.is_speech,
                step=step,
            )
        )

    def _release(self) -> None:
        """Moves finals whose turn it is to the reader, and the terminal event after the last of them."""
        while self._finals and self._finals[0].is_resolved:
            self._events.append(self._finals.popleft().event)
            self._n_unread_finals += 1
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
