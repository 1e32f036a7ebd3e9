"""What can be said of the registry's models without loading one: free of torch, so that a configuration is checked in
no time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol, cast

from asr_model import optimize_names


class _Settings(Protocol):
    def of(self, options: Mapping[str, object]) -> object:
        """The settings; raises ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One model."""

    scheduler: str
    """``sequence`` or ``dynamic``, as in its ModelSpec."""
    settings: str | None
    """Place of the class with its options; None: it has none."""
    listens: bool = True
    """Whether it takes audio and answers with words; else it takes tensors."""
    optimizations: tuple[str, ...] = ("none",)
    """Values of ``optimize`` that it takes on some device, as in its ModelSpec."""


DECLARED: Final[Mapping[str, Declared]] = {
    "moonshine-live": Declared(
        scheduler="sequence", settings="asr_model.live.settings:LiveSettings", optimizations=optimize_names.NAMES
    ),
    "moonshine-base": Declared(
        scheduler="dynamic", settings="asr_model.final.settings:FinalSettings", optimizations=optimize_names.NAMES
    ),
    "light-lstm": Declared(scheduler="sequence", settings="asr_model.light.settings:LightSettings"),
    "accumulator": Declared(
        scheduler="sequence", settings="asr_model.tensor.settings:AccumulatorSettings", listens=False
    ),
    "history": Declared(scheduler="sequence", settings="asr_model.tensor.settings:HistorySettings", listens=False),
    "mean": Declared(scheduler="dynamic", settings=None, listens=False),
    "echo": Declared(scheduler="dynamic", settings=None, listens=False),
    "sentiment": Declared(
        scheduler="dynamic", settings="asr_model.sentiment.settings:SentimentSettings", listens=False
    ),
}
"""By the names of ``asr_model.registry``."""


def settings_class(name: str) -> type | None:
    """The class with a model's options; None: it has none."""
    place = DECLARED[name].settings
    if place is None:
        return None
    module, _, attribute = place.partition(":")
    return cast(type, getattr(import_module(module), attribute))


def check_optimize(name: str, optimize: str) -> None:
    """Whether the model takes these kernels on any device.

    Raises:
        ValueError: it does not; the message names what it takes.
    """
    optimize_names.check(optimize, name, DECLARED[name].optimizations)


def check_options(name: str, options: Mapping[str, object]) -> None:
    """Whether the model would take these options. Files that they name are not looked at.

    Raises:
        ValueError: an option is unknown or out of range.
    """
    settings = settings_class(name)
    if settings is not None:
        cast(_Settings, settings).of(options)
    elif options:
        raise ValueError(f"{name} has no option {', '.join(sorted(options))}")
