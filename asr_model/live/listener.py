"""The first half of a step: audio through the encoder, all ticks in one go; then, tick by tick, speech found in it, and
all of it appended to the memories."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from asr_model.contract import Samples, SlotRange, State, StepRow
from asr_model.live import sound, utterance_memory
from asr_model.live.network import LiveNetwork
from asr_model.live.settings import TICK_FRAMES, LiveSettings, silence_frames
from asr_model.live.slot_rows import SlotRows
from asr_model.live.slot_state import READING_STATE
from asr_model.live.stem import FIRST_TICK_SAMPLES, LOOKAHEAD_SAMPLES, TICK_SAMPLES, Ticks
from asr_model.live.streaming_encoder import StreamingEncoder, advance
from asr_model.live.transcription import Tokens
from asr_model.live.utterance_bounds import Activity, Heard, observe
from asr_model.live.utterance_memory import Sounds
from asr_model.moonshine.layers import Decoder
from asr_model.transcript import EndedUtterance, UtteranceEnd


@dataclass(slots=True)
class Step:
    """One tick, or flush, of the rows that have it, in ascending order of slots."""

    row: list[int]
    """[B]: which rows of the step they are."""
    rows: SlotRows
    batch: list[StepRow]
    is_flush: Tensor
    """bool [B]."""
    position: Tensor
    """int64 [B]: sample of the sequence at which the row's audio ends."""
    activity: Activity
    utterance_start: Tensor
    """int64 [B]: first frame of the utterance's audio."""
    is_broken: Tensor
    """bool [B]: audio or state is not finite."""
    is_long: Tensor
    """bool [B]: the utterance is to be ended for its length, in the pause that it is in."""
    before: dict[str, Tensor]
    """``READING_STATE`` of the rows before the step."""
    ended: dict[int, EndedUtterance]
    """By row: the utterance that ended in this step."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why utterances end, and what was said in them."""

    cause: UtteranceEnd
    tokens: dict[int, Tokens]
    """By row."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The audio of a step behind the encoder: all ticks of all rows, none of them in a memory yet."""

    rows: SlotRows
    batch: list[StepRow]
    first_tick: Tensor
    """int64 [B]: of each row, as an index into the step's ticks; what rows without audio have means nothing."""
    is_new: Tensor
    """bool [B]: rows with audio; the others are flushes on a tick boundary."""
    sounds: Sounds | None
    """Of all ticks; None without any."""
    is_broken: Tensor
    """bool [U]: not finite."""

    @property
    def most(self) -> int:
        """Most ticks of a row."""
        return max(row.n_ticks for row in self.batch)

    @property
    def n_ticks(self) -> int:
        """Ticks that went through the encoder, flushes with them."""
        return len(self.is_broken)


