"""What is written down in ``clips.py`` is what the files hold, and building them again gives the same bytes."""

import numpy as np
import pytest
import soundfile

from audio_fixtures.build import without_chance
from audio_fixtures.clips import CUTS, SYNTHESISED, UTTERANCES, Cut, Synthesised
from tests.support.fixtures import FOLDER, Fixture, fixture, fixtures


@pytest.mark.parametrize("clip", SYNTHESISED, ids=lambda clip: clip.file)
def test_the_manifest_follows_the_clip(clip: Synthesised) -> None:
    found = next(found for found in fixtures(clip.kind) if found.path == FOLDER / clip.file)
    assert (found.text, found.rate, found.channels) == (clip.text, clip.rate, len(clip.gains))
    assert found.format.endswith(f"/{clip.subtype}")
    assert found.speaker == f"{clip.voice.engine} {clip.voice.name}"


@pytest.mark.parametrize("piece", CUTS, ids=lambda piece: piece.file)
def test_a_cut_is_a_part_of_its_utterance_sample_for_sample(piece: Cut) -> None:
    whole = fixture(piece.utterance)
    expected, rate = soundfile.read(whole.path, dtype="int16")
    found = next(found for found in fixtures(piece.kind) if found.path == FOLDER / piece.file)
    audio, _ = soundfile.read(found.path, dtype="int16")
    assert np.array_equal(audio, expected[piece.start_ms * rate // 1000 : piece.end_ms * rate // 1000])
    assert f" {piece.text} " in f" {whole.text} "
    assert found.speaker == whole.speaker


def test_every_utterance_of_the_list_is_there() -> None:
    assert {found.path.stem for found in fixtures("utterance")} == set(UTTERANCES)


@pytest.mark.parametrize("found", [f for f in fixtures() if f.path.suffix == ".opus"], ids=lambda f: f.path.name)
def test_the_serial_number_of_an_ogg_file_is_no_matter_of_chance(found: Fixture) -> None:
    kept = found.path.read_bytes()
    serial = kept[14:18]
    other = kept.replace(serial, b"\x01\x02\x03\x04")
    assert other != kept
    assert without_chance(other) == kept


def test_the_time_stamp_of_a_float_wav_is_no_matter_of_chance() -> None:
    kept = fixture("en_gb_16k_float").path.read_bytes()
    at = kept.index(b"PEAK") + 12
    assert without_chance(kept[:at] + b"\x11\x22\x33\x44" + kept[at + 4 :]) == kept


def test_other_files_are_left_alone() -> None:
    kept = fixture("slt_16k").path.read_bytes()
    assert without_chance(kept) == kept
