"""Replay: what is sent and when, what is shown, and the figures at the end."""

import asyncio
import json
import struct
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console
from typer.testing import CliRunner
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection as SyncConnection
from websockets.sync.server import serve as serve_in_thread

from clients.connection import ConnectionFailed
from clients.messages import Results
from clients.replay.command import Replay, ReplayOutcome, measure, shares
from clients.replay.latency import NS, Heard, Latencies, Timeline
from clients.replay.playback import Pace, Playback, play
from clients.replay.view import ReplayView, print_latencies, print_left_out, print_texts, print_word_errors
from clients.service_options import EXIT_BUSY, EXIT_KEY_REFUSED, exit_code
from clients.transcribe.audio_file import Samples
from clients.word_error_rate import WordErrors
from server.cli import build_cli
from server.errors import BadAudio
from tests.support.accumulator_model import ENDPOINT, exact_audio, summary
from tests.support.engines import CONFIG, live_only
from tests.support.results import metadata, results
from tests.support.service import serving


@dataclass
class Listener:
    """A peer that counts samples: an interim for every tick, and at the end how many there were and their sum."""

    fail_after_ticks: int | None = None
    audio: list[bytes] = field(default_factory=list)
    open_now: int = 0
    most_open: int = 0

    async def listen(self, socket: ServerConnection) -> None:
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self._listen(socket)
        finally:
            self.open_now -= 1

    async def _listen(self, socket: ServerConnection) -> None:
        audio, ticks = b"", 0
        async for message in socket:
            if isinstance(message, str):
                assert json.loads(message) == {"type": "CloseStream"}
                break
            audio += message
            while len(audio) // 2 >= 3840 * (ticks + 1) + 511:
                ticks += 1
                if ticks == self.fail_after_ticks:
                    await socket.close(1011, "step_failed")
                    return
                await socket.send(results("one tw", is_final=False, covered_s=ticks * 0.24))
        self.audio.append(audio)
        total = sum(struct.unpack(f"<{len(audio) // 2}h", audio))
        text = f"One {len(audio) // 2} {total}."
        await socket.send(results(text, is_final=True, covered_s=len(audio) / 32_000, live="one two three"))
        await socket.send(metadata())


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[str]:
    async with serve(listener.listen, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def recording(path: Path, seconds: float, rate: int = 16_000) -> Path:
    values = np.random.default_rng(len(path.name)).integers(-9000, 9000, round(seconds * rate), dtype=np.int16)
    soundfile.write(path, values, rate, subtype="PCM_16")
    return path


def ignore(result: Results) -> None:
    """Nobody looks."""


async def test_every_sample_is_sent_once_and_never_before_it_is_spoken(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", 1.013)
    listener = Listener()
    async with listening(listener) as url:
        playback = await play(path, url, Pace(speed=20.0, chunk_ms=20, silence_s=0.25), ignore)
    expected = soundfile.read(path, dtype="int16")[0].astype("<i2").tobytes() + bytes(4000 * 2)
    assert listener.audio == [expected]
    timeline = playback.timeline
    assert timeline.sent[-1].end_s == pytest.approx(1.263)
    assert all(chunk.sent_at_ns >= timeline.spoken_at_ns(chunk.end_s) for chunk in timeline.sent)
    assert [heard.covered_s for heard in timeline.interims] == pytest.approx([0.24, 0.48, 0.72, 0.96, 1.2])
    assert playback.live_text == "one two three"
    assert playback.text.startswith(f"One {16208 + 4000} ")


@pytest.mark.parametrize(
    ("rate", "sent"), [(8_000, 8_000), (44_100, 44_100), (96_000, 96_000), (192_000, 16_000), (2_000, 16_000)]
)
async def test_the_rate_of_the_file_is_sent_where_the_service_takes_it(tmp_path: Path, rate: int, sent: int) -> None:
    listener = Listener()
    async with listening(listener) as url:
        await play(recording(tmp_path / "a.wav", 0.5, rate), url, Pace(speed=50.0), ignore)
    assert len(listener.audio[0]) // 2 == sent // 2


async def test_a_failure_of_the_service_ends_the_file_at_once(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", 60.0)
    began_at = time.monotonic()
    async with listening(Listener(fail_after_ticks=2)) as url:
        with pytest.raises(ConnectionFailed, match="1011: step_failed"):
            await play(path, url, Pace(speed=5.0), ignore)
    assert time.monotonic() - began_at < 6.0  # the file would take 12 s


async def test_a_damaged_file_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    good, bad = recording(tmp_path / "a.wav", 0.5), tmp_path / "b.flac"
    whole = recording(tmp_path / "whole.flac", 2.0).read_bytes()
    bad.write_bytes(whole[: len(whole) // 2])
    listener = Listener()
    console = Console(file=(tmp_path / "out.txt").open("w"), width=200)
    async with listening(listener) as url:
        with pytest.raises(BadAudio, match="is damaged"):
            await play(bad, url, Pace(speed=50.0), ignore)
        with ReplayView(console, 2) as view:
            outcome = await Replay(url=url, pace=Pace(speed=50.0), view=view).run([bad, good], 2)
    console.file.close()
    assert [playback.path for playback in outcome.played] == [good]
    assert list(outcome.failures) == [bad]
    assert "is damaged" in outcome.failures[bad]
    assert f"{bad}: is damaged" in (tmp_path / "out.txt").read_text()


async def test_streams_run_side_by_side_and_files_repeat(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", 3.0)
    listener = Listener()
    console = Console(file=(tmp_path / "out.txt").open("w"), width=200)
    async with listening(listener) as url:
        with ReplayView(console, 3) as view:
            outcome = await Replay(url=url, pace=Pace(), view=view).run([path], 3)
    console.file.close()
    assert listener.most_open == 3
    assert len(outcome.played) == 3
    assert len(set(listener.audio)) == 1
    starts = sorted(playback.timeline.started_at_ns for playback in outcome.played)
    assert starts[1] - starts[0] > 0.5 * NS  # spread over two seconds
    assert (tmp_path / "out.txt").read_text().count("One 48000 ") == 3


@pytest.mark.parametrize(
    ("files", "streams", "expected"),
    [
        ("abcde", 2, ["ace", "bd"]),
        ("ab", 2, ["a", "b"]),
        ("ab", 5, ["a", "b", "a", "b", "a"]),
        ("a", 1, ["a"]),
    ],
)
def test_files_are_dealt_out(files: str, streams: int, expected: list[str]) -> None:
    dealt = shares([Path(name) for name in files], streams)
    assert ["".join(map(str, share)) for share in dealt] == expected


class FixedAligner:
    """Words end every half second."""

    def __init__(self) -> None:
        self.calls = 0

    def word_ends(self, audio: Samples, words: Sequence[str]) -> list[float]:
        self.calls += 1
        assert 1_600 <= len(audio) <= 40 * 16_000
        return [(index + 1) / 2 for index in range(len(words))]


async def played(path: Path) -> Playback:
    async with listening(Listener()) as url:
        return await play(path, url, Pace(speed=50.0), ignore)


async def test_measure_sums_errors_and_times_words_that_line_up(tmp_path: Path) -> None:
    takes = [await played(recording(tmp_path / name, 2.0, 16_000)) for name in ("a.wav", "b.wav")]
    takes.append(takes[0])
    aligner = FixedAligner()
    measured = measure(takes, {takes[0].path: "one two three", takes[1].path: "one two"}, aligner)
    final, live, latencies = measured.final, measured.live, measured.latencies
    assert (live.insertions, live.distance, live.reference_words) == (1, 1, 8)
    assert final.deletions + final.substitutions == 2 + 1 + 2  # the numbers are no words
    assert aligner.calls == 1  # once a file
    assert latencies.aligned_sequences == 2
    assert len(latencies.commit_ms) == 6
    assert len(latencies.closing_final_ms) == 2
    assert len(latencies.step_ms) == 3 * 8
    assert measured.left_out == ("the live words do not line up with the reference",)
    without = measure(takes, {}, None)
    assert (without.final, without.live) == (WordErrors(), WordErrors())
    assert without.latencies.step_ms == latencies.step_ms
    assert without.left_out == ("no reference text",) * 3


def test_recordings_of_a_length_that_cannot_be_aligned_have_no_word_delays(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", 40.1)
    said = Heard(utterance=0, text="one", committed_text="one", covered_s=1.0, arrived_at_ns=NS)
    take = Playback(path=path, finals=(), timeline=Timeline(started_at_ns=0, finals=[said]))
    aligner = FixedAligner()
    measured = measure([take, take], {path: "one"}, aligner)
    assert measured.latencies == Latencies()
    assert measured.left_out == ("words are found in recordings of 0.1 to 40 s alone",) * 2
    assert aligner.calls == 0
    recording(path, 40.0)
    measured = measure([take], {path: "one"}, aligner)
    assert measured.latencies.final_ms == (500.0,)
    assert measured.left_out == ()


async def test_the_report_shows_texts_errors_and_latency(tmp_path: Path) -> None:
    take = await played(recording(tmp_path / "a.wav", 1.0))
    other = Playback(path=take.path, finals=(), timeline=Timeline(started_at_ns=0))
    console = Console(record=True, width=160, file=(tmp_path / "out.txt").open("w"))
    print_texts(console, [take, take, other], {take.path: "ONE TWO"})
    print_word_errors(console, WordErrors(substitutions=1, reference_words=8), WordErrors(reference_words=8))
    print_latencies(console, Latencies(step_ms=(12.4, 20.0), ticks_without_result=3))
    print_left_out(console, ("too long", "no text", "too long"), 4)
    print_left_out(console, ("all odd",), 1)
    print_left_out(console, (), 1)
    console.file.close()
    shown = console.export_text()
    assert "final (2 of 3 times)" in shown
    assert "ONE TWO" in shown
    assert "12.50 %" in shown
    assert "2 ticks" in shown
    assert "word delay" not in shown
    assert "3 ticks had no result" in shown
    assert [line for line in shown.splitlines() if "leave out" in line] == [
        "word and final delays leave out 2 of 4 played: too long",
        "word and final delays leave out 1 of 4 played: no text",
        "word and final delays leave out 1 of 1 played: all odd",
    ]


def test_a_terminal_sees_open_utterances_in_place(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=80, file=(tmp_path / "out.txt").open("w"), color_system="standard")
    with ReplayView(console, 20) as view:
        for stream in range(20):
            view.show(stream, Path(f"{stream}.wav"), Results.model_validate_json(results("fix chang", is_final=False)))
        view.show(0, Path("0.wav"), Results.model_validate_json(results("Fixed.", is_final=True)))
    console.file.close()
    shown = (tmp_path / "out.txt").read_text()
    assert "\x1b[1mfix\x1b[0m" in shown
    assert "\x1b[2;3m chang\x1b[0m" in shown  # the name's colour ends with the name
    assert "… and 8 more" in shown
    assert "Fixed." in shown


async def test_the_service_hears_what_the_file_holds(tmp_path: Path) -> None:
    samples = exact_audio(4, 16_000)
    samples[64 * 100 + 7 - 1] = ENDPOINT  # ends an utterance with the hundredth tick of the accumulator
    path = tmp_path / "a.flac"
    soundfile.write(path, samples, 16_000, subtype="PCM_16")
    cut = 64 * 100 + 7
    async with serving(CONFIG) as service:
        url = f"ws://127.0.0.1:{service.gateway.port}"
        takes = await asyncio.gather(*(play(path, url, Pace(speed=4.0, chunk_ms=20), ignore) for _ in range(3)))
    for take in takes:
        assert [result.transcript for result in take.finals] == [summary(samples[:cut]), summary(samples[cut:])]
        assert take.live_text == f"{summary(samples[:cut])} {summary(samples)}"
        covered = [heard.covered_s for heard in take.timeline.interims]
        assert covered == sorted(covered)
        assert covered[-1] == pytest.approx((64 * 249 + 7) / 16_000)
    assert len({take.finals[0].moorage.sequence_id for take in takes}) == 3


async def two_streams_one_slot(folder: Path, patience_s: float) -> ReplayOutcome:
    path = recording(folder / "a.wav", 2.0)
    console = Console(file=(folder / "out.txt").open("w"), width=200)
    async with serving(live_only(instances=1, slots=1)) as service:
        url = f"ws://127.0.0.1:{service.gateway.port}"
        with ReplayView(console, 2) as view:
            replay = Replay(url=url, pace=Pace(speed=0.5), view=view, patience_s=patience_s)
            outcome = await replay.run([path, path], 2)
    console.file.close()
    return outcome


async def test_a_full_service_refuses_with_its_reason(tmp_path: Path) -> None:
    outcome = await two_streams_one_slot(tmp_path, patience_s=0.0)
    assert len(outcome.played) == 1
    assert outcome.failures == {}
    assert outcome.refused is not None
    assert exit_code(outcome.refused) == EXIT_BUSY
    assert str(outcome.refused).startswith("refused with 503: ")
    assert "try again in 1 s" in str(outcome.refused)


async def test_a_full_service_is_asked_again(tmp_path: Path) -> None:
    outcome = await two_streams_one_slot(tmp_path, patience_s=30.0)
    assert len(outcome.played) == 2
    assert not outcome.failures
    assert "a.wav  waits: every slot is taken" in (tmp_path / "out.txt").read_text()


def test_a_wrong_key_is_told_once_for_all_files(tmp_path: Path) -> None:
    files = [recording(tmp_path / name, 0.2) for name in ("a.wav", "b.wav", "c.wav")]
    asked: list[str | None] = []

    def refuse(socket: SyncConnection, request: Request) -> Response:
        asked.append(request.headers.get("Authorization"))
        return socket.respond(HTTPStatus.UNAUTHORIZED, "no such key\n")

    with serve_in_thread(lambda socket: None, "127.0.0.1", 0, process_request=refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        result = CliRunner().invoke(build_cli(), ["replay", *map(str, files), "--url", url, "--key", "k1"])
        server.shutdown()
        thread.join()
    assert (result.exit_code, result.stdout) == (EXIT_KEY_REFUSED, "")
    assert result.stderr == f"{url}: refused with 401: no such key\n"
    assert asked == ["Token k1"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a.wav", "b.wav", "--text", "one"], 2, "--text is the reference of one file"),
        (["a.wav", "--manifest", "nowhere.tsv"], 2, "nowhere.tsv: cannot be read"),
        (["a.wav", "--chunk-ms", "10"], 2, "Invalid value for '--chunk-ms'"),
        (["a.wav", "--url", "http://127.0.0.1:9911"], 2, "given 'http://127.0.0.1:9911', allowed: ws:// or wss://"),
        (["a.wav"], 1, "a.wav: no such file"),
    ],
)
def test_what_cannot_be_played_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(build_cli(), ["replay", *arguments])
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_nobody_listening_is_told_with_the_address(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", 0.2)
    result = CliRunner().invoke(build_cli(), ["replay", str(path), "--url", "ws://127.0.0.1:1", "--silence-s", "0"])
    assert result.exit_code == 1
    assert f"{path}: cannot connect to ws://127.0.0.1:1" in result.stderr
