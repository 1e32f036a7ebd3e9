"""The final model as the service calls it: utterances in, words with times out.

Rows are independent: neither the company nor the order of a batch changes what is said of one, apart from rounding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch

from asr_model.contract import ModelSpec, Samples, Scheduler
from asr_model.final.decoding import Hypothesis, greedy
from asr_model.final.features import Features, encode, joined_features
from asr_model.final.settings import NAME, FinalSettings
from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE, encoder_frames
from asr_model.moonshine.weights import MoonshineWeights, load_weights
from asr_model.moonshine.word_times import timed_words
from asr_model.narrow import optimizations, optimize
from asr_model.optimize_names import PRECISIONS
from asr_model.transcript import FinalOutput, Word

SHORTEST_SAMPLES: Final = SAMPLE_RATE // 10
"""Audio below it holds no word."""
DIGITAL_SILENCE: Final = 1e-5
"""Greatest sample of audio that holds nothing: below the last bit of 16-bit audio."""
ENCODER_FILL: Final = 0.8
"""Rows are encoded together if the shortest is at least this share of the longest: padding costs as much as speech."""
DECODER_FRAMES: Final = 16_384
"""Padded frames that are decoded together at most: their caches take 27 KB a frame."""


class FinalModel:
    """A OneShotModel."""

    def __init__(self, weights: MoonshineWeights, device: torch.device, kernels: str = "none") -> None:
        """``kernels``: as ``optimize``."""
        dtype = torch.bfloat16 if kernels == "bf16" else torch.float32
        self._encoder = weights.encoder().to(device, dtype)
        self._decoder = weights.decoder().to(device, dtype)
        optimize([self._encoder, self._decoder], "int8" if kernels == "int8" else "none", device)
        self._dtype, self._kernels = dtype, kernels
        self._tokenizer = weights.tokenizer()
        self._device = device

    @property
    def spec(self) -> ModelSpec:
        """The declaration: no state, any batch."""
        return ModelSpec(
            name=NAME,
            scheduler=Scheduler.DYNAMIC,
            precision=PRECISIONS[self._kernels],
            optimizations=optimizations(self._device),
            optimize=self._kernels,
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights and of matrix products, but for those of eight bits.

        Norms, probabilities and attended frames are float32 always.
        """
        return self._dtype

    @torch.inference_mode()
    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        """The words of each utterance.

        Args:
            audio: float32 [N] each, in [-1, 1]. Empty, short, silent or not finite audio has no words.
            pause: called after each layer of the encoder and each pass of the decoder.
        """
        outputs = [FinalOutput(words=()) for _ in audio]
        order = sorted((i for i, row in enumerate(audio) if _may_hold_words(row)), key=lambda i: -len(audio[i]))
        for rows in _groups(order, audio):
            for i, hypothesis in zip(rows, self._hypotheses([audio[i] for i in rows], pause), strict=True):
                outputs[i] = FinalOutput(words=self._words(hypothesis, len(audio[i])))
        return outputs

    def _hypotheses(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[Hypothesis]:
        """What is said in rows in order of falling length."""
        reduced = self._dtype != torch.float32
        with torch.autocast(self._device.type, self._dtype if reduced else None, enabled=reduced):
            return greedy(self._decoder, self._encode(audio, pause), pause)

    def _encode(self, audio: Sequence[Samples], pause: Callable[[], None]) -> Features:
        """Features of rows in order of falling length."""
        parts: list[list[Samples]] = []
        for row in audio:
            if not parts or len(row) < ENCODER_FILL * len(parts[-1][0]):
                parts.append([])
            parts[-1].append(row)
        return joined_features([encode(self._encoder, part, self._device, pause) for part in parts])

    def _words(self, hypothesis: Hypothesis, n_samples: int) -> tuple[Word, ...]:
        """What stands of a hypothesis, in whole words."""
        n = len(hypothesis.tokens)
        if hypothesis.dropped:
            following = (*hypothesis.tokens, hypothesis.dropped[0])
            while n > 0 and not self._tokenizer.opens_word[following[n]]:
                n -= 1
        return timed_words(
            self._tokenizer,
            hypothesis.tokens[:n],
            hypothesis.frames[:n],
            hypothesis.probabilities[:n],
            n_frames=n_samples // FRAME_SAMPLES,
        )


def build(options: Mapping[str, object], device: torch.device) -> FinalModel:
    """The model with its weights on the device.

    Args:
        options: see ``FinalSettings``.
        device: where to compute.

    Raises:
        ValueError: an option is unknown or has no such value, or the device does not take it.
        asr_model.moonshine.weights.WeightsError: the weights are missing or damaged.
    """
    settings = FinalSettings.of(options)
    weights = load_weights(Path(settings.weights) if settings.weights else None)
    return FinalModel(weights, device, settings.kernels)


def _may_hold_words(audio: Samples) -> bool:
    return len(audio) >= SHORTEST_SAMPLES and bool(np.isfinite(audio).all()) and np.abs(audio).max() > DIGITAL_SILENCE


def _groups(order: Sequence[int], audio: Sequence[Samples]) -> Iterator[list[int]]:
    """Rows to decode together: ``order`` in parts whose padded size is bounded."""
    group: list[int] = []
    for i in order:
        if group and (len(group) + 1) * encoder_frames(len(audio[group[0]])) > DECODER_FRAMES:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
