"""The final model: features, decoding, its guard, and what the service gets."""

import numpy as np
import onnxruntime
import pytest
import soundfile
import torch

from asr_model.contract import Samples, Scheduler
from asr_model.final.features import encode
from asr_model.final.guard import RunawayGuard
from asr_model.final.model import FinalModel, build
from asr_model.moonshine.dimensions import LAYERS, SAMPLE_RATE, WINDOW_SAMPLES
from asr_model.moonshine.layers import Encoder
from asr_model.moonshine.weights import ENCODER_FILE, load_weights
from asr_model.transcript import FinalOutput, joined
from clients.word_error_rate import WordErrors, word_errors, words
from tests.asr_model.conftest import Utterance, samples_of
from tests.support.fixtures import SharedRow, fixture, fixtures, shared_rows

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def final() -> FinalModel:
    return build({}, CPU)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_weights().encoder()


def nothing() -> None:
    """No pause."""


def texts(outputs: list[FinalOutput]) -> list[str]:
    return [joined(output.words) for output in outputs]


def text(final: FinalModel, audio: Samples) -> str:
    return texts(final.run([audio], nothing))[0]


def noise(seconds: float, level_db: float, seed: int = 1) -> Samples:
    rng = np.random.default_rng(seed)
    return (10 ** (level_db / 20) * rng.standard_normal(int(seconds * SAMPLE_RATE))).clip(-1, 1).astype(np.float32)


# Features


@torch.inference_mode()
def test_the_encoder_is_the_published_one(encoder: Encoder, utterances: list[Utterance]) -> None:
    session = onnxruntime.InferenceSession(str(load_weights().source / ENCODER_FILE))
    for utterance in utterances[:2]:
        audio = utterance.audio[: 6 * SAMPLE_RATE]
        published = session.run(None, {"input_values": audio[None]})[0][0]
        features = encode(encoder, [audio], CPU, nothing)
        assert features.frames == features.heard == (len(published),)
        assert np.abs(features.values[0].numpy() - published).max() < 1e-3


@torch.inference_mode()
def test_padding_and_company_do_not_change_features(encoder: Encoder, utterances: list[Utterance]) -> None:
    long, short = utterances[0].audio, 0.1 * utterances[1].audio[: 2 * SAMPLE_RATE + 77]
    loud = noise(3.0, -3)
    together = encode(encoder, [long, short, loud], CPU, nothing)
    for row, audio in enumerate((long, short, loud)):
        alone = encode(encoder, [audio], CPU, nothing)
        n = alone.frames[0]
        assert together.frames[row] == n
        assert (together.values[row, :n] - alone.values[0]).abs().max() < 1e-4


@torch.inference_mode()
def test_a_clip_gets_a_tail_that_is_not_heard(encoder: Encoder) -> None:
    features = encode(encoder, [noise(0.5, -20)], CPU, nothing)
    assert features.frames[0] > features.heard[0] == int(0.5 * SAMPLE_RATE) // 384


# Decoding


def test_real_utterances_are_read(final: FinalModel, utterances: list[Utterance]) -> None:
    errors = WordErrors()
    for utterance, output in zip(utterances, final.run([u.audio for u in utterances], nothing), strict=True):
        errors += word_errors(utterance.text, joined(output.words))
    assert errors.percent < 4


def test_a_row_does_not_depend_on_its_batch(final: FinalModel) -> None:
    """Alone, in company, in another order, beside a row that is not a number: the same text and, to rounding, times."""
    audio = [samples_of(f) for f in fixtures("sentence")[1:4]] + [samples_of(fixture("stop_16k"))]
    alone = [final.run([row], nothing)[0] for row in audio]
    broken = audio[0].copy()
    broken[1000] = np.nan
    for batch in (audio, audio[::-1], [broken, *audio], [*audio, noise(4, -10), np.zeros(0, np.float32)]):
        outputs = final.run(batch, nothing)
        assert len(outputs) == len(batch)
        for row, expected in zip(audio, alone, strict=True):
            at = next(i for i, other in enumerate(batch) if other is row)
            found = outputs[at]
            assert joined(found.words) == joined(expected.words)
            for one, other in zip(found.words, expected.words, strict=True):
                assert one.start_s == pytest.approx(other.start_s, abs=0.01)
                assert one.confidence == pytest.approx(other.confidence, abs=0.01)


def test_the_batch_is_sliced_by_layer_and_pass(final: FinalModel, utterances: list[Utterance]) -> None:
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1

    said = len(final.run([utterances[0].audio], pause)[0].words)
    assert 1 + LAYERS + said < pauses < 1 + LAYERS + 2 * said + 8


@pytest.mark.parametrize("level_db", [-80, -50, -30, -10, 0])
@pytest.mark.parametrize("seconds", [0.3, 2.0, 12.0])
def test_white_noise_holds_no_words(final: FinalModel, level_db: float, seconds: float) -> None:
    assert text(final, noise(seconds, level_db)) == ""


