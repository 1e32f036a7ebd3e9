"""Reading a growing utterance: verify the draft, extend it, commit what two ticks agree on. All rows together.

Every tick:
  1. one pass over the last committed token and the draft, against all frames so far; the draft is kept as far as it
     equals the decoder's own choice, which has then been chosen once more;
  2. at most ``extend`` one-token passes continue it;
  3. a token read from more than ``back_frames`` before the furthest frame so far ends the hypothesis: the decoder has
     nothing new to say and starts to repeat itself;
  4. tokens chosen ``agree`` times and read more than ``edge_frames`` before the newest frame are committed up to a word
     boundary, ``hold_words`` behind the hypothesis' end.
A flush reads on to the end token instead, and everything counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live import utterance_memory
from asr_model.live.cached_decoder import Bans, CachedDecoder, Choice, Packed
from asr_model.live.settings import PASSAGES, SPARE_TOKENS, TOKENS_PER_FRAME, UNREAD_FRAMES, LiveSettings
from asr_model.live.slot_rows import SlotRows
from asr_model.moonshine.dimensions import END
from asr_model.moonshine.layers import Decoder
from asr_model.moonshine.tokenizer import Tokenizer

CROWD_TOKENS, CROWD_FRAMES = 8, 8
"""So many tokens in a row that lead so few frames (0.2 s) further into the audio are a loop: nobody speaks so fast."""

REREADS = 4
"""How often at most what a reading to the end left out is read afresh."""


@dataclass(slots=True)
class Hypothesis:
    """The tokens beyond the committed ones, per row; entries from ``size`` on mean nothing."""

    tokens: Tensor
    """int64 [B, C]."""
    votes: Tensor
    """int64 [B, C]: ticks that chose the token in a row."""
    frames: Tensor
    """int64 [B, C]: memory positions the tokens were read from."""
    furthest: Tensor
    """int64 [B, C]: the furthest of them up to each token."""
    centres: Tensor
    """float32 [B, C]: memory positions of the tokens, for their times."""
    probabilities: Tensor
    """float32 [B, C]."""
    margins: Tensor
    """float32 [B, C]: see ``Choice``."""
    size: Tensor
    """int64 [B]."""
    heard: Tensor
    """int64 [B]: the furthest memory position that a token was read from."""
    gave_up: Tensor
    """bool [B]: ended by the end token, by rule 3 or as a loop, not by the number of passes."""
    is_complete: Tensor
    """bool [B]: ended by the end token."""

    def pick(self, rows: Tensor) -> "Hypothesis":
        """The hypotheses of int64 [A] rows."""
        return Hypothesis(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(slots=True)
class Work:
    """What reading cost."""

    passes: int = 0
    row_passes: int = 0
    positions: int = 0

    def add(self, other: "Work") -> None:
        """Count another reading's work too."""
        self.passes += other.passes
        self.row_passes += other.row_passes
        self.positions += other.positions


