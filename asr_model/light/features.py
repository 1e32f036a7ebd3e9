"""Log-mel features of 10 ms frames, the same for a whole recording as for its ticks: no frame sees another."""

from typing import Final

import torch
from torch import Tensor

from asr_model.moonshine.dimensions import SAMPLE_RATE

HOP_SAMPLES: Final = 160
WINDOW_SAMPLES: Final = 400
"""Frame f is made of the samples from ``160 f`` to ``160 f + 400``."""
N_MELS: Final = 80
FFT_SIZE: Final = 512
FLOOR: Final = 1e-6
"""Power below which silence is silence; keeps the logarithm finite."""
CENTRE, SPREAD = -4.0, 4.0
"""About the mean and twice the deviation of the log-mel of speech: fixed, so that a frame needs no other one."""


class LogMel:
    """The front end.

    Args:
        device: where to compute.
    """

    def __init__(self, device: torch.device) -> None:
        self._window = torch.hann_window(WINDOW_SAMPLES, periodic=False, device=device)
        self._filters = mel_filters().to(device)

    def __call__(self, audio: Tensor) -> Tensor:
        """Audio float32 [B, N] to float32 [B, F, 80] with F = (N - 400) // 160 + 1 frames."""
        frames = audio.unfold(1, WINDOW_SAMPLES, HOP_SAMPLES) * self._window
        power = torch.fft.rfft(frames, FFT_SIZE).abs().square()
        features: Tensor = ((power @ self._filters + FLOOR).log() - CENTRE) / SPREAD
        return features


def mel_filters() -> Tensor:
    """Triangles even on the mel scale from 20 Hz to 8 kHz: float32 [257, 80]."""
    low, high = _mel(torch.tensor([20.0, SAMPLE_RATE / 2])).tolist()
    corners = _hertz(torch.linspace(low, high, N_MELS + 2))
    bins = torch.linspace(0.0, SAMPLE_RATE / 2, FFT_SIZE // 2 + 1)[:, None]
    rising = (bins - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - bins) / (corners[2:] - corners[1:-1])
    return torch.minimum(rising, falling).clamp(min=0.0)


def _mel(hertz: Tensor) -> Tensor:
    return 1127.0 * (1.0 + hertz / 700.0).log()


def _hertz(mel: Tensor) -> Tensor:
    return 700.0 * ((mel / 1127.0).exp() - 1.0)
