"""A shortlist chooses what float32 over the whole vocabulary chooses."""

import torch

from asr_model.live.token_choice import TokenChoice
from asr_model.moonshine.dimensions import END, D
from asr_model.moonshine.weights import load_weights


@torch.inference_mode()
def test_the_shortlist_changes_no_choice() -> None:
    weights = load_weights()
    decoder, tokenizer = weights.decoder().eval(), weights.tokenizer()
    whole, listed = (TokenChoice(decoder, tokenizer, shortlist=shortlist) for shortlist in (False, True))
    x = torch.randn(500, D, generator=torch.Generator().manual_seed(2)) * 3
    tokens, probabilities, margins = whole.choose(x, None)
    short, near, short_margins = listed.choose(x, None)
    assert torch.equal(tokens, short)
    assert float((probabilities - near).abs().max()) < 0.05
    ranked = decoder.logits(x).sort(-1, descending=True).values
    assert torch.equal(margins, ranked[:, 0] - ranked[:, 1])
    assert float((margins - short_margins).abs().max()) < 1e-3


@torch.inference_mode()
def test_a_margin_is_over_what_else_may_be_chosen() -> None:
    """Not over a token that is forbidden, however likely it is."""
    weights = load_weights()
    decoder, tokenizer = weights.decoder().eval(), weights.tokenizer()
    x = (decoder.embed.weight[END] * 50)[None].repeat(2, 1)
    for shortlist in (False, True):
        choice = TokenChoice(decoder, tokenizer, shortlist=shortlist)
        _, _, margins = choice.choose(x, torch.tensor([False, True]))
        ranked = decoder.logits(x[:1]).sort(-1, descending=True).values[0]
        wanted = torch.stack((ranked[0] - ranked[1], ranked[1] - ranked[2]))
        assert float((margins - wanted).abs().max()) < 1e-3 * float(ranked[0].abs())


@torch.inference_mode()
def test_end_can_be_forbidden() -> None:
    weights = load_weights()
    decoder, tokenizer = weights.decoder().eval(), weights.tokenizer()
    x = decoder.embed.weight[END][None].repeat(2, 1) * 50
    no_end = torch.tensor([False, True])
    for shortlist in (False, True):
        tokens, _, _ = TokenChoice(decoder, tokenizer, shortlist=shortlist).choose(x, no_end)
        assert int(tokens[0]) == END
        assert int(tokens[1]) != END


@torch.inference_mode()
def test_a_word_that_stands_is_not_gone_on_with() -> None:
    weights = load_weights()
    decoder, tokenizer = weights.decoder().eval(), weights.tokenizer()
    x = torch.randn(300, D, generator=torch.Generator().manual_seed(3)) * 3
    no_end, no_letters = torch.zeros(300, dtype=torch.bool), torch.ones(300, dtype=torch.bool)
    for shortlist in (False, True):
        choice = TokenChoice(decoder, tokenizer, shortlist=shortlist)
        free = [tokenizer.pieces[t].decode("utf8", "replace") for t in choice.choose(x, None)[0].tolist()]
        bound = [
            tokenizer.pieces[t].decode("utf8", "replace") for t in choice.choose(x, no_end, no_letters)[0].tolist()
        ]
        assert any(text[:1].isalnum() for text in free)
        assert not any(text[:1].isalnum() for text in bound)
