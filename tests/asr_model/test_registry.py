"""Models by name."""

import subprocess
import sys
from importlib import import_module

import pytest
import torch

from asr_model.contract import Scheduler
from asr_model.registry import FACTORIES, build_model

CPU = torch.device("cpu")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'moonshine'.*moonshine-base, moonshine-live"):
        build_model("moonshine", {}, CPU)


@pytest.mark.parametrize("place", FACTORIES.values())
def test_every_factory_exists(place: str) -> None:
    module, _, name = place.partition(":")
    assert callable(getattr(import_module(module), name))


def test_a_model_is_built_with_its_name_and_scheduler() -> None:
    spec = build_model("moonshine-base", {}, CPU).spec
    assert (spec.name, spec.scheduler, spec.state) == ("moonshine-base", Scheduler.DYNAMIC, {})


def test_the_registry_imports_no_model() -> None:
    program = "import sys, asr_model.registry; print([m for m in sys.modules if m.startswith('asr_model.')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "asr_model.registry" in found
    assert "asr_model.final" not in found
    assert "asr_model.live" not in found
    assert "asr_model.moonshine" not in found
