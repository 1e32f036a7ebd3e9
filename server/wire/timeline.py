"""One channel's results on its timeline: what a client is told of each event, and where it stands in the audio.

Positions are those of the engine, counted in samples from the start of the sequence. Nothing is summed up here, so that
they are as exact after hours as at the start.
"""

from asr_model.transcript import UtteranceEnd
from server.events import Partial, Queued, SpeechStarted, UtteranceFinal
from server.wire.message_fields import ResultMessage
from server.wire.messages import (
    Identity,
    Span,
    WrittenResult,
    queued_message,
    results_message,
    speech_started_message,
    utterance_end_message,
)
from server.wire.query import SessionOptions
from server.wire.utterance_end import LastWordWatch


class Timeline:
    """What of one channel the client has heard of."""

    __slots__ = ("_channel", "_finals", "_identity", "_next_utterance", "_options", "_until_s", "_watch")

    def __init__(self, options: SessionOptions, identity: Identity, channel: int) -> None:
        self._options = options
        self._identity = identity
        self._channel = (channel, options.sequences)
        self._until_s = 0.0
        """Finals were told up to here; the next one starts here, so that they tile the timeline."""
        self._next_utterance = 0
        self._finals = 0
        self._watch = None if options.utterance_end_ms is None else LastWordWatch(options.utterance_end_ms)

    def queued(self, event: Queued) -> list[ResultMessage]:
        """Messages that tell of the wait for a slot."""
        return [queued_message(self._channel, event.position, event.expected_wait_s)]

    def speech_started(self, event: SpeechStarted) -> list[ResultMessage]:
        """Messages that tell of speech."""
        return [speech_started_message(self._channel, event.at_s)] if self._options.vad_events else []

    def partial(self, event: Partial) -> list[ResultMessage]:
        """Messages that tell of the open utterance, and of the silence since the last word."""
        told: list[ResultMessage] = []
        if self._options.interim_results:
            is_next = event.utterance == self._next_utterance
            start_s = self._until_s if is_next else event.start_s
            told.append(self._interim(event, Span(start_s=start_s, end_s=max(start_s, event.covered_s))))
        silence = self._watch.on_partial(event) if self._watch else None
        return told + self._utterance_end(silence)

    def final(self, event: UtteranceFinal) -> list[ResultMessage]:
        """Messages that tell of an utterance, complete."""
        self._next_utterance = event.utterance + 1
        told = self._utterance_end(self._watch.before_final(event) if self._watch else None)
        if self._is_worth_telling(event):
            span = Span(start_s=self._until_s, end_s=max(self._until_s, event.end_s))
            self._until_s = span.end_s
            self._finals += 1
            told.append(self._final(event, span))
        return told + self._utterance_end(self._watch.after_final(event) if self._watch else None)

    def _is_worth_telling(self, event: UtteranceFinal) -> bool:
        """Empty utterances are told only where the client waits for an answer.

        That is after each Finalize, and at the end if there has been no final result at all.
        """
        if event.words or event.live_words or event.cause is UtteranceEnd.FINALIZE:
            return True
        return event.cause is UtteranceEnd.END and self._finals == 0

    def _interim(self, event: Partial, span: Span) -> ResultMessage:
        committed, draft = (self._options.text.written(words) for words in (event.committed, event.draft))
        result = WrittenResult(
            words=committed + draft,
            live_words=committed + draft,
            committed_words=len(committed),
            card=self._identity.models.live,
            utterance=event.utterance,
            covered_s=event.covered_s,
            step=event.step,
        )
        return results_message(result, span, self._channel, self._identity, self._options.text)

    def _final(self, event: UtteranceFinal, span: Span) -> ResultMessage:
        words = self._options.text.written(event.words)
        result = WrittenResult(
            words=words,
            live_words=self._options.text.written(event.live_words),
            committed_words=len(words),
            card=self._identity.answering_model if event.has_final_pass else self._identity.models.live,
            utterance=event.utterance,
            covered_s=event.end_s,
            step=event.step,
            cause=event.cause,
            is_speech_final=self._is_speech_final(event.cause),
            sentiment=event.sentiment if self._options.sentiment else None,
        )
        return results_message(result, span, self._channel, self._identity, self._options.text)

    def _is_speech_final(self, cause: UtteranceEnd) -> bool:
        """Whether the speaker has paused or is done; a cut by length or stall is in the middle of speech."""
        if cause is UtteranceEnd.ENDPOINT:
            return self._options.endpoint_is_speech_final
        return cause in (UtteranceEnd.FINALIZE, UtteranceEnd.END)

    def _utterance_end(self, last_word_s: float | None) -> list[ResultMessage]:
        return [] if last_word_s is None else [utterance_end_message(self._channel, last_word_s)]