class Reader:
    """The rules above over the slots' decoder state."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer, settings: LiveSettings) -> None:
        device = decoder.embed.weight.device
        self._decoder, self._settings = CachedDecoder(decoder, tokenizer), settings
        self.opens_word = torch.tensor(tokenizer.opens_word, device=device)
        """bool [V]: tokens that begin a word."""

    def read(self, rows: SlotRows, is_flush: Tensor, no_end: Tensor, state: State) -> tuple[Hypothesis, Work]:
        """Steps 1 to 3. bool [B] ``is_flush``: read to the end; ``no_end``: the verifying pass may not choose it."""
        work = Work()
        count = state["token_count"][rows.slots]
        hypothesis, choice = self._verify(rows, no_end, state, work)
        limit = token_limit_of(state["memory_size"][rows.slots]) - count
        space = self._settings.token_capacity - PASSAGES - self._settings.extend - 2 - count
        room = torch.where(is_flush, limit, space.clamp(0, self._settings.draft_tokens))
        passes = torch.where(is_flush, limit.clamp(min=0), self._settings.extend)
        self._extend(rows, hypothesis, choice, (room, passes), state, work)
        return hypothesis, work

    def read_rest(
        self, rows: SlotRows, h: Hypothesis, spoken_until: Tensor, state: State
    ) -> Iterator[tuple[Tensor, Hypothesis, Work]]:
        """What readings to the end left out: a decoder may end, or turn back, long before the speech does.

        Args:
            rows: the slots; they start afresh behind what was read.
            h: their readings to the end.
            spoken_until: int64 [B]: memory position of the end of the speech.
            state: of the slots.

        Yields:
            int64 [A] indices of rows, what was read behind what they had said so far, and what that cost.
        """
        index = torch.arange(len(rows), device=rows.slots.device)
        for _ in range(REREADS):
            is_behind = (h.heard > 0) & (spoken_until[index] - h.heard > UNREAD_FRAMES)
            index, heard = index[is_behind], h.heard[is_behind]
            if not len(index):
                return
            slots = rows.slots[index]
            state["draft_size"][slots] = 0
            utterance_memory.begin_passage(slots, heard, state)
            to_end = torch.ones_like(is_behind[is_behind])
            h, work = self.read(rows.pick(index), to_end, ~to_end, state)
            yield index, h, work

    def _verify(self, rows: SlotRows, no_end: Tensor, state: State, work: Work) -> tuple[Hypothesis, Choice]:
        slots, back = rows.slots, self._settings.back_frames
        count, size, start = (state[name][slots] for name in ("token_count", "draft_size", "passage_token"))
        draft = state["draft"][slots]
        last = state["tokens"][slots, count - 1]
        place = torch.arange(draft.shape[1] + 1, device=slots.device)
        row, offset = (place <= size[:, None]).nonzero().unbind(1)
        given = torch.cat((last[:, None], draft), 1)[row, offset]
        longest = int(size.max()) + 1
        packed = Packed(given, row, offset, (count - start)[row] - 1 + offset, longest)
        stands = (count - start > 1) & self._settings.guards  # a committed word keeps its letters
        choice = self._run(rows, packed, state, work, Bans(no_end, stands) if self._settings.guards else None)

        def padded(x: Tensor) -> Tensor:
            return x.new_zeros(len(slots), longest).index_put_((row, offset), x)

        chosen, frames = padded(choice.tokens), padded(choice.frames)
        before = torch.cat((state["heard"][slots, None], frames[:, :-1]), 1).cummax(1).values
        match = (chosen[:, :-1] == draft[:, : longest - 1]) & (place[: longest - 1] < size[:, None])
        match &= frames[:, :-1] >= before[:, :-1] - back
        kept = match.long().cumprod(1).sum(1)
        hypothesis = self._hypothesis(rows, kept, before, state)
        n = longest - 1
        hypothesis.frames[:, :n] = frames[:, :n]
        hypothesis.furthest[:, :n] = before[:, 1:]
        evidence = [padded(x) for x in (choice.centres, choice.probabilities, choice.margins)]
        for kept_of, found in zip(
            (hypothesis.centres, hypothesis.probabilities, hypothesis.margins), evidence, strict=True
        ):
            kept_of[:, :n] = found[:, :n]
        at = kept[:, None]
        following = (x.gather(1, at)[:, 0] for x in (chosen, frames, *evidence))
        return hypothesis, Choice(*following)

    def _hypothesis(self, rows: SlotRows, kept: Tensor, before: Tensor, state: State) -> Hypothesis:
        slots, width = rows.slots, self._settings.draft_tokens
        room = torch.zeros(len(slots), self._settings.token_capacity, dtype=torch.long, device=slots.device)
        tokens, votes = room.clone(), room.clone()
        tokens[:, :width] = state["draft"][slots]
        votes[:, :width] = state["draft_votes"][slots] + 1
        heard = before.gather(1, kept[:, None])[:, 0]
        never = torch.zeros_like(kept, dtype=torch.bool)
        return Hypothesis(
            tokens=tokens,
            votes=votes,
            frames=room.clone(),
            furthest=room.clone(),
            centres=room.float(),
            probabilities=room.float(),
            margins=room.float(),
            size=kept,
            heard=heard,
            gave_up=never,
            is_complete=never.clone(),
        )

    def _extend(
        self, rows: SlotRows, h: Hypothesis, choice: Choice, bounds: tuple[Tensor, Tensor], state: State, work: Work
    ) -> None:
        """Append choices while they go on. ``bounds``: most tokens of a hypothesis and most passes, int64 [B]."""
        room, passes = bounds
        token, frame = choice.tokens, choice.frames
        alive = torch.arange(len(rows), device=rows.slots.device)
        count = (state["token_count"] - state["passage_token"])[rows.slots]
        added = 0
        while True:
            goes_on = (token != END) & (frame >= h.heard[alive] - self._settings.back_frames)
            loops = goes_on & self._loops(h, alive, frame)
            h.size[alive[loops]] -= CROWD_TOKENS - 1
            goes_on &= ~loops
            h.gave_up[alive], h.is_complete[alive] = ~goes_on, token == END
            goes_on &= h.size[alive] < room[alive]
            alive, token, frame = alive[goes_on], token[goes_on], frame[goes_on]
            at = h.size[alive]
            h.tokens[alive, at], h.votes[alive, at], h.frames[alive, at] = token, torch.ones_like(token), frame
            h.centres[alive, at], h.probabilities[alive, at] = choice.centres[goes_on], choice.probabilities[goes_on]
            h.margins[alive, at] = choice.margins[goes_on]
            h.heard[alive] = h.furthest[alive, at] = torch.maximum(h.heard[alive], frame)
            h.size[alive] += 1
            more = passes[alive] > added
            alive, token = alive[more], token[more]
            if not len(alive):
                return
            added += 1
            offset = torch.zeros_like(alive)
            position = (count + h.size)[alive] - 1
            packed = Packed(token, torch.arange(len(alive), device=alive.device), offset, position, 1)
            choice = self._run(rows.pick(alive), packed, state, work)
            token, frame = choice.tokens, choice.frames

    def _loops(self, h: Hypothesis, alive: Tensor, frame: Tensor) -> Tensor:
        """bool [A]: the token would be one of too many that lead no further into the audio."""
        size = h.size[alive]
        earlier = h.furthest[alive].gather(1, (size - CROWD_TOKENS).clamp(min=0)[:, None])[:, 0]
        stands = torch.maximum(h.heard[alive], frame) - earlier < CROWD_FRAMES
        return (size >= CROWD_TOKENS) & stands & self._settings.guards

    def _run(self, rows: SlotRows, packed: Packed, state: State, work: Work, bans: Bans | None = None) -> Choice:
        work.passes += 1
        work.row_passes += len(rows)
        work.positions += len(packed.tokens)
        return self._decoder.run(rows, packed, state, bans)

    def commit(self, slots: Tensor, h: Hypothesis, state: State) -> None:
        """Step 4 for int64 [B] slots: move the agreed head of the hypothesis to the tokens, the rest to the draft."""
        s = self._settings
        width = s.draft_tokens
        place = torch.arange(width + 1, device=slots.device)
        tokens, frames = h.tokens[:, :width], h.frames[:, :width]
        valid = place[:-1] < h.size[:, None]
        newest = state["memory_size"][slots, None] - s.edge_frames
        sure = ((h.votes[:, :width] >= s.agree) & (frames < newest) & valid).long().cumprod(1).sum(1)
        opens = self.opens_word[tokens] & valid
        later_openers = opens.flip(1).cumsum(1).flip(1)  # openers from here to the end
        held = (opens & (later_openers == s.hold_words)).long()
        limit = (held * place[:-1]).sum(1)  # 0 where the hypothesis has fewer words
        bound = torch.minimum(sure, limit)
        boundary = opens & (place[:-1] <= bound[:, None])
        n = (boundary * place[:-1]).amax(1)
        self._store(slots, h, n, state)

    def _store(self, slots: Tensor, h: Hypothesis, n: Tensor, state: State) -> None:
        """Commit the first ``n`` int64 [B] tokens of the hypothesis; what follows becomes the draft."""
        width = self._settings.draft_tokens
        place = torch.arange(width, device=slots.device)[None]
        count = state["token_count"][slots]
        row, offset = (place < n[:, None]).nonzero().unbind(1)
        at = slots[row], count[row] + offset
        source = (n[:, None] + place).clamp(max=h.tokens.shape[1] - 1)
        pairs = (
            ("tokens", "draft", h.tokens),
            ("token_frames", "draft_frames", h.frames),
            ("token_centres", "draft_centres", h.centres),
            ("token_probabilities", "draft_probabilities", h.probabilities),
            ("token_margins", "draft_margins", h.margins),
        )
        for committed, draft, values in pairs:
            state[committed].index_put_(at, values[row, offset])
            state[draft][slots] = values.gather(1, source)
        state["draft_votes"][slots] = h.votes.gather(1, source)
        furthest = h.frames[:, :width].masked_fill(place >= n[:, None], 0).amax(1)
        state["heard"][slots] = torch.maximum(state["heard"][slots], furthest)
        state["token_count"][slots] = count + n
        state["draft_size"][slots] = h.size - n


def token_limit_of(frames: Tensor) -> Tensor:
    """``settings.token_limit`` of int64 [B] frames."""
    return (frames.double() * TOKENS_PER_FRAME).long() + SPARE_TOKENS
