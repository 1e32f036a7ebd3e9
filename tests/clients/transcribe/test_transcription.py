"""Files through an engine of accumulator models: every sample of every file is read once, in its own sequence."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from clients.transcribe.audio_file import AudioFile, Samples
from clients.transcribe.transcript import FileRecord
from clients.transcribe.transcription import Transcription, model_audio
from server.codec.pcm import PcmDecoder
from server.codec.resampler import Resampler
from server.engine.engine_config import EngineConfig
from tests.support.accumulator_model import BOMB, ENDPOINT, exact_audio, summary
from tests.support.engines import CONFIG, LIVE, running


def recording(path: Path, samples: Samples) -> Path:
    soundfile.write(path, samples, 16_000, subtype="PCM_16" if path.suffix == ".flac" else "FLOAT")
    return path


async def transcribed(
    files: list[Path], config: EngineConfig = CONFIG, at_once: int = 8
) -> tuple[list[FileRecord], list[int], float]:
    """The records in the order of the files, the order in which they were done, and the seconds of progress."""
    done: dict[int, FileRecord] = {}
    progress: list[float] = []
    async with running(config) as engine:
        work = Transcription(engine=engine, at_once=at_once, on_progress=progress.append, on_record=done.__setitem__)
        await work.run(files)
        assert engine.stats().slots_used == 0
    return [done[index] for index in range(len(files))], list(done), sum(progress)


async def test_files_side_by_side_keep_their_samples_and_their_order(tmp_path: Path) -> None:
    audio = [exact_audio(seed, 3_000 + 17_001 * (seed % 3)) for seed in range(20)]
    files = [recording(tmp_path / f"{index}.flac", samples) for index, samples in enumerate(audio)]
    records, _, seconds = await transcribed(files)
    assert [record["file"] for record in records] == [str(path) for path in files]
    assert [record["text"] for record in records] == [summary(samples) for samples in audio]
    assert [record["live_text"] for record in records] == [summary(samples) for samples in audio]
    assert [record["seconds"] for record in records] == [round(len(samples) / 16_000, 3) for samples in audio]
    assert seconds == pytest.approx(sum(map(len, audio)) / 16_000)
    assert not any("error" in record for record in records)


async def test_the_same_file_may_be_given_twice(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.flac", exact_audio(1, 5_000))
    records, _, _ = await transcribed([path, path])
    assert records[0] == records[1]


async def test_segments_are_the_utterances(tmp_path: Path) -> None:
    samples = exact_audio(3, 64 * 20 + 7)
    samples[64 * 10 + 7 - 1] = ENDPOINT  # the last sample of the tenth tick
    (record,), _, _ = await transcribed([recording(tmp_path / "a.wav", samples)])
    cut = 64 * 10 + 7
    assert [segment["text"] for segment in record["segments"]] == [summary(samples[:cut]), summary(samples[cut:])]
    assert record["text"] == f"{summary(samples[:cut])} {summary(samples[cut:])}"
    first, second = record["segments"]
    assert first["words"] == [
        {"word": summary(samples[:cut]), "start": 0.0, "end": round(cut / 16_000, 3), "confidence": 1.0}
    ]
    assert second["live_text"] == summary(samples)  # the accumulator goes on counting
    assert second["words"][0]["start"] == pytest.approx(cut / 16_000, abs=0.001)
    json.dumps(record)


async def test_what_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    good = exact_audio(5, 9_000)
    not_a_number = exact_audio(6, 40_000)
    not_a_number[35_000] = np.nan
    files = [
        tmp_path / "missing.wav",
        recording(tmp_path / "nan.wav", not_a_number),
        recording(tmp_path / "bomb.wav", np.full(500, BOMB, np.float32)),
        recording(tmp_path / "good.flac", good),
    ]
    (missing, damaged, bomb, fine), _, _ = await transcribed(files, at_once=1)
    assert missing == {
        "file": str(files[0]),
        "seconds": 0.0,
        "text": "",
        "live_text": "",
        "segments": [],
        "error": "no such file",
    }
    assert damaged["error"] == "holds a sample that is no number after 2.0 s"
    assert damaged["text"] == summary(not_a_number[:32_000])  # what came before it is there
    assert bomb["error"]
    assert "internals" not in bomb["error"]
    assert fine["text"] == summary(good)
    assert "error" not in fine


async def test_no_more_files_are_open_than_told(tmp_path: Path) -> None:
    files = [recording(tmp_path / f"{index}.flac", exact_audio(index, 20_000)) for index in range(6)]
    one_slot = replace(CONFIG, live=replace(LIVE, instances=1, slots=1))
    records, order, _ = await transcribed(files, one_slot, at_once=1)
    assert order == list(range(6))
    assert not any("error" in record for record in records)


@pytest.mark.slow
async def test_a_long_file_is_decoded_no_faster_than_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s: list[float] = []
    read_s: list[float] = []

    class Watched(AudioFile):
        def blocks(self, block_s: float = 1.0) -> Iterator[Samples]:
            for index, block in enumerate(super().blocks(block_s)):
                ahead_s.append(index * block_s - sum(read_s))
                yield block

    monkeypatch.setattr("clients.transcribe.transcription.AudioFile", Watched)
    path = recording(tmp_path / "long.flac", exact_audio(9, 16_000 * 60))
    config = replace(CONFIG, live=replace(LIVE, instances=1, slots=1, max_queued_s=2.0))
    done: dict[int, FileRecord] = {}
    async with running(config) as engine:
        await Transcription(engine=engine, at_once=1, on_progress=read_s.append, on_record=done.__setitem__).run([path])
    assert done[0]["seconds"] == 60.0
    assert len(ahead_s) == 60
    assert max(ahead_s) < 6.0  # two seconds queued, a block in hand, results on their way


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 48_000])
def test_a_file_gives_the_samples_that_a_websocket_would(tmp_path: Path, rate: int) -> None:
    values = np.random.default_rng(rate).integers(-9_000, 9_000, 3 * rate, dtype=np.int16)
    soundfile.write(tmp_path / "a.wav", values, rate, subtype="PCM_16")
    with AudioFile(tmp_path / "a.wav") as file:
        here = np.concatenate(list(model_audio(file)))
    resampler = Resampler(rate)
    there = np.concatenate(
        [resampler.process(PcmDecoder("linear16", 1).decode(values.tobytes())[0]), resampler.finish()]
    )
    assert np.array_equal(here, there)


def test_rates_that_no_websocket_takes_are_resampled_too(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(400_000, np.float32), 400_000)
    with AudioFile(tmp_path / "a.wav") as file:
        assert len(np.concatenate(list(model_audio(file)))) == 16_000