class Listener:
    """Encoder and cross-attention memory of the live model."""

    def __init__(self, network: LiveNetwork, decoder: Decoder, settings: LiveSettings) -> None:
        self._settings, self._decoder = settings, decoder
        self._encoder = StreamingEncoder(network, settings)
        self._device = decoder.embed.weight.device

    def encode(self, batch: list[StepRow], span: SlotRange | None, state: State) -> Encoded:
        """All of the rows' audio through the encoder."""
        _take_options(batch, state)
        rows = SlotRows.of(torch.tensor([row.slot for row in batch], device=self._device), span)
        counts = [row.n_ticks if len(row.audio) else 0 for row in batch]
        is_new = torch.tensor(counts, device=self._device) > 0
        first_tick = torch.tensor([0, *accumulate(counts)][:-1], device=self._device)
        new = is_new.nonzero()[:, 0]
        if not len(new):
            return Encoded(rows, batch, first_tick, is_new, None, is_new[:0])
        is_flush = torch.tensor([row.flush for row in batch], device=self._device)[new]
        ticks = Ticks.of([n for n in counts if n], self._device)
        audio = _padded([part for row in batch if len(row.audio) for part in _parts(row)]).to(self._device)
        is_first = (state["ticks"][rows.slots[new]][ticks.row] + ticks.offset) == 0
        level = sound.levels(audio, is_first)
        features, speech = self._encoder.step(rows.pick(new), audio, ticks, is_flush, state)
        sounds = Sounds.of(self._decoder, features, level, speech)
        return Encoded(rows, batch, first_tick, is_new, sounds, ~features.isfinite().all(2).all(1))

    def listen(self, encoded: Encoded, offset: int, state: State) -> Step:
        """Take in the tick number ``offset`` of each row that has so many."""
        chosen = [i for i, row in enumerate(encoded.batch) if row.n_ticks > offset]
        index = torch.tensor(chosen, device=self._device)
        rows = encoded.rows if len(index) == len(encoded.rows) else encoded.rows.pick(index)
        batch, slots, is_new = [encoded.batch[i] for i in chosen], rows.slots, encoded.is_new[index]
        before = {name: state[name][slots] for name in READING_STATE}
        is_flush = torch.tensor([row.flush for row in batch], device=self._device)
        position = torch.tensor([_end_sample(row, offset) for row in batch], device=self._device)
        frames = state["ticks"][slots, None] * TICK_FRAMES + torch.arange(TICK_FRAMES, device=self._device)
        speech = torch.zeros(len(batch), TICK_FRAMES, device=self._device)
        level = torch.full_like(speech, sound.SILENCE_DB)
        is_broken = torch.zeros_like(is_new)
        if encoded.sounds is not None:
            new, at = is_new.nonzero()[:, 0], (encoded.first_tick[index] + offset)[is_new]
            level[new], speech[new] = encoded.sounds.level[at], encoded.sounds.speech[at]
            is_broken[new] = encoded.is_broken[at]
            utterance_memory.append(encoded.sounds, at, slots[new], state)
        ticks = (is_new & ~is_flush).nonzero()[:, 0]
        advance(slots[ticks], state)
        activity = observe(slots, Heard(frames, speech, level, is_new), self._settings, state)
        self._keep_lead_in(slots[ticks], activity.is_open[ticks], state)
        start = torch.maximum(state["memory_base"][slots], state["first_frame"][slots])
        return Step(
            chosen, rows, batch, is_flush, position, activity, start, is_broken, activity.at_pause.clone(), before, {}
        )

    def _keep_lead_in(self, slots: Tensor, is_open: Tensor, state: State) -> None:
        """While no utterance is open, the memory holds the lead-in of the next one and nothing else."""
        excess = state["memory_size"][slots] - self._settings.lead_in_frames
        trim = ~is_open & (excess > 0)
        utterance_memory.drop_front(slots[trim], excess[trim], state)


def _padded(audio: Sequence[Samples]) -> Tensor:
    """float32 [B, 4351]: each row's samples, zeros after them."""
    padded = torch.zeros(len(audio), FIRST_TICK_SAMPLES)
    for row, samples in zip(padded, audio, strict=True):
        row[: len(samples)] = torch.from_numpy(samples)
    return padded


def _parts(row: StepRow) -> list[Samples]:
    """The samples of each of its ticks."""
    if row.n_ticks == 1:
        return [row.audio]
    edges = [0, *(_end_sample(row, offset) - row.first_sample for offset in range(row.n_ticks))]
    return [row.audio[begin:end] for begin, end in pairwise(edges)]


def _end_sample(row: StepRow, offset: int) -> int:
    """Sample of the sequence at which a tick of the row ends."""
    if offset == row.n_ticks - 1:
        return row.first_sample + len(row.audio)
    lookahead = LOOKAHEAD_SAMPLES if row.first_sample == 0 else 0
    return row.first_sample + (offset + 1) * TICK_SAMPLES + lookahead


def _take_options(batch: list[StepRow], state: State) -> None:
    """Write what new sequences ask for to their slots."""
    for row in batch:
        if row.start and row.endpoint_silence_ms is not None:
            for name in ("endpoint_frames", "sentence_frames"):
                state[name][row.slot] = silence_frames(row.endpoint_silence_ms)
