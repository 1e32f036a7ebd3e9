"""The live model: one step takes ticks, or a flush, of every row. Batched over rows; all memory is slot state.

The ticks of a late sequence go through the encoder together and are read one by one, so that the text is the same.

A flush works on scratch: the samples since the last tick, padded with zeros, go through the encoder without moving it
(I8); then the utterance is read to its end and the next one starts at the first frame after the flush.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, SlotRange, State, StepOutput, StepRow
from asr_model.live import utterance_memory
from asr_model.live.listener import Ending, Listener, Step
from asr_model.live.network import PACKAGED_CHECKPOINT, LiveNetwork, load_network
from asr_model.live.reader import Hypothesis, Reader, Work
from asr_model.live.settings import MAX_TICKS, TICK_FRAMES, LiveSettings
from asr_model.live.slot_state import READING_STATE, declare
from asr_model.live.stem import LOOKAHEAD_SAMPLES, TICK_SAMPLES
from asr_model.live.transcription import (
    Place,
    Tokens,
    committed_tokens,
    draft_tokens,
    ended_by,
    host,
    hypothesis_tokens,
    last_word,
    n_words,
    words_of,
)
from asr_model.live.utterance_bounds import (
    SILENCE_TAIL_FRAMES,
    STALL_PASSAGE_TICKS,
    STALL_SUPPRESS_TICKS,
    count_stalls,
    is_complete,
    read_until,
    silence,
    spare_silence,
    spoken_until,
)
from asr_model.live.word_gaps import best_gaps, read_on
from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE
from asr_model.moonshine.layers import Decoder
from asr_model.moonshine.tokenizer import Tokenizer
from asr_model.moonshine.weights import load_weights
from asr_model.narrow import optimizations, optimize
from asr_model.optimize_names import PRECISIONS
from asr_model.transcript import AudioRange, EndedUtterance, LiveOutput, UtteranceEnd

SAID_MARGIN_FRAMES = 3
"""Words read from so little behind the last one that a flush said are that one, heard in full."""


def build(options: Mapping[str, object], device: torch.device) -> "LiveModel":
    """The live model from its configuration table.

    Raises:
        ValueError: an option is wrong, the device does not take it, or the checkpoint cannot be read.
        WeightsError: Moonshine's weights are not there.
    """
    settings = LiveSettings.of(options)
    weights = load_weights(Path(settings.weights) if settings.weights else None)
    network = load_network(Path(settings.checkpoint) if settings.checkpoint else PACKAGED_CHECKPOINT)
    decoder = weights.decoder().to(device)
    network.to(device)
    optimize([network.encoder, decoder], settings.optimize, device)
    return LiveModel(network, decoder, weights.tokenizer(), settings)


class LiveModel:
    """StreamingModel (``asr_model.contract``) over the live network and Moonshine's decoder."""

    def __init__(self, network: LiveNetwork, decoder: Decoder, tokenizer: Tokenizer, settings: LiveSettings) -> None:
        self._settings, self._tokenizer = settings, tokenizer
        self._decoder = decoder.eval().requires_grad_(False)
        self._listener = Listener(network, decoder, settings)
        self._reader = Reader(decoder, tokenizer, settings)
        self._device = decoder.embed.weight.device
        self.spec = ModelSpec(
            name="moonshine-live",
            scheduler=Scheduler.SEQUENCE,
            tick_samples=TICK_SAMPLES,
            lookahead_samples=LOOKAHEAD_SAMPLES,
            precision=PRECISIONS[settings.optimize],
            state=declare(settings),
            optimizations=optimizations(self._device),
            optimize=settings.optimize,
            max_ticks=MAX_TICKS,
        )

    @torch.inference_mode()
    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        """Ticks or a flush of every row; see ``StreamingModel.step``. Outputs are ``LiveOutput``."""
        order = sorted(range(len(rows)), key=lambda i: rows[i].slot)
        encoded = self._listener.encode([rows[i] for i in order], span, state)
        told: list[list[object]] = [[] for _ in rows]
        work, broken = Work(), set[int]()
        for offset in range(encoded.most):
            step = self._listener.listen(encoded, offset, state)
            work.add(self._read(step, state))
            broken.update(order[step.row[i]] for i in host(step.is_broken.nonzero()[:, 0]))
            for i, output in zip(step.row, self._outputs(step, state), strict=True):
                told[order[i]].append(output)
        counters = {
            "encoder_frames": encoded.n_ticks * TICK_FRAMES,
            "cross_frames": encoded.n_ticks * TICK_FRAMES,
            "decoder_passes": work.passes,
            "decoder_row_passes": work.row_passes,
            "decoder_positions": work.positions,
            "ticks": sum(row.n_ticks for row in rows if not row.flush),
        }
        return StepOutput(
            outputs=[outputs[-1] for outputs in told],
            errors=dict.fromkeys(sorted(broken), "audio or state is not finite"),
            counters=counters,
            earlier={i: outputs[:-1] for i, outputs in enumerate(told) if len(outputs) > 1},
        )

    def _read(self, step: Step, state: State) -> Work:
        """Read the rows that have something to read; end the utterances that end here."""
        slots, activity = step.rows.slots, step.activity
        closes = step.is_flush | activity.at_endpoint | activity.at_pause
        has_frames = state["memory_size"][slots] > state["passage_frame"][slots] - state["memory_base"][slots]
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
            complete = index[is_complete(slots[index], h, activity.is_open[index], self._settings, state)]
            closes[complete], step.is_long[complete] = True, False
            going = ~closes[index]
            if going.any():
                self._go_on(step, index[going], h.pick(going.nonzero()[:, 0]), state)
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

    def _go_on(self, step: Step, index: Tensor, h: Hypothesis, state: State) -> None:
        """Commit what is agreed; read on afresh where the decoder is stuck; cut the utterances that grow too long."""
        slots = step.rows.slots[index]
        n_before = state["token_count"][slots]
        self._reader.commit(slots, h, state)
        if self._settings.guards:
            count_stalls(slots, h, step.activity.is_speech[index], state)
            is_stuck = state["stalled_ticks"][slots] >= STALL_PASSAGE_TICKS
            if is_stuck.any():
                read_on(slots[is_stuck], h.heard[is_stuck], self._reader.opens_word, self._settings, state)
        may_cut = (state["token_count"][slots] > 1) & self._settings.endpoints
        if may_cut.any():
            self._cut_for_length(step, index[may_cut], n_before[may_cut], state)

    def _cut_for_length(self, step: Step, index: Tensor, n_before: Tensor, state: State) -> None:
        """Cut those of int64 [A] rows that have come to a good gap between words, or to the maximum length. What is
        behind the cut is the next utterance's first audio and draft; it is read with some words from before as context.
        """
        slots = step.rows.slots[index]
        gaps = best_gaps(slots, self._reader.opens_word, n_before, self._settings, state)
        cuts = gaps.is_wanted | step.activity.at_length[index]
        if not cuts.any():
            return
        committed = zip(host(index), committed_tokens(slots, state), host(gaps.token - 1), strict=True)
        said = {i: tokens[:n] for i, tokens, n in committed}
        slots, gaps = slots[cuts], gaps.pick(cuts)
        utterance_memory.carry_over(slots, gaps.context_token, self._settings.agree, state)
        base = state["memory_base"][slots]
        first_frame = base + torch.minimum(gaps.position, state["memory_size"][slots])
        self._end(step, index[cuts], first_frame * FRAME_SAMPLES, Ending(UtteranceEnd.LENGTH, said), state)
        context = torch.minimum(gaps.context, state["memory_size"][slots])
        utterance_memory.drop_front(slots, context, state)
        utterance_memory.start_reading(slots, first_frame, state)
        state["passage_frame"][slots] = base + context
        state["said_frame"][slots] = torch.maximum(state["said_frame"][slots], base + gaps.told)
        for name in ("draft_frames", "draft_centres"):
            state[name][slots] -= context[:, None]

    def _close(self, step: Step, index: Tensor, tokens: dict[int, Tokens], state: State) -> None:
        """End the utterances of int64 [A] rows here. After a flush reading goes on as if there had been none; else the
        next utterances start afresh, and the silence at the end leads in.
        """
        if not len(index):
            return
        slots = step.rows.slots[index]
        flush = step.is_flush[index]
        spare = spare_silence(slots, state).clamp(max=self._settings.lead_in_frames)
        boundary = state["ticks"][slots] * TICK_FRAMES - spare
        end_sample = torch.where(flush, step.position[index], boundary * FRAME_SAMPLES)
        for cause, chosen in self._causes(step, index):
            self._end(step, index[chosen], end_sample[chosen], Ending(cause, tokens), state)
        self._go_on_after_flush(step, index[flush], tokens, state)
        slots, spare, is_long = slots[~flush], spare[~flush], step.is_long[index[~flush]]
        silent, tail = state["silent_frames"][slots], state["tail_frames"][slots]
        utterance_memory.begin_utterance(slots, boundary[~flush], spare, state)
        state["silent_frames"][slots], state["tail_frames"][slots] = silent * is_long, tail * is_long
        state["owes_endpoint"][slots] = is_long
        state["is_open"][slots] |= not self._settings.skip_silence

    def _go_on_after_flush(self, step: Step, index: Tensor, tokens: dict[int, Tokens], state: State) -> None:
        """Put back what int64 [A] rows were reading; what was said by the flush is not said again."""
        slots = step.rows.slots[index]
        for name in READING_STATE:
            state[name][slots] = step.before[name][index]
        state["first_frame"][slots] = -(-step.position[index] // FRAME_SAMPLES)
        for slot, i in zip(host(slots), host(index), strict=True):
            last = last_word(self._tokenizer, tokens[i]) if i in tokens else None
            if last is not None:
                said = state["memory_base"][slot] + round(last) + SAID_MARGIN_FRAMES
                state["said_frame"][slot] = torch.maximum(state["said_frame"][slot], said)

    def _causes(self, step: Step, index: Tensor) -> list[tuple[UtteranceEnd, Tensor]]:
        flush = step.is_flush[index]
        too_long = step.is_long[index]
        ends = torch.tensor([step.batch[i].end for i in host(index)], device=index.device)
        return [
            (UtteranceEnd.END, flush & ends),
            (UtteranceEnd.FINALIZE, flush & ~ends),
            (UtteranceEnd.ENDPOINT, ~flush & ~too_long),
            (UtteranceEnd.LENGTH, ~flush & too_long),
        ]

    def _end(self, step: Step, index: Tensor, end_sample: Tensor, ending: Ending, state: State) -> None:
        """Note the ended utterances of int64 [A] rows."""
        slots = step.rows.slots[index]
        bases, sizes, until = state["memory_base"][slots], state["memory_size"][slots], read_until(slots, state)
        columns = (index, step.utterance_start[index], end_sample, bases, sizes, state["said_frame"][slots], until)
        for i, start, end, base, size, told, until_frame in zip(*(host(column) for column in columns), strict=True):
            said = ending.tokens.get(i)
            words = words_of(self._tokenizer, said, Place(base, size, told - base)) if said else ()
            words = ended_by(words, end / SAMPLE_RATE)
            first = min(start * FRAME_SAMPLES, end)
            tail = min(end - first, max(0, end - until_frame * FRAME_SAMPLES))
            step.ended[i] = EndedUtterance(
                cause=ending.cause, first_sample=first, end_sample=end, words=words, tail_samples=tail
            )

    def _outputs(self, step: Step, state: State) -> list[LiveOutput]:
        slots = step.rows.slots
        committed, drafts = committed_tokens(slots, state), draft_tokens(slots, state)
        bases, sizes, told = (host(state[name][slots]) for name in ("memory_base", "memory_size", "said_frame"))
        starts = host(torch.maximum(state["memory_base"][slots], state["first_frame"][slots]))
        likely = self._likely(step, state)
        activity = step.activity
        speech, first, last = activity.is_told_speech.tolist(), host(activity.first_frame), host(activity.last_frame)
        outputs = []
        for i, (said, draft) in enumerate(zip(committed, drafts, strict=True)):
            place = Place(bases[i], sizes[i], told[i] - bases[i])
            words = words_of(self._tokenizer, said + draft, place) if said.ids or draft.ids else ()
            n_told = n_words(self._tokenizer, said + draft) - len(words)
            n = max(0, n_words(self._tokenizer, said) - n_told)
            outputs.append(
                LiveOutput(
                    encoded_samples=int(step.position[i]),
                    committed=words[:n],
                    draft=words[n:],
                    ended=step.ended.get(i),
                    keep_from_sample=starts[i] * FRAME_SAMPLES,
                    is_speech=speech[i],
                    speech_from_sample=first[i] * FRAME_SAMPLES if speech[i] else None,
                    speech_until_sample=(last[i] + 1) * FRAME_SAMPLES if speech[i] else None,
                    likely=likely.get(i),
                )
            )
        return outputs

    def _likely(self, step: Step, state: State) -> dict[int, AudioRange]:
        """By row: the audio of its open utterance, if that ended in the pause that it is in."""
        slots = step.rows.slots
        has_text = (state["token_count"][slots] > 1) | (state["draft_size"][slots] > 0)
        pauses = state["is_open"][slots] & has_text & (silence(slots, state) >= SILENCE_TAIL_FRAMES) & ~step.is_flush
        index = pauses.nonzero()[:, 0]
        start = torch.maximum(state["memory_base"][slots], state["first_frame"][slots])[index]
        until = read_until(slots[index], state)
        return {
            i: AudioRange(first_sample=first * FRAME_SAMPLES, end_sample=end * FRAME_SAMPLES)
            for i, first, end in zip(host(index), host(start), host(until), strict=True)
            if first < end
        }
