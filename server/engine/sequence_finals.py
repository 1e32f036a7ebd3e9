"""The final passes of one sequence: the audio that they may need, those that are pending, and the one begun early.

What is read of an utterance depends on its samples alone: a pass that was begun early is of use if the utterance ends
with just the audio that it reads, and is dropped else. So the text is the same, early or not (I6, I7).
"""

from collections.abc import Callable

from asr_model.transcript import AudioRange, EndedUtterance, FinalOutput, LiveOutput
from server.engine.final_pass import EarlyText, FinalPass
from server.engine.utterance_audio import UtteranceAudio
from server.ids import RequestId
from server.plan import Samples


class SequenceFinals:
    """Made by the engine for each sequence where there is a final model. Runs on the event loop.

    Args:
        final_pass: Of the engine.
        max_samples: Audio kept at most; a longer utterance keeps its live text.
    """

    def __init__(self, final_pass: FinalPass, max_samples: int) -> None:
        self._final_pass = final_pass
        self._audio = UtteranceAudio(max_samples)
        self._pending: set[RequestId] = set()
        self._early: EarlyText | None = None

    @property
    def n_samples(self) -> int:
        """Samples kept."""
        return self._audio.n_samples

    def append(self, samples: Samples) -> None:
        """Keeps the sequence's next samples: float32 [N]."""
        self._audio.append(samples)

    def follow(self, output: LiveOutput) -> None:
        """After a live output, and after ``ask`` if an utterance ended in it: reads early what will probably end, drops
        what will not, and forgets audio that nobody needs.
        """
        if self._early is not None and self._early.audio != output.likely:
            self._drop_early()
        if self._early is None and output.likely is not None:
            samples = self._cut(output.likely)
            if samples is not None:
                self._early = self._final_pass.offer_early(samples, output.likely)
        self._audio.trim(output.keep_from_sample)

    def ask(self, ended: EndedUtterance, on_text: Callable[[FinalOutput | None], None]) -> None:
        """Asks for the final text of an utterance.

        Args:
            ended: The utterance.
            on_text: Called exactly once unless all is cancelled, perhaps within this call; None: there will be no text.
        """
        early, self._early = self._early, None

        def tell(request_id: RequestId | None, output: FinalOutput | None) -> None:
            if request_id is not None:
                self._pending.discard(request_id)
            on_text(output)

        if early is not None and early.audio == ended.audio and not early.is_void:
            request_id = self._final_pass.adopt(early, tell)
        else:
            if early is not None:
                self._final_pass.drop(early)
            request_id = self._final_pass.offer(self._cut(ended.audio), tell)
        if request_id is not None:
            self._pending.add(request_id)

    def cancel(self) -> None:
        """The sequence is over: nothing more is wanted."""
        for request_id in self._pending:
            self._final_pass.cancel(request_id)
        self._pending.clear()
        self._drop_early()

    def _drop_early(self) -> None:
        if self._early is not None:
            self._final_pass.drop(self._early)
            self._early = None

    def _cut(self, audio: AudioRange) -> Samples | None:
        return self._audio.cut(audio.first_sample, audio.end_sample)
