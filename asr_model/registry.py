"""Models by name. A factory is imported when its model is asked for, so that no model pays for another's imports."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

import torch

from asr_model.contract import Model

Factory = Callable[[Mapping[str, object], torch.device], Model]

FACTORIES: Final[Mapping[str, str]] = {
    "moonshine-live": "asr_model.live.model:build",
    "moonshine-base": "asr_model.final.model:build",
    "light-lstm": "asr_model.light.model:build",
    "accumulator": "asr_model.tensor.accumulator:build",
    "history": "asr_model.tensor.history:build",
    "mean": "asr_model.tensor.mean:build",
    "echo": "asr_model.tensor.echo:build",
    "sentiment": "asr_model.sentiment.model:build",
}
"""Model name to the place of its factory ``build(options, device)``."""


def build_model(name: str, options: Mapping[str, object], device: torch.device) -> Model:
    """A loaded copy of the named model.

    Args:
        name: a key of ``FACTORIES``.
        options: the model's own options.
        device: where its weights and tensors live.

    Raises:
        ValueError: no model has that name, or an option is unknown or out of range.
        asr_model.moonshine.weights.WeightsError: its weights are missing or damaged.
    """
    if name not in FACTORIES:
        raise ValueError(f"no model is called {name!r}; there are {', '.join(sorted(FACTORIES))}")
    module, _, attribute = FACTORIES[name].partition(":")
    factory = cast(Factory, getattr(import_module(module), attribute))
    return factory(options, device)
