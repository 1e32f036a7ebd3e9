"""The first half of a step: audio through the encoder, speech found in it, all of it appended to the memories."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asr_model.contract import Samples, State, StepRow
from asr_model.live import sound, utterance_memory
from asr_model.live.network import LiveNetwork
from asr_model.live.settings import TICK_FRAMES, LiveSettings, silence_frames
from asr_model.live.slot_rows import SlotRows
from asr_model.live.slot_state import READING_STATE
from asr_model.live.stem import FIRST_TICK_SAMPLES
from asr_model.live.streaming_encoder import StreamingEncoder
from asr_model.live.transcription import Tokens
from asr_model.live.utterance_bounds import Activity, Heard, observe
from asr_model.moonshine.layers import Decoder
from asr_model.transcript import EndedUtterance, UtteranceEnd


@dataclass(slots=True)
class Step:
    """The rows of one step, in ascending order of slots."""

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


class Listener:
    """Encoder and cross-attention memory of the live model."""

    def __init__(self, network: LiveNetwork, decoder: Decoder, settings: LiveSettings) -> None:
        self._settings, self._decoder = settings, decoder
        self._encoder = StreamingEncoder(network, settings)
        self._device = decoder.embed.weight.device

    def listen(self, batch: list[StepRow], state: State) -> tuple[Step, dict[str, int]]:
        """Take in the rows' audio. Returns the step and the counts of work done."""
        _take_options(batch, state)
        rows = SlotRows.of(torch.tensor([row.slot for row in batch], device=self._device))
        slots, n = rows.slots, len(batch)
        before = {name: state[name][slots] for name in READING_STATE}
        is_flush = torch.tensor([row.flush for row in batch], device=self._device)
        is_new = torch.tensor([len(row.audio) > 0 for row in batch], device=self._device)
        position = torch.tensor([row.first_sample + len(row.audio) for row in batch], device=self._device)
        frames = state["ticks"][slots, None] * TICK_FRAMES + torch.arange(TICK_FRAMES, device=self._device)
        speech = torch.zeros(n, TICK_FRAMES, device=self._device)
        level = torch.full_like(speech, sound.SILENCE_DB)
        is_broken = torch.zeros_like(is_new)
        new = is_new.nonzero()[:, 0]
        if len(new):
            audio = _padded([batch[i].audio for i in new.tolist()]).to(self._device)
            level[new] = sound.levels(audio, frames[new, 0] == 0)
            features, speech[new] = self._encoder.step(rows.pick(new), audio, is_flush[new], state)
            utterance_memory.append(self._decoder, features, (level[new], speech[new]), slots[new], state)
            is_broken[new] = ~features.isfinite().all(2).all(1)
        activity = observe(slots, Heard(frames, speech, level, is_new), self._settings, state)
        ticks = (is_new & ~is_flush).nonzero()[:, 0]
        self._keep_lead_in(slots[ticks], activity.is_open[ticks], state)
        start = torch.maximum(state["memory_base"][slots], state["first_frame"][slots])
        step = Step(rows, batch, is_flush, position, activity, start, is_broken, activity.at_pause.clone(), before, {})
        n_frames = len(new) * TICK_FRAMES
        return step, {"encoder_frames": n_frames, "cross_frames": n_frames}

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


def _take_options(batch: list[StepRow], state: State) -> None:
    """Write what new sequences ask for to their slots."""
    for row in batch:
        if row.start and row.endpoint_silence_ms is not None:
            for name in ("endpoint_frames", "sentence_frames"):
                state[name][row.slot] = silence_frames(row.endpoint_silence_ms)
