"""When nothing more has been said for a while: UtteranceEnd, from the times of words in interim and final results."""

from server.events import Partial, UtteranceFinal


class LastWordWatch:
    """The last word of the finals of one channel, and the silence after it.

    It takes the events in order, and answers with the end of the last word: once per word, and never before the final
    with that word was told.
    """

    __slots__ = ("_finals", "_first_word_s", "_gap_s", "_heard_until_s", "_last_word_s", "_utterances")

    def __init__(self, gap_ms: int) -> None:
        self._gap_s = gap_ms / 1000
        self._last_word_s: float | None = None
        """End of the last word in a final; None: there is none, or its silence was told."""
        self._heard_until_s = 0.0
        self._finals = 0
        """Utterances whose finals have come."""
        self._utterances = 0
        """Utterances that have ended, as far as interim results say: the one after them is open."""
        self._first_word_s: dict[int, float] = {}
        """Where the words of later utterances begin, by their interim results: at most one per awaited final."""

    def on_partial(self, event: Partial) -> float | None:
        """To be told after the interim result."""
        self._heard_until_s = max(self._heard_until_s, event.covered_s)
        self._utterances = max(self._utterances, event.utterance)
        words = event.committed or event.draft
        if words and event.utterance >= self._finals:
            self._first_word_s[event.utterance] = words[0].start_s
        else:
            self._first_word_s.pop(event.utterance, None)
        return self._due()

    def before_final(self, event: UtteranceFinal) -> float | None:
        """To be told before the final result: a gap between its words and those before, that nothing showed earlier."""
        return self._silent_until(event.words[0].start_s) if event.words else None

    def after_final(self, event: UtteranceFinal) -> float | None:
        """To be told after the final result."""
        self._heard_until_s = max(self._heard_until_s, event.end_s)
        self._finals = event.utterance + 1
        for utterance in [each for each in self._first_word_s if each < self._finals]:
            del self._first_word_s[utterance]
        if event.words:
            self._last_word_s = event.words[-1].end_s
        return self._due()

    def _due(self) -> float | None:
        """Whether the silence is known to have lasted.

        An utterance that has ended may have words that no interim result has shown: its final says so soon.
        """
        if any(utterance not in self._first_word_s for utterance in range(self._finals, self._utterances)):
            return None
        return self._silent_until(min((self._heard_until_s, *self._first_word_s.values())))

    def _silent_until(self, until_s: float) -> float | None:
        if self._last_word_s is None or until_s - self._last_word_s < self._gap_s:
            return None
        told, self._last_word_s = self._last_word_s, None
        return told
