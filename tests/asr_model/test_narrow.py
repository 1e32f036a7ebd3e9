"""Matrix products in fewer bits: near the real ones, the same in any batch, and the text stays sane."""

import pytest
import torch
from torch import nn

from asr_model.final.model import build as build_final
from asr_model.live.model import LiveModel
from asr_model.narrow import Bf16Linear, Int8Linear, optimizations, optimize
from asr_model.transcript import ROUNDING_MARGIN, Word, joined
from clients.word_error_rate import words
from tests.asr_model.conftest import Utterance, live_model, samples_of
from tests.support.fixtures import fixture
from tests.support.slot_player import SlotPlayer

CPU = torch.device("cpu")
NARROW = [name for name in optimizations(CPU) if name != "none"]


@pytest.mark.parametrize(("kind", "share"), [(Bf16Linear, 0.01), (Int8Linear, 0.02)])
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_results_are_near(kind: type[nn.Module], share: float, bias: bool) -> None:
    torch.manual_seed(1)
    linear, x = nn.Linear(416, 832, bias=bias), torch.randn(2, 7, 416)
    x[0, 3] *= 1e4  # a row's scale is its own
    x[1, 2] = 0
    narrow, wanted = kind(linear)(x), linear(x)
    assert narrow.dtype == torch.float32
    off = (narrow - wanted).abs().amax(-1)
    assert bool((off <= share * wanted.abs().amax(-1)).all())


@torch.inference_mode()
def test_eight_bits_are_the_same_in_any_batch() -> None:
    torch.manual_seed(1)
    linear, x = Int8Linear(nn.Linear(416, 1664)), torch.randn(64, 416)
    whole = linear(x)
    assert all(torch.equal(linear(x[i : i + n]), whole[i : i + n]) for i, n in ((0, 1), (5, 3), (17, 40)))


@torch.inference_mode()
def test_a_row_that_is_not_finite_breaks_alone() -> None:
    linear, x = Int8Linear(nn.Linear(416, 416)), torch.randn(4, 416)
    others = torch.tensor([0, 2, 3])
    whole = linear(x)[others]
    x[1, 7] = torch.nan
    broken = linear(x)
    assert not broken[1].isfinite().any()
    assert torch.equal(broken[others], whole)


def test_a_device_takes_what_it_takes() -> None:
    assert optimizations(torch.device("cuda")) == ("none", "bf16")
    with pytest.raises(ValueError, match="optimize = 'int8': on cuda it may be none, bf16"):
        optimize([nn.Sequential(nn.Linear(2, 2))], "int8", torch.device("cuda"))


@pytest.mark.parametrize("name", ["cuda-graph", "compile", "fast"])
def test_what_no_model_takes_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"moonshine-live takes optimize none, bf16, int8, not '{name}'"):
        live_model(optimize=name)
    with pytest.raises(ValueError, match=f"moonshine-base takes optimize none, bf16, int8, not '{name}'"):
        build_final({"optimize": name}, CPU)


def test_two_formats_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        build_final({"dtype": "bf16", "optimize": "int8"}, CPU)
    assert build_final({"dtype": "bf16"}, CPU).spec.optimize == "bf16"


def live_words(model: LiveModel, utterance: Utterance, company: list[Utterance]) -> tuple[Word, ...]:
    """The utterance's words, read in a slot beside others."""
    player = SlotPlayer(model, 1 + len(company))
    played = player.open(0, utterance.audio)
    for slot, other in enumerate(company, 1):
        player.open(slot, other.audio)
    player.play()
    return tuple(word for ended in played.ended for word in ended.words)


@pytest.fixture(scope="module")
def phrases() -> list[Utterance]:
    """The first is read right by every model."""
    names = ("the_moment_was_intense_8629", "the_little_woman_thought_669", "but_not_patagonia_1088")
    return [Utterance(f.text, samples_of(f)) for f in map(fixture, names)]


@pytest.mark.parametrize("name", ["none", *NARROW])
def test_the_live_text_stays_sane_and_the_same_in_company(name: str, phrases: list[Utterance]) -> None:
    """And no margin moves further than what counts as rounding."""
    model = live_model(optimize=name)
    assert model.spec.optimize == name
    alone, beside = (live_words(model, phrases[0], company) for company in ([], phrases[1:]))
    assert words(joined(alone)) == words(phrases[0].text)
    assert joined(alone) == joined(beside)
    moved = [abs((a.margin or 0) - (b.margin or 0)) for a, b in zip(alone, beside, strict=True)]
    assert max(moved) <= ROUNDING_MARGIN[model.spec.precision]
    assert all(word.margin is not None and word.margin > 0 for word in alone)


@pytest.mark.parametrize("name", NARROW)
def test_the_final_text_stays_sane(name: str, phrases: list[Utterance]) -> None:
    model = build_final({"optimize": name}, CPU)
    assert (model.spec.optimize, model.spec.precision) == (name, {"bf16": "bfloat16", "int8": "int8"}[name])
    (output,) = model.run([phrases[0].audio], lambda: None)
    assert words(joined(output.words)) == words(phrases[0].text)
