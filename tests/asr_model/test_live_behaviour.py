"""What the live model says of silence, noise, levels, repeats, long speech and single words; and what it costs."""

from itertools import pairwise

import numpy as np
import pytest

from asr_model.contract import Samples
from asr_model.live.model import LiveModel
from asr_model.live.settings import TICK_FRAMES
from asr_model.live.stem import TICK_SAMPLES
from asr_model.transcript import UtteranceEnd, joined
from clients.word_error_rate import word_errors, words
from tests.asr_model.conftest import Utterance, samples_of
from tests.support.fixtures import fixture, fixtures
from tests.support.slot_player import Played, SlotPlayer

SECOND = 16_000
PAUSE = np.zeros(20_000, np.float32)


def together(model: LiveModel, audios: list[Samples]) -> list[Played]:
    """All of them side by side."""
    player = SlotPlayer(model, len(audios))
    played = [player.open(slot, audio) for slot, audio in enumerate(audios)]
    player.play()
    return played


def noise(seconds: float, level_db: float) -> Samples:
    """White noise of that level (dB of full scale, root mean square)."""
    samples = np.random.default_rng(11).standard_normal(int(seconds * SECOND)) * 10 ** (level_db / 20)
    return samples.clip(-1, 1).astype(np.float32)


def errors(utterance: Utterance, played: Played) -> int:
    """Word errors of what was said of an utterance."""
    return word_errors(utterance.text, played.text).distance


def said_so_far(player: SlotPlayer, slot: int) -> list[str]:
    """Words committed or ended so far."""
    played = player.sequences[slot]
    open_words = joined(played.outputs[-1].committed) if played.outputs else ""
    return words(f"{played.text} {open_words}")


