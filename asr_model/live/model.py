"""The live model: one step takes one tick, or a flush, of every row. Batched over rows; all memory is slot state.

A flush works on scratch: the samples since the last tick, padded with zeros, go through the encoder without moving it
(I8); then the utterance is read to its end and the next one starts at the first frame after the flush.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, State, StepOutput, StepRow
from asr_model.live import utterance_memory
from asr_model.live.network import PACKAGED_CHECKPOINT, LiveNetwork, load_network
from asr_model.live.reader import Hypothesis, Reader, Work
from asr_model.live.settings import TICK_FRAMES, LiveSettings
from asr_model.live.slot_rows import SlotRows
from asr_model.live.slot_state import declare
from asr_model.live.stem import FIRST_TICK_SAMPLES, LOOKAHEAD_SAMPLES, TICK_SAMPLES
from asr_model.live.streaming_encoder import StreamingEncoder
from asr_model.live.transcription import (
    Tokens,
    committed_tokens,
    draft_tokens,
    ended_by,
    host,
    hypothesis_tokens,
    words_of,
)
from asr_model.live.utterance_bounds import (
    STALL_CUT_TICKS,
    STALL_SUPPRESS_TICKS,
    Activity,
    count_stalls,
    cut_position,
    is_complete,
    observe,
    spare_silence,
    spoken_until,
)
from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE
from asr_model.moonshine.layers import Decoder
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.moonshine.weights import load_weights
from asr_model.moonshine.word_times import word_spans
from asr_model.transcript import EndedUtterance, LiveOutput, UtteranceEnd


def build(options: Mapping[str, object], device: torch.device) -> "LiveModel":
    """The live model from its configuration table.

    Raises:
        ValueError: an option is wrong or the checkpoint cannot be read.
        WeightsError: Moonshine's weights are not there.
    """
    settings = LiveSettings.of(options)
    weights = load_weights(Path(settings.weights) if settings.weights else None)
    network = load_network(Path(settings.checkpoint) if settings.checkpoint else PACKAGED_CHECKPOINT)
    return LiveModel(network.to(device), weights.decoder().to(device), weights.tokenizer(), settings)


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
    ended: dict[int, EndedUtterance]
    """By row: the utterance that ended in this step."""


class LiveModel:
    """StreamingModel (``asr_model.contract``) over the live network and Moonshine's decoder."""

    def __init__(self, network: LiveNetwork, decoder: Decoder, tokenizer: Tokenizer, settings: LiveSettings) -> None:
        self._settings, self._tokenizer = settings, tokenizer
        self._decoder = decoder.eval().requires_grad_(False)
        self._encoder = StreamingEncoder(network, settings)
        self._reader = Reader(decoder, tokenizer, settings)
        self._device = decoder.embed.weight.device
        self.spec = ModelSpec(
            name="moonshine-live",
            scheduler=Scheduler.SEQUENCE,
            tick_samples=TICK_SAMPLES,
            lookahead_samples=LOOKAHEAD_SAMPLES,
            state=declare(settings),
        )

    @torch.inference_mode()
    def step(self, rows: Sequence[StepRow], state: State) -> StepOutput:
        """One tick or flush of every row; see ``StreamingModel.step``. Outputs are ``LiveOutput``."""
        order = sorted(range(len(rows)), key=lambda i: rows[i].slot)
        batch = [rows[i] for i in order]
        slots = torch.tensor([row.slot for row in batch], device=self._device)
        step, features, counters = self._listen(SlotRows.of(slots), batch, state)
        work = self._read(step, state)
        broken = set(host((~features.isfinite().all(2).all(1)).nonzero()[:, 0]))
        outputs = self._outputs(step, state)
        counters |= {
            "decoder_passes": work.passes,
            "decoder_row_passes": work.row_passes,
            "decoder_positions": work.positions,
            "ticks": sum(not row.flush for row in batch),
        }
        placed: list[object] = [None] * len(rows)
        for i, output in zip(order, outputs, strict=True):
            placed[i] = output
        errors = {order[i]: "audio or state is not finite" for i in broken}
        return StepOutput(outputs=placed, errors=errors, counters=counters)

    def _listen(self, rows: SlotRows, batch: list[StepRow], state: State) -> tuple[Step, Tensor, dict[str, int]]:
        """Encode, find speech, append to the memories. Features: float32 [B, TICK_FRAMES, D], zeros without audio."""
        slots, n = rows.slots, len(batch)
        audio = torch.zeros(n, FIRST_TICK_SAMPLES)
        for i, row in enumerate(batch):
            audio[i, : len(row.audio)] = torch.from_numpy(row.audio)
        is_flush = torch.tensor([row.flush for row in batch], device=self._device)
        is_new = torch.tensor([len(row.audio) > 0 for row in batch], device=self._device)
        position = torch.tensor([row.first_sample + len(row.audio) for row in batch], device=self._device)
        new = is_new.nonzero()[:, 0]
        features = torch.zeros(n, TICK_FRAMES, self._decoder.embed.embedding_dim, device=self._device)
        speech = torch.zeros(n, TICK_FRAMES, device=self._device)
        if len(new):
            features[new], speech[new] = self._encoder.step(
                rows.pick(new), audio.to(self._device)[new], is_flush[new], state
            )
        activity = observe(slots, speech, is_new, self._settings, state)
        if len(new):
            utterance_memory.append(self._decoder, features[new], slots[new], state)
        self._keep_lead_in(slots[new], activity.is_open[new], state)
        start = torch.maximum(state["memory_base"][slots], state["first_frame"][slots])
        step = Step(rows, batch, is_flush, position, activity, start, {})
        frames = len(new) * TICK_FRAMES
        return step, features, {"encoder_frames": frames, "cross_frames": frames}

    def _keep_lead_in(self, slots: Tensor, is_open: Tensor, state: State) -> None:
        """While no utterance is open, the memory holds the lead-in of the next one and nothing else."""
        excess = state["memory_size"][slots] - self._settings.lead_in_frames
        trim = ~is_open & (excess > 0)
        utterance_memory.drop_front(slots[trim], excess[trim], state)

    def _read(self, step: Step, state: State) -> Work:
        """Read the rows that have something to read; end the utterances that end here."""
        slots, activity = step.rows.slots, step.activity
        closes = step.is_flush | activity.at_endpoint | activity.at_length_unread
        has_frames = state["memory_size"][slots] > state["first_frame"][slots] - state["memory_base"][slots]
        reads = activity.is_open & has_frames & (closes | ~activity.is_quiet)
        index = reads.nonzero()[:, 0]
        work, tokens = Work(), dict[int, Tokens]()
        if len(index):
            h, work = self._read_rows(step, index, closes, state)
            found = hypothesis_tokens(h)
            committed = committed_tokens(slots[index], state)
            tokens = {i: c + t for i, c, t in zip(host(index), committed, found, strict=True)}
            if self._settings.guards:
                self._read_rest(
                    step, index[closes[index]], h.pick(closes[index].nonzero()[:, 0]), (tokens, work), state
                )
            closes[index] |= is_complete(slots[index], h, activity.is_open[index], self._settings, state)
            going = ~closes[index]
            if going.any():
                self._go_on(step, index[going], h.pick(going.nonzero()[:, 0]), tokens, state)
        self._close(step, closes.nonzero()[:, 0], tokens, state)
        return work

    def _read_rows(self, step: Step, index: Tensor, closes: Tensor, state: State) -> tuple[Hypothesis, Work]:
        rows = step.rows.pick(index)
        no_end = (state["stalled_ticks"][rows.slots] == STALL_SUPPRESS_TICKS) & self._settings.guards
        return self._reader.read(rows, closes[index], no_end & ~closes[index], state)

    def _read_rest(
        self, step: Step, index: Tensor, h: Hypothesis, so_far: tuple[dict[int, Tokens], Work], state: State
    ) -> None:
        """Append what the readings to the end of int64 [A] rows left out."""
        if not len(index):
            return
        tokens, work = so_far
        rows = step.rows.pick(index)
        for part, more, cost in self._reader.read_rest(rows, h, spoken_until(rows.slots, state), state):
            work.add(cost)
            for i, found in zip(host(index[part]), hypothesis_tokens(more), strict=True):
                tokens[i] = tokens[i] + found

    def _go_on(self, step: Step, index: Tensor, h: Hypothesis, tokens: dict[int, Tokens], state: State) -> None:
        """Commit what is agreed; cut the utterances that grew too long or whose decoder is stuck."""
        slots = step.rows.slots[index]
        self._reader.commit(slots, h, state)
        if self._settings.guards:
            count_stalls(slots, h, step.activity.is_speech[index], state)
            stuck = state["stalled_ticks"][slots] >= STALL_CUT_TICKS
            self._cut(step, index[stuck], h.heard[stuck] + 1, (UtteranceEnd.STALL, tokens), state)
        long = step.activity.at_length[index] & (state["stalled_ticks"][slots] < STALL_CUT_TICKS)
        if long.any():
            done = committed_tokens(slots[long], state)
            kept = dict(zip(host(index[long]), done, strict=True))
            self._cut(step, index[long], cut_position(slots[long], state), (UtteranceEnd.LENGTH, kept), state)

    def _cut(
        self, step: Step, index: Tensor, at: Tensor, said: tuple[UtteranceEnd, dict[int, Tokens]], state: State
    ) -> None:
        """End the utterances of int64 [A] rows at memory positions ``at``; the tail is the next one's first audio.

        After a cut for length the draft goes on as the next utterance's draft; after a stall it has been said.
        """
        cause, tokens = said
        slots = step.rows.slots[index]
        at = torch.minimum(at, state["memory_size"][slots])
        frames = state["memory_base"][slots] + at
        self._end(step, index, frames * FRAME_SAMPLES, cause, tokens, state)
        utterance_memory.drop_front(slots, at, state)
        state["first_frame"][slots] = frames
        state["token_count"][slots] = 1
        state["heard"][slots] = 0
        state["stalled_ticks"][slots] = 0
        if cause is UtteranceEnd.STALL:
            state["draft_size"][slots] = 0
        else:
            for name in ("draft_frames", "draft_centres"):
                state[name][slots] -= at[:, None]

    def _close(self, step: Step, index: Tensor, tokens: dict[int, Tokens], state: State) -> None:
        """End the utterances of int64 [A] rows here; the next ones start afresh, the silence at the end leads in."""
        if not len(index):
            return
        slots = step.rows.slots[index]
        flush = step.is_flush[index]
        spare = torch.where(flush, 0, spare_silence(slots, self._settings, state))
        boundary = state["ticks"][slots] * TICK_FRAMES - spare
        end_sample = torch.where(flush, step.position[index], boundary * FRAME_SAMPLES)
        for cause, chosen in self._causes(step, index):
            self._end(step, index[chosen], end_sample[chosen], cause, tokens, state)
        after = -(-step.position[index] // FRAME_SAMPLES)
        utterance_memory.begin_utterance(slots, torch.where(flush, after, boundary), spare, state)
        state["is_open"][slots] |= not self._settings.skip_silence

    def _causes(self, step: Step, index: Tensor) -> list[tuple[UtteranceEnd, Tensor]]:
        flush = step.is_flush[index]
        too_long = step.activity.at_length_unread[index] & ~step.activity.at_endpoint[index]
        ends = torch.tensor([step.batch[i].end for i in host(index)], device=index.device)
        return [
            (UtteranceEnd.END, flush & ends),
            (UtteranceEnd.FINALIZE, flush & ~ends),
            (UtteranceEnd.ENDPOINT, ~flush & ~too_long),
            (UtteranceEnd.LENGTH, ~flush & too_long),
        ]

    def _end(
        self,
        step: Step,
        index: Tensor,
        end_sample: Tensor,
        cause: UtteranceEnd,
        tokens: dict[int, Tokens],
        state: State,
    ) -> None:
        """Note the ended utterances of int64 [A] rows."""
        slots = step.rows.slots[index]
        bases, sizes = host(state["memory_base"][slots]), host(state["memory_size"][slots])
        starts = host(step.utterance_start[index])
        for i, base, size, start, end in zip(host(index), bases, sizes, starts, host(end_sample), strict=True):
            said = tokens.get(i)
            words = ended_by(words_of(self._tokenizer, said, base, size) if said else (), end / SAMPLE_RATE)
            first = min(start * FRAME_SAMPLES, end)
            step.ended[i] = EndedUtterance(cause=cause, first_sample=first, end_sample=end, words=words)

    def _outputs(self, step: Step, state: State) -> list[LiveOutput]:
        slots = step.rows.slots
        committed, drafts = committed_tokens(slots, state), draft_tokens(slots, state)
        bases, sizes = host(state["memory_base"][slots]), host(state["memory_size"][slots])
        starts = host(torch.maximum(state["memory_base"][slots], state["first_frame"][slots]))
        speech = step.activity.is_speech.tolist()
        outputs = []
        for i, (said, draft) in enumerate(zip(committed, drafts, strict=True)):
            words = words_of(self._tokenizer, said + draft, bases[i], sizes[i]) if said.ids or draft.ids else ()
            n = sum(1 for _ in word_spans(self._tokenizer, said.ids))
            outputs.append(
                LiveOutput(
                    encoded_samples=int(step.position[i]),
                    committed=words[:n],
                    draft=words[n:],
                    ended=step.ended.get(i),
                    keep_from_sample=starts[i] * FRAME_SAMPLES,
                    is_speech=speech[i],
                )
            )
        return outputs
