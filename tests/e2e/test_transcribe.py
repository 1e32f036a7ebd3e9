"""``moorage transcribe`` with the real models on real and synthesised speech."""

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from clients.transcribe.audio_file import read_audio
from clients.transcribe.command import embedded_engine, sized
from clients.transcribe.transcript import FileRecord
from clients.transcribe.transcription import Transcription
from clients.word_error_rate import WordErrors, word_errors
from server.configuration.config import load_config
from tests.support.fixtures import ROOT, SharedRow, fixture, fixtures, shared_rows


def moorage(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line as a user runs it."""
    command = [sys.executable, "-m", "server", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def damaged(folder: Path, source: Path) -> list[Path]:
    """Four files that cannot be read: no audio, nothing, a NaN, and one cut off in its middle."""
    samples = read_audio(source)
    (folder / "text.wav").write_text("not audio")
    (folder / "empty.flac").touch()
    poisoned = samples.copy()
    poisoned[len(samples) // 2] = np.nan
    soundfile.write(folder / "nan.wav", poisoned, 16_000, subtype="FLOAT")
    soundfile.write(folder / "whole.flac", samples, 16_000)
    whole = (folder / "whole.flac").read_bytes()
    (folder / "cut.flac").write_bytes(whole[: len(whole) * 2 // 3])
    return [folder / name for name in ("text.wav", "empty.flac", "nan.wav", "cut.flac")]


async def transcribed(*runs: list[Path], final: str = "moonshine-base") -> list[list[FileRecord]]:
    """The records of each run, all on one engine."""
    config = sized(load_config(environment={}, overrides={"final": {"model": final}}), max(map(len, runs)))
    at_once = config.live.slots * config.live.n_instances
    async with embedded_engine(config) as engine:
        records = []
        for files in runs:
            done: dict[int, FileRecord] = {}
            work = Transcription(
                engine=engine, at_once=at_once, on_progress=lambda seconds: None, on_record=done.__setitem__
            )
            await work.run(files)
            records.append([done[index] for index in range(len(files))])
        return records


def errors_of(record: FileRecord, truth: str) -> tuple[WordErrors, WordErrors]:
    """Of the final and of the live text."""
    return word_errors(truth, record["text"]), word_errors(truth, record["live_text"])


@pytest.mark.timeout(600)
def test_json_is_one_array_in_the_order_given_and_bad_files_are_named(tmp_path: Path) -> None:
    good = fixtures("utterance")[:3]
    bad = damaged(tmp_path, good[0].path)
    files = [good[0].path, bad[0], bad[1], good[1].path, bad[2], bad[3], good[2].path]
    result = moorage("transcribe", *files, "--format", "json")
    assert result.returncode == 1
    records: list[FileRecord] = json.loads(result.stdout)
    assert [record["file"] for record in records] == [str(path) for path in files]
    assert [Path(record["file"]) for record in records if "error" in record] == bad
    for path in bad:
        assert f"{path}: " in result.stderr
    by_file = {record["file"]: record for record in records}
    for speech in good:
        record = by_file[str(speech.path)]
        final, live = errors_of(record, speech.text)
        assert final.percent <= 15
        assert live.percent <= 40
        assert record["seconds"] == pytest.approx(speech.seconds, abs=0.01)
        check_times(record)
    assert by_file[str(bad[3])]["text"]  # what stood before the cut


def check_times(record: FileRecord) -> None:
    """Segments tile in order, words lie within them in order, texts are made of their parts."""
    for before, after in pairwise(record["segments"]):
        assert before["end"] <= after["start"] + 1e-3
    for segment in record["segments"]:
        assert 0 <= segment["start"] < segment["end"] <= record["seconds"] + 1e-3
        words = segment["words"]
        assert " ".join(word["word"] for word in words) == segment["text"]
        assert all(0 < word["confidence"] <= 1 for word in words)
        assert all(segment["start"] - 1e-3 <= word["start"] <= word["end"] for word in words)
        assert all(word["end"] <= segment["end"] + 1e-3 for word in words)
        assert all(before["start"] <= after["start"] for before, after in pairwise(words))
    assert record["text"] == " ".join(segment["text"] for segment in record["segments"] if segment["text"])


@pytest.mark.timeout(600)
def test_company_and_bad_neighbours_change_no_text(tmp_path: Path) -> None:
    good = [speech.path for speech in fixtures("utterance")[:4]]
    bad = damaged(tmp_path, good[0])
    silence = fixture("silence_16k").path
    company = [bad[2], good[2], bad[0], good[0], silence, good[3], bad[3], good[1]]
    alone, in_company = asyncio.run(transcribed(good, company))
    found = {record["file"]: record for record in in_company}
    assert found[str(silence)]["segments"] == []
    assert "error" not in found[str(silence)]
    for record in alone:
        other = found[record["file"]]
        assert (other["text"], other["live_text"]) == (record["text"], record["live_text"])


@pytest.mark.timeout(600)
def test_formats_and_rates_are_read_alike(tmp_path: Path) -> None:
    speech = fixtures("utterance")[0]
    samples, rate = soundfile.read(speech.path, dtype="float32")
    assert rate == 16_000
    stereo = np.stack([samples, samples], axis=1)
    written = {
        "a.wav": (samples, "PCM_16"),
        "float.wav": (samples, "FLOAT"),
        "stereo.flac": (stereo, "PCM_16"),
        "a.mp3": (samples, None),
        "a.opus": (samples, "OPUS"),
    }
    for name, (audio, subtype) in written.items():
        container = "OGG" if name.endswith(".opus") else None
        soundfile.write(tmp_path / name, audio, rate, subtype=subtype, format=container)
    files = [speech.path, *(tmp_path / name for name in written)]
    ((original, *others),) = asyncio.run(transcribed(files, final="none"))
    assert original["text"] == original["live_text"] != ""
    by_name = {Path(record["file"]).name: record for record in others}
    for name in ("a.wav", "float.wav", "stereo.flac"):  # the same samples
        assert by_name[name]["text"] == original["text"]
    for name in ("a.mp3", "a.opus"):
        assert errors_of(by_name[name], speech.text)[1].percent <= 40


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rows", [rows for rows in [shared_rows("clean")] if rows], ids=lambda rows: "clean")
def test_clean_speech_has_few_word_errors(rows: list[SharedRow]) -> None:
    (records,) = asyncio.run(transcribed([row.path for row in rows]))
    final, live = WordErrors(), WordErrors()
    for row, record in zip(rows, records, strict=True):
        errors = errors_of(record, row.text)
        final, live = final + errors[0], live + errors[1]
    assert final.percent <= 4.0
    assert live.percent <= 10.7  # the reference reading has 9.7


def watched(path: Path) -> tuple[FileRecord, list[float]]:
    """The record of a file transcribed by a process of its own, and that process's memory in MB, once a second."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "server", "transcribe", path, "--format", "json"], stdout=output
        )
        rss_mb: list[float] = []
        while process.poll() is None:
            rss_mb.append(psutil.Process(process.pid).memory_info().rss / 2**20)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        assert process.returncode == 0
        output.seek(0)
        (record,) = json.load(output)
    return record, rss_mb


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", shared_rows("long"), ids=lambda row: row.id)
def test_long_files_are_read_to_their_last_word(row: SharedRow) -> None:
    record, rss_mb = watched(row.path)
    if len(rss_mb) > 2 * 60:  # seconds; the floor between finals, which come and go
        assert min(rss_mb[-30:]) <= min(rss_mb[60:90]) + 5
    truth = row.text.lower().split()
    heard = record["text"].lower().split()
    assert len(heard) == pytest.approx(len(truth), rel=0.05)
    assert word_errors(" ".join(truth[-6:]), " ".join(heard[-6:])).distance <= 3
    assert errors_of(record, row.text)[0].percent <= 10
    check_times(record)


@pytest.mark.timeout(600)
def test_subtitles_have_the_words_of_the_text_while_they_are_said(tmp_path: Path) -> None:
    speech = fixtures("utterance")[:2]
    silence = fixture("silence_16k")
    files = [*(each.path for each in speech), silence.path]
    result = moorage("transcribe", *files, "--format", "vtt", "--output-dir", tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    assert (tmp_path / "silence_16k.vtt").read_text() == "WEBVTT\n"
    for each in speech:
        head, *cues = (tmp_path / f"{each.path.stem}.vtt").read_text().split("\n\n")
        assert head == "WEBVTT"
        assert word_errors(each.text, " ".join(" ".join(cue.splitlines()[1:]) for cue in cues)).percent <= 15
        last_s = 0.0
        for cue in cues:
            times, *lines = cue.splitlines()
            start_s, end_s = (clock_s(time) for time in times.split(" --> "))
            assert last_s <= start_s < end_s <= start_s + 7.0
            assert 1 <= len(lines) <= 2
            assert all(len(line) <= 42 for line in lines)
            last_s = end_s
        assert last_s <= each.seconds + 1.0


def clock_s(time: str) -> float:
    """Seconds of HH:MM:SS.mmm."""
    hours, minutes, seconds = time.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