@pytest.mark.parametrize("seconds", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_silence_and_noise_say_nothing_and_speech_after_them_is_read_as_well(
    live: LiveModel, utterances: list[Utterance], seconds: int
) -> None:
    speech = utterances[0].audio
    quiet = [np.zeros(seconds * SECOND, np.float32), noise(seconds, -60), noise(seconds, -40), noise(seconds, -30)]
    alone, *after = together(live, [speech, *(np.concatenate((q, speech)) for q in quiet)])
    for played in after:
        early = [e for e in played.ended if e.words and e.words[0].start_s < seconds - 0.5]
        assert not early, joined(early[0].words)
        assert errors(utterances[0], played) <= errors(utterances[0], alone) + 2


def test_levels_from_minus_30_to_plus_10_db_are_read_alike(live: LiveModel, utterances: list[Utterance]) -> None:
    speech = utterances[1].audio
    levels = [10 ** (db / 20) for db in (0, -30, -20, -10, 10)]
    normal, *others = together(live, [(speech * level).clip(-1, 1).astype(np.float32) for level in levels])
    for played in others:
        assert errors(utterances[1], played) <= errors(utterances[1], normal) + 2


def test_a_word_said_twelve_times_neither_vanishes_nor_runs_away(live: LiveModel) -> None:
    """Without the guards the decoder loses its place in the repeats and says three times as many."""
    (played,) = together(live, [samples_of(fixture("five_twelve_times_16k"))])
    assert 6 <= words(played.text).count("five") <= 13


def without_pauses(audio: Samples) -> Samples:
    """The audio with every silence shortened to 50 ms."""
    frame, keep = 160, 5
    level = np.sqrt((audio[: len(audio) // frame * frame].reshape(-1, frame) ** 2).mean(1))
    is_loud = level > 0.02 * level.max()
    quiet_run = 0
    kept = []
    for i, loud in enumerate(is_loud):
        quiet_run = 0 if loud else quiet_run + 1
        if quiet_run <= keep:
            kept.append(audio[i * frame : (i + 1) * frame])
    return np.concatenate(kept)


@pytest.mark.slow
def test_speech_without_a_pause_is_cut_between_words_and_read_to_its_end(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    audio = without_pauses(np.concatenate([u.audio for u in utterances]))
    assert len(audio) > 40 * SECOND
    (played,) = together(live, [audio])
    assert max(e.end_sample - e.first_sample for e in played.ended) <= 21 * SECOND
    assert all(a.end_sample <= b.first_sample + TICK_SAMPLES for a, b in pairwise(played.ended))
    truth = " ".join(u.text for u in utterances)
    assert word_errors(truth, played.text).percent <= 30
    assert set(words(truth)[-5:]) & set(words(played.text)[-6:]), "the last words are there"


def test_single_words_and_phrases_are_heard(live: LiveModel) -> None:
    """Clipped from speech, without silence around them: as a whole most are read right, and each says something."""
    clips = fixtures("word") + fixtures("phrase")
    played = together(live, [samples_of(clip) for clip in clips])
    right = sum(words(p.text) == words(c.text) for p, c in zip(played, clips, strict=True))
    assert sum(bool(p.text) for p in played) >= 0.9 * len(clips)
    assert right >= 0.5 * len(clips)


def test_first_and_last_word_are_there_without_silence_around_them(
    live: LiveModel, utterances: list[Utterance]
) -> None:
    loud = [np.flatnonzero(np.abs(u.audio) > 0.02) for u in utterances]
    audios = [u.audio[at[0] : at[-1] + 1] for u, at in zip(utterances, loud, strict=True)]
    for audio, bare in zip(audios, together(live, audios), strict=True):
        said = [word for ended in bare.ended for word in ended.words]
        assert said[0].start_s < 0.5
        assert said[-1].end_s > len(audio) / SECOND - 0.5


def test_a_paused_sequence_has_committed_what_was_said_before(live: LiveModel, utterances: list[Utterance]) -> None:
    """Of the words that ended before t − 1.5 s, 95 % are committed at t; t is anywhere in the speech."""
    due = committed = 0
    whole = together(live, [u.audio for u in utterances])
    for utterance, played in zip(utterances, whole, strict=True):
        final = [w for e in played.ended for w in e.words]
        player = SlotPlayer(live, 1)
        player.open(0, utterance.audio)
        while player.has_tick(0):
            player.step([0])
            t = player.sequences[0].position / SECOND
            due += sum(w.end_s < t - 1.5 for w in final)
            committed += min(len(said_so_far(player, 0)), sum(w.end_s < t - 1.5 for w in final))
    assert due > 500
    assert committed >= 0.95 * due


def cost(model: LiveModel, audio: Samples) -> dict[str, int]:
    """Work counters of the audio played alone."""
    player = SlotPlayer(model, 1)
    player.open(0, audio)
    player.play()
    return player.counters


@pytest.mark.slow
def test_work_grows_with_the_audio_and_with_nothing_else(live: LiveModel, utterances: list[Utterance]) -> None:
    """What is re-read or re-encoded would make the second half dearer than the first."""
    once = np.concatenate([part for u in utterances[:3] for part in (u.audio, PAUSE)])
    once = once[: len(once) // TICK_SAMPLES * TICK_SAMPLES]
    assert len(once) > 30 * SECOND
    half, whole = cost(live, once), cost(live, np.concatenate((once, once)))
    ticks = (len(once) - 511) // TICK_SAMPLES
    assert half["encoder_frames"] == (ticks + 1) * TICK_FRAMES  # each frame once, and the flush at END
    assert half["cross_frames"] == half["encoder_frames"]
    assert half["decoder_positions"] <= 12 * half["ticks"]
    for name in ("encoder_frames", "cross_frames", "decoder_positions", "decoder_passes"):
        assert abs(whole[name] / half[name] - 2) <= 0.1, (name, whole, half)


def test_silence_is_not_read(live: LiveModel, utterances: list[Utterance]) -> None:
    speech = utterances[0].audio
    alone = cost(live, np.concatenate((speech, PAUSE)))
    quiet = cost(live, np.concatenate((speech, np.zeros(20 * SECOND, np.float32))))
    assert quiet["decoder_positions"] <= alone["decoder_positions"] + 24


def test_utterances_end_at_pauses_and_tile_the_audio(live: LiveModel, utterances: list[Utterance]) -> None:
    audio = np.concatenate([part for u in utterances[:3] for part in (u.audio, PAUSE)])
    (played,) = together(live, [audio])
    spoken = [e for e in played.ended if e.words]
    assert len(spoken) >= 3
    assert {e.cause for e in spoken} <= {UtteranceEnd.ENDPOINT, UtteranceEnd.END}
    for before, after in pairwise(played.ended):
        assert before.first_sample <= before.end_sample <= after.first_sample + TICK_SAMPLES
    assert played.ended[-1].end_sample == len(audio)
    for ended in spoken:
        times = [t for w in ended.words for t in (w.start_s, w.end_s)]
        assert times == sorted(times)
        assert ended.first_sample / SECOND <= times[0]
        assert times[-1] <= ended.end_sample / SECOND + 0.25


def test_a_commitment_stands(live: LiveModel, utterances: list[Utterance]) -> None:
    """Within an utterance each list of committed words begins with the one before, apart from punctuation."""
    player = SlotPlayer(live, len(utterances))
    for slot, utterance in enumerate(utterances):
        player.open(slot, utterance.audio)
    shown: dict[int, list[str]] = {slot: [] for slot in range(len(utterances))}
    due = [slot for slot in shown if player.has_tick(slot)]
    ticks = 0
    while due:
        ticks += 1
        flushes = {s: (player.sequences[s].position, False) for s in due if ticks % 17 == 0}
        for step_ticks, step_flushes in ((due, {}), ((), flushes)):
            if not step_ticks and not step_flushes:
                continue
            player.step(step_ticks, step_flushes)
            for slot in step_ticks or step_flushes:
                output = player.sequences[slot].outputs[-1]
                said = words(joined(output.ended.words)) if output.ended else words(joined(output.committed))
                assert said[: len(shown[slot])] == shown[slot]
                shown[slot] = words(joined(output.committed)) if not output.ended else []
        due = [slot for slot in due if player.has_tick(slot)]
    assert ticks > 30
