"""The second pass: utterances that ended go through the dynamic batcher to the final model, and their texts back.

Runs on the event loop; a text that cannot be had is told as None, and the live text serves. Never fails a sequence.
Where there is nothing else to do, an utterance that will probably end is read early; its text waits until it has.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from asr_model.transcript import AudioRange, FinalOutput
from server.effects import RequestCompleted, RequestEffect, RequestFailed
from server.engine.request_driver import RequestDriver
from server.errors import MoorageError, RequestTimeout
from server.ids import RequestId
from server.plan import Request, Samples

OnText = Callable[[RequestId | None, FinalOutput | None], None]
"""Takes the id that ``offer`` gave (None if it gave none) and the text (None if there will be none)."""

UTTERANCE_LEVEL: Final = 1
"""Of utterances of live streams in the final model's queue: somebody waits for each."""


@dataclass(slots=True, kw_only=True, eq=False)
class EarlyText:
    """An utterance that is read before it has ended."""

    request_id: RequestId
    driver: RequestDriver
    """The copy of the model that reads it."""
    audio: AudioRange
    on_text: OnText | None = None
    """Once the utterance has ended as was expected."""
    output: FinalOutput | None = None
    """Once it is read."""
    is_read: bool = False
    is_void: bool = False
    """It could not be read."""


class FinalPass:
    """The utterances of all sequences on their way through the final model."""

    def __init__(self) -> None:
        self._driver: RequestDriver | None = None
        self._ids = count(1)
        self._waiting: dict[RequestId, RequestDriver] = {}
        self._replaced: Counter[str] = Counter()
        self._early_outcomes: Counter[str] = Counter()

    @property
    def n_waiting(self) -> int:
        """Utterances whose text is pending."""
        return len(self._waiting)

    @property
    def replaced(self) -> dict[str, int]:
        """Utterances without a final text, by reason."""
        return dict(self._replaced)

    @property
    def early_outcomes(self) -> dict[str, int]:
        """Utterances offered before they had ended: ``used`` as their final, or ``wasted``."""
        return dict(self._early_outcomes)

    def use(self, driver: RequestDriver | None) -> None:
        """Another copy of the model reads from now on, or none; what the one before has, it ends."""
        self._driver = driver

    def next_id(self) -> RequestId:
        """For requests beside those of utterances, to the same model."""
        return RequestId(next(self._ids))

    def offer(self, samples: Samples | None, on_text: OnText) -> RequestId | None:
        """Asks for an utterance's final text.

        Args:
            samples: float32 [N], None if the utterance's audio could not be kept.
            on_text: Called exactly once on the loop unless cancelled, perhaps within this call.

        Returns:
            The request's id for ``cancel``; None if the call came already.
        """
        driver = self._driver
        if samples is None or driver is None or not driver.n_ready:
            reason = "no_audio" if samples is None else "unloaded" if driver is None else "failed"
            self._replace(on_text, None, reason)
            return None
        request_id = self.next_id()
        try:
            request = Request(request_id=request_id, payload=samples, priority=UTTERANCE_LEVEL)
            driver.offer(request, lambda effect: self._answer(on_text, effect))
        except MoorageError as error:
            self._replace(on_text, None, error.code)
            return None
        self._waiting[request_id] = driver
        return request_id

    def offer_early(self, samples: Samples, audio: AudioRange) -> EarlyText | None:
        """Reads an utterance that has not ended; None if there are better things to do."""
        driver = self._driver
        if driver is None or not driver.takes_early(samples):
            return None
        early = EarlyText(request_id=self.next_id(), driver=driver, audio=audio)
        request = Request(request_id=early.request_id, payload=samples, is_early=True, priority=UTTERANCE_LEVEL)
        driver.offer(request, lambda effect: self._answer_early(early, effect))
        return early

    def adopt(self, early: EarlyText, on_text: OnText) -> RequestId | None:
        """The utterance ended as was expected: its text is told as that of ``offer``, which this call replaces.

        ``early`` must not be void.
        """
        self._early_outcomes["used"] += 1
        if early.output is not None:
            self._tell(on_text, early.request_id, early.output)
            return None
        early.on_text = on_text
        self._waiting[early.request_id] = early.driver
        early.driver.confirm(early.request_id)
        return early.request_id

    def drop(self, early: EarlyText) -> None:
        """The utterance did not end there."""
        self._early_outcomes["wasted"] += 1
        if not early.is_read:
            early.driver.cancel(early.request_id)

    def cancel(self, request_id: RequestId) -> None:
        """The caller left: its ``on_text`` will not be called."""
        driver = self._waiting.pop(request_id, None)
        if driver is not None:
            driver.cancel(request_id)

    def _answer(self, on_text: OnText, effect: RequestEffect) -> None:
        self._waiting.pop(effect.request_id, None)
        self._tell(on_text, effect.request_id, _output(effect), _reason(effect))

    def _answer_early(self, early: EarlyText, effect: RequestEffect) -> None:
        early.output, early.is_read = _output(effect), True
        early.is_void = early.output is None
        if early.on_text is not None:
            self._waiting.pop(effect.request_id, None)
            self._tell(early.on_text, effect.request_id, early.output, _reason(effect))

    def _tell(self, on_text: OnText, request_id: RequestId, output: FinalOutput | None, reason: str = "") -> None:
        if output is None:
            self._replace(on_text, request_id, reason)
        elif not output.words:  # the live model heard words in it, or nobody had asked
            self._replace(on_text, request_id, "empty")
        else:
            on_text(request_id, output)

    def _replace(self, on_text: OnText, request_id: RequestId | None, reason: str) -> None:
        self._replaced[reason] += 1
        on_text(request_id, None)


def _output(effect: RequestEffect) -> FinalOutput | None:
    output = effect.output if isinstance(effect, RequestCompleted) else None
    return output if isinstance(output, FinalOutput) else None


def _reason(effect: RequestEffect) -> str:
    """Why there is no output."""
    is_late = isinstance(effect, RequestFailed) and isinstance(effect.error, RequestTimeout)
    return RequestTimeout.code if is_late else "failed"
