"""A shortlist chooses what float32 over the whole vocabulary chooses."""

import torch

from asr_model.live.token_choice import TokenChoice
from asr_model.moonshine.dimensions import END, D
from asr_model.moonshine.weights import load_weights


@torch.inference_mode()
def test_the_shortlist_changes_no_choice() -> None:
    decoder = load_weights().decoder().eval()
    whole, listed = TokenChoice(decoder, shortlist=False), TokenChoice(decoder, shortlist=True)
    x = torch.randn(500, D, generator=torch.Generator().manual_seed(2)) * 3
    tokens, probabilities = whole.choose(x, None)
    short, near = listed.choose(x, None)
    assert torch.equal(tokens, short)
    assert float((probabilities - near).abs().max()) < 0.05


@torch.inference_mode()
def test_end_can_be_forbidden() -> None:
    decoder = load_weights().decoder().eval()
    x = decoder.embed.weight[END][None].repeat(2, 1) * 50
    no_end = torch.tensor([False, True])
    for shortlist in (False, True):
        tokens, _ = TokenChoice(decoder, shortlist=shortlist).choose(x, no_end)
        assert int(tokens[0]) == END
        assert int(tokens[1]) != END
