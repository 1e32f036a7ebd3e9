"""What is said of models that are not loaded is what they say once they are."""

import subprocess
import sys

import pytest
import torch

from asr_model.declared import DECLARED, check_options
from asr_model.registry import FACTORIES, build_model

CPU = torch.device("cpu")


def test_the_models_are_those_of_the_registry() -> None:
    assert set(DECLARED) == set(FACTORIES)


@pytest.mark.parametrize("name", DECLARED)
def test_the_scheduler_is_the_models_own(name: str) -> None:
    spec = build_model(name, {}, CPU).spec
    assert spec.scheduler is not None
    assert spec.scheduler.value == DECLARED[name].scheduler
    assert (spec.name, spec.listens) == (name, DECLARED[name].listens)
    assert spec.optimizations == DECLARED[name].optimizations


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("moonshine-live", {"nonsense": 1}),
        ("moonshine-live", {"agree": 99}),
        ("moonshine-live", {"endpoints": 1}),
        ("moonshine-base", {"nonsense": 1}),
        ("moonshine-base", {"dtype": "int4"}),
        ("moonshine-base", {"weights": 3}),
        ("light-lstm", {"nonsense": 1}),
        ("accumulator", {"nonsense": 1}),
        ("accumulator", {"corrid": 1}),
        ("history", {"nonsense": 1}),
        ("history", {"max_values": 0}),
        ("history", {"max_values": True}),
        ("history", {"max_values": 100, "page_values": 64}),
        ("history", {"page_values": 1 << 21}),
        ("history", {"share": 0.0}),
        ("history", {"share": True}),
        ("history", {"share": "half"}),
        ("mean", {"nonsense": 1}),
        ("echo", {"nonsense": 1}),
        ("sentiment", {"nonsense": 1}),
        ("sentiment", {"weights": 3}),
    ],
)
def test_what_is_refused_here_is_refused_by_the_model_in_the_same_words(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError) as early:
        check_options(name, options)
    with pytest.raises(ValueError) as late:
        build_model(name, options, CPU)
    assert str(early.value) == str(late.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("moonshine-live", {"agree": 3, "weights": "/nowhere"}),
        ("moonshine-base", {"dtype": "bf16", "weights": "/nowhere"}),
        ("light-lstm", {}),
        ("accumulator", {"corrid": True}),
        ("history", {"max_values": 96, "page_values": 32, "share": 1}),
    ],
)
def test_good_options_pass_without_their_files(name: str, options: dict[str, object]) -> None:
    check_options(name, options)


def test_checking_needs_no_torch() -> None:
    program = (
        "import sys; from asr_model.declared import DECLARED, check_options\n"
        "for name in DECLARED: check_options(name, {})\n"
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
