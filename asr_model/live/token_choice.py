"""The decoder's choice among 32,768 tokens, the dearest matrix of a pass: 54 MB in float32 for a position or two.

Where the CPU multiplies bfloat16 itself, scores in bfloat16 pick a shortlist and float32 decides among it. The choice
is that of float32 as long as the best token is on the shortlist, which eight places hold by far: bfloat16 is off by
some hundredths, the scores of the eight best tokens spread over several units.
"""

import torch
from torch import Tensor

from asr_model.moonshine.dimensions import END
from asr_model.moonshine.layers import Decoder
from asr_model.moonshine.tokenizer import SPACE, Tokenizer

SHORTLIST = 8


class TokenChoice:
    """Picks tokens from the last layer's output."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer, *, shortlist: bool | None = None) -> None:
        """``shortlist``: whether to use one; None: where it is quicker."""
        self._decoder = decoder
        goes_on = [_goes_on(piece) for piece in tokenizer.pieces]
        self._continues_word = torch.tensor(goes_on, device=decoder.embed.weight.device)
        weight = decoder.embed.weight
        wanted = _multiplies_bfloat16(weight.device) if shortlist is None else shortlist
        self._narrow = weight.detach().bfloat16() if wanted else None

    def choose(
        self, x: Tensor, no_end: Tensor | None, no_letters: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best token after each position, its probability, and its margin.

        Args:
            x: float32 [P, D], the last layer's output.
            no_end: bool [P]: positions that may not choose END.
            no_letters: bool [P]: positions that may not go on with the word before them.

        Returns:
            int64 [P], float32 [P] (within some hundredths where a shortlist is used), and float32 [P]: by how much its
            logit exceeds that of the second best of the tokens that may be chosen.
        """
        narrow = self._narrow
        if narrow is None:
            scores = self._forbid(self._decoder.logits(x), no_end, no_letters)
            (best, second), tokens = _two_best(scores)
            return tokens, (best - scores.logsumexp(-1)).exp(), best - second
        normed = self._decoder.ln(x)
        scores = self._forbid((normed.bfloat16() @ narrow.T).float(), no_end, no_letters)
        listed = scores.topk(SHORTLIST, -1).indices
        exact = (self._decoder.embed(listed) @ normed[..., None])[..., 0]
        exact = exact.masked_fill(scores.gather(-1, listed).isneginf(), -torch.inf)
        (best, second), place = _two_best(exact)
        total = scores.scatter_(-1, listed, exact).logsumexp(-1)
        return listed.gather(-1, place[:, None])[:, 0], (best - total).exp(), best - second

    def _forbid(self, scores: Tensor, no_end: Tensor | None, no_letters: Tensor | None) -> Tensor:
        if no_end is not None:
            scores[:, END].masked_fill_(no_end, -torch.inf)
        if no_letters is not None:
            at = no_letters.nonzero()[:, 0]
            scores[at] = scores[at].masked_fill(self._continues_word, -torch.inf)
        return scores


def _two_best(scores: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The greatest and the second greatest of [P, N], each [P], and where the greatest is, int64 [P]."""
    values, places = scores.topk(2, -1)
    return (values[:, 0], values[:, 1]), places[:, 0]


def _goes_on(piece: bytes) -> bool:
    """Whether a piece adds letters or digits to the word before it."""
    text = piece.decode("utf8", "replace")
    return bool(text) and not text.startswith(SPACE) and any(c.isalnum() or c == "\ufffd" for c in text)


def _multiplies_bfloat16(device: torch.device) -> bool:
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and supported is not None and bool(supported())
