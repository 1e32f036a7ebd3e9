"""How texts sound, told by one of the further models. Runs on the event loop; never holds up a text for long, and
whatever goes wrong leaves the sentiment out, not the text.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from asr_model.tensor_spec import TensorSpec
from asr_model.transcript import Sentiment
from server.engine.served_model import ModelState, ServedModel
from server.errors import ConfigError, MoorageError, UnknownModel
from server.plan import Tensors
from server.workers.orders import Loaded

LIMIT_S: Final = 2.0
"""A sentiment that takes longer is left out."""
MAX_CHARS: Final = 20_000
"""Of a text that are looked at."""
TEXTS_AT_ONCE: Final = 32
"""Of one recording."""
ALL_LIMIT_S: Final = 10.0
"""Texts of a recording that have not begun by then are left out."""
TEXT: Final = ("TEXT", TensorSpec(datatype="BYTES", shape=(1,)))
SCORE: Final = ("SCORE", TensorSpec(datatype="FP32", shape=(1,)))

logger = logging.getLogger(__name__)


class SentimentReader:
    """Asks a model with input TEXT and output SCORE.

    Args:
        find: The model; raises UnknownModel where there is none.
    """

    def __init__(self, find: Callable[[], ServedModel]) -> None:
        self._find = find
        self._asking: set[asyncio.Task[None]] = set()
        self.outcomes: Counter[str] = Counter()
        """Texts by what came of them: ``told``, ``late``, ``failed`` or the code of an error."""

    @property
    def is_ready(self) -> bool:
        """Whether the model takes texts now; it may be unloaded, or be starting again."""
        try:
            return self._find().state is ModelState.READY
        except UnknownModel:
            return False

    async def read(self, text: str) -> Sentiment | None:
        """The sentiment of a text; None if there is none to be had in time, or no text."""
        if not text:
            return None
        array = np.array([[text[:MAX_CHARS].encode(errors="replace")]], dtype=object)
        try:
            async with asyncio.timeout(LIMIT_S):
                outputs = await self._find().infer(Tensors(arrays={"TEXT": array}))
            score = float(outputs.arrays["SCORE"][0, 0])
        except TimeoutError:
            outcome = "late"
        except MoorageError as error:
            logger.debug("no sentiment: %s", error)
            outcome = error.code
        except Exception:
            logger.exception("no sentiment")
            outcome = "failed"
        else:
            outcome = "told" if math.isfinite(score) else "failed"
        self.outcomes[outcome] += 1
        return Sentiment.of(score) if outcome == "told" else None

    async def read_all(self, texts: Iterable[str]) -> list[Sentiment | None]:
        """Of each text, in order; never many of them at the same time, and a slow model is given up on."""
        places = asyncio.Semaphore(TEXTS_AT_ONCE)
        loop = asyncio.get_running_loop()
        give_up_at_s = loop.time() + ALL_LIMIT_S

        async def read(text: str) -> Sentiment | None:
            async with places:
                if loop.time() < give_up_at_s:
                    return await self.read(text)
            self.outcomes["late"] += 1
            return None

        return await asyncio.gather(*(read(text) for text in texts))

    def ask(self, text: str, on_sentiment: Callable[[Sentiment | None], None]) -> None:
        """Reads a text. ``on_sentiment`` is called once, not within this call, unless ``stop`` comes before."""

        async def tell() -> None:
            on_sentiment(await self.read(text))

        task = asyncio.create_task(tell())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def stop(self) -> None:
        """Gives up what is asked."""
        tasks = list(self._asking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_tells_sentiment(name: str, scheduler: str, declared: Loaded) -> None:
    """Whether a further model can tell the sentiment of texts.

    Raises:
        ConfigError: It cannot.
    """
    if scheduler != "dynamic":
        raise ConfigError(f"final.sentiment: {name} is under the {scheduler} batcher; allowed: one under dynamic")
    for (tensor, spec), given in ((TEXT, declared.inputs), (SCORE, declared.outputs)):
        found = given.get(tensor)
        if found is None or (found.datatype, found.shape) != (spec.datatype, spec.shape):
            raise ConfigError(
                f"final.sentiment: {name} has no {tensor} of {spec.datatype} {list(spec.shape)}; "
                "a model that tells sentiment takes TEXT and answers SCORE"
            )
    if others := [each for each, spec in declared.inputs.items() if each != TEXT[0] and not spec.optional]:
        raise ConfigError(f"final.sentiment: {name} needs {', '.join(others)} beside TEXT")