@pytest.mark.parametrize("n_samples", [0, 1, WINDOW_SAMPLES, SAMPLE_RATE // 10, SAMPLE_RATE, 30 * SAMPLE_RATE])
def test_digital_silence_holds_no_words(final: FinalModel, n_samples: int) -> None:
    assert text(final, np.zeros(n_samples, np.float32)) == ""


@pytest.mark.parametrize("n_samples", [1, 127, WINDOW_SAMPLES - 1, WINDOW_SAMPLES, 1599, 1600, 2000])
def test_the_shortest_audio_is_no_error(final: FinalModel, n_samples: int, utterances: list[Utterance]) -> None:
    audio = utterances[0].audio[8000 : 8000 + n_samples]
    for word in final.run([audio], nothing)[0].words:
        assert 0 <= word.start_s < word.end_s <= n_samples / SAMPLE_RATE


def test_audio_is_only_read(final: FinalModel, utterances: list[Utterance]) -> None:
    """Audio from another process cannot be written; torch warns of such arrays, and warnings are errors here."""
    received = np.frombuffer(utterances[0].audio[: 2 * SAMPLE_RATE].tobytes(), np.float32)
    assert not received.flags.writeable
    assert text(final, received).startswith("He smoked")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_audio_that_is_not_finite_holds_no_words(final: FinalModel, utterances: list[Utterance], bad: float) -> None:
    audio = utterances[0].audio.copy()
    audio[-1] = bad
    assert text(final, audio) == ""


def test_clips_of_single_words_are_read(final: FinalModel) -> None:
    clips = fixtures("word")
    outputs = final.run([samples_of(clip) for clip in clips], nothing)
    right = [words(joined(o.words)) == words(clip.text) for clip, o in zip(clips, outputs, strict=True)]
    assert sum(right) >= len(clips) - 1


def test_who_repeats_himself_is_not_cut(final: FinalModel) -> None:
    heard = words(text(final, samples_of(fixture("five_twelve_times_16k"))))
    assert heard == ["five"] * 12


def test_speech_without_a_pause_is_read_to_its_end(final: FinalModel) -> None:
    long = fixture("no_pause_47s_16k")
    heard = text(final, samples_of(long))
    assert words(heard)[-5:] == words(long.text)[-5:]
    assert word_errors(long.text, heard).percent < 5


@pytest.mark.parametrize("gain_db", [-30, 10])
def test_level_does_not_change_the_text(final: FinalModel, utterances: list[Utterance], gain_db: float) -> None:
    plain, changed = texts(
        final.run([utterances[1].audio, utterances[1].audio * np.float32(10 ** (gain_db / 20))], nothing)
    )
    assert words(changed) == words(plain)


@pytest.mark.parametrize("rows", [rows] if (rows := shared_rows("clean")) else [])
def test_word_error_rate_on_test_clean(final: FinalModel, rows: list[SharedRow]) -> None:
    audio = [soundfile.read(row.path, dtype="float32")[0] for row in rows]
    errors = WordErrors()
    for row, heard in zip(rows, texts(final.run(audio, nothing)), strict=True):
        errors += word_errors(row.text, heard)
    assert errors.percent < 4


def test_half_precision_reads_the_same_words(final: FinalModel, utterances: list[Utterance]) -> None:
    half = build({"dtype": "bf16"}, CPU)
    assert half.dtype == torch.bfloat16
    audio = utterances[1].audio
    one, other = half.run([audio], nothing)[0].words, final.run([audio], nothing)[0].words
    assert words(joined(one)) == words(joined(other))
    for a, b in zip(one, other, strict=True):
        assert a.start_s == pytest.approx(b.start_s, abs=0.05)


# The guard


def dropped(tokens: list[int], frames: list[float]) -> tuple[int, int]:
    """After how many tokens the guard ends the row and how many it drops; (0, 0) if it does not."""
    guard = RunawayGuard(1, CPU)
    for n, (token, frame) in enumerate(zip(tokens, frames, strict=True), 1):
        if drop := int(guard.observe(torch.tensor([token]), torch.tensor([frame]))):
            return n, drop
    return 0, 0


def test_repeats_that_advance_are_speech() -> None:
    assert dropped([7, 8] * 12, [10.0 * i for i in range(24)]) == (0, 0)
    assert dropped([7] * 30, [5.0 * i for i in range(30)]) == (0, 0)


def test_a_repeat_of_the_same_frames_is_a_loop() -> None:
    assert dropped([5, 7, 8, 9, 7, 8, 9], [10.0, 20, 30, 40, 21, 31, 41]) == (7, 3)


def test_one_token_may_come_twice_from_the_same_place() -> None:
    assert dropped([5, 7, 7, 9], [10.0, 20, 21, 30]) == (0, 0)
    assert dropped([5, 7, 7, 7, 9], [10.0, 20, 21, 22, 30]) == (4, 2)


def test_a_long_passage_read_again_is_cut_as_soon_as_it_turns_back() -> None:
    passage = list(range(100, 130))
    frames = [10.0 * i for i in range(30)]
    assert dropped(passage + passage, frames + frames) == (33, 3)


def test_a_glance_back_is_no_loop() -> None:
    frames = [10.0, 20, 30, 40, 5, 8, 50, 60]
    assert dropped(list(range(8)), frames) == (0, 0)


def test_a_single_token_that_strays_ahead_is_no_furthest_place() -> None:
    frames = [105.0, *[5.0 * i for i in range(20)]]
    assert dropped(list(range(21)), frames) == (0, 0)


def test_rows_are_watched_each_by_itself() -> None:
    guard = RunawayGuard(3, CPU)
    for i in range(6):
        found = guard.observe(torch.tensor([7, i, 7]), torch.tensor([20.0, 10.0 * i, 10.0 * i]))
        assert (found > 0).tolist() == [i >= 2, False, False]
    guard.keep(torch.tensor([False, True, True]))
    assert guard.observe(torch.tensor([6, 7]), torch.tensor([60.0, 50.0])).tolist() == [0, 0]


# What the service sees


def test_the_declaration(final: FinalModel) -> None:
    assert (final.spec.name, final.spec.scheduler, final.spec.slot_bytes()) == ("moonshine-base", Scheduler.DYNAMIC, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beam": 3}, "no option beam"),
        ({"weights": 3}, "must be a path"),
        ({"dtype": "fp8"}, "one of fp32, bf16"),
        ({"dtype": None}, "one of fp32, bf16"),
    ],
)
def test_options_are_checked(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(options, CPU)
