"""Coded audio through the whole service: each decoded sample is heard once, and Finalize stands where it stood."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from server.app import Service
from server.codec.intake import open_intake
from server.codec.pool import CodecPool
from tests.server.codec.feeding import CONTAINER, listen, pieces, until
from tests.server.codec.media import WEBM, muxed, opus_packets, sound_file, speechlike
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG
from tests.support.service import Client, Heard, address, client, serving, slots_used
from tests.support.wire import linear16

AUDIO = exact_audio(1, 16_000)
FLAC_FILE = sound_file(AUDIO[np.newaxis], 16_000, "FLAC", "PCM_16")
LIVE_FLAC = "encoding=flac&interim_results=true"
FINALIZE = json.dumps({"type": "Finalize"})


@asynccontextmanager
async def coded_client(service: Service, query: str = "") -> AsyncIterator[Client]:
    """A client that declares no encoding unless its query does."""
    socket = await connect(address(service, query, encoding=""), proxy=None, compression=None)
    try:
        yield Client(socket)
    finally:
        socket.transport.abort()
        await socket.wait_closed()


def n_samples(heard: Heard) -> int:
    """All that the sequence was given, as its finals say."""
    return sum(int(text.partition(":")[0]) for text in heard.texts if text)


def codec_process() -> psutil.Process:
    (process,) = (child for child in psutil.Process().children() if "server.codec.process" in child.cmdline())
    return process


@pytest.mark.parametrize("query", ["encoding=flac", ""])
@pytest.mark.parametrize("size", [100, 3000, 100_000])
async def test_every_sample_once(query: str, size: int) -> None:
    async with serving(CONFIG) as service:
        async with coded_client(service, query) as each:
            await each.send(*pieces(FLAC_FILE, [size]))
            heard = await each.end()
        await slots_used(service, 0)
    assert heard.texts == [summary(AUDIO)]
    assert heard.messages[-1]["duration"] == 1.0
    assert heard.code == 1000


async def test_wav_needs_no_decoder() -> None:
    async with serving(CONFIG) as service:
        async with coded_client(service) as each:
            await each.send(*pieces(sound_file(AUDIO[np.newaxis], 16_000, "WAV", "PCM_16"), [777]))
            heard = await each.end()
        assert service.gateway.stats().codec_processes == 0
    assert heard.texts == [summary(AUDIO)]


async def test_channels_of_a_file_are_sequences_of_their_own() -> None:
    left, right = exact_audio(2, 9000), exact_audio(3, 9000)
    data = sound_file(np.stack([left, right]), 16_000, "FLAC", "PCM_16")
    async with serving(CONFIG) as service, coded_client(service, "channels=2&multichannel=true") as each:
        await each.send(*pieces(data, [2000]))
        heard = await each.end()
    assert {each["channel_index"][0]: text for each, text in zip(heard.finals, heard.texts, strict=True)} == {
        0: summary(left),
        1: summary(right),
    }


@pytest.mark.parametrize("at", [1, 7, 20, 41])
async def test_finalize_stands_behind_all_that_came_before_it(at: int) -> None:
    """What a decoder in another process made of the bytes is there before the flush is (I7)."""
    parts = pieces(muxed(speechlike(48_000, 1.0), 48_000, WEBM).data, [200])
    counts = (await _counts(parts))[: at + 1]
    async with serving(CONFIG) as service, coded_client(service) as each:
        await each.send(*parts[:at], FINALIZE, *parts[at:])
        heard = await each.end()
    finals = [int(text.partition(":")[0]) if text else 0 for text in heard.texts]
    assert finals[0] == counts[at - 1]
    assert sum(finals) == 16_000


async def _counts(parts: list[bytes]) -> list[int]:
    pool = CodecPool()
    try:
        return (await listen(open_intake(CONTAINER, True, pool), parts)).counts
    finally:
        await pool.close()


async def test_opus_packets() -> None:
    packets = opus_packets(speechlike(48_000, 1.0))
    async with serving(CONFIG) as service, coded_client(service, "encoding=opus") as each:
        await each.send(*packets)
        heard = await each.end()
    assert n_samples(heard) == 320 * len(packets)


async def test_what_is_no_audio_is_told_and_ends_the_stream() -> None:
    async with serving(CONFIG) as service:
        async with coded_client(service) as each:
            await each.send(b"#EXTM3U\nhttp://localhost/x.m3u8\n")
            heard = await each.to_close()
        await slots_used(service, 0)
        await until(lambda: service.gateway.stats().codec_streams == 0)
    assert heard.code == 1003
    assert "no container that is taken: send WAV, FLAC, Ogg" in json.dumps(heard.messages[-1])


async def test_a_codec_process_that_dies_takes_its_own_streams_alone() -> None:
    async with serving(CONFIG) as service:
        async with coded_client(service, LIVE_FLAC) as victim, client(service) as raw:
            await victim.send(FLAC_FILE[:9000])
            await raw.send(linear16(AUDIO[:8000]))
            await victim.hears(1)
            codec_process().kill()
            await victim.send(FLAC_FILE[9000:])
            heard = await victim.to_close()
            assert heard.code == 1011
            assert heard.messages[-1]["code"] == "codec_failed"
            await raw.send(linear16(AUDIO[8000:]))
            assert (await raw.end()).texts == [summary(AUDIO)]
        async with coded_client(service, "encoding=flac") as after:
            await after.send(FLAC_FILE)
            assert (await after.end()).texts == [summary(AUDIO)]
        assert service.gateway.stats().codec_processes_lost == 1
        await slots_used(service, 0)


async def test_nothing_is_left_when_the_service_stops() -> None:
    async with serving(CONFIG) as service, coded_client(service, LIVE_FLAC) as each:
        await each.send(FLAC_FILE[:9000])
        await each.hears(1)
        process = codec_process()
    assert not process.is_running()


async def test_a_full_pool_refuses_before_the_upgrade() -> None:
    sections = {"codec": {"max_processes": 1, "streams_per_process": 1}}
    async with serving(CONFIG, sections) as service:
        async with coded_client(service, "encoding=flac") as each:
            with pytest.raises(InvalidStatus) as refused:
                await connect(address(service, "encoding=opus"), proxy=None)
            assert refused.value.response.status_code == 503
            async with client(service) as raw:
                await raw.send(linear16(AUDIO))
                assert (await raw.end()).texts == [summary(AUDIO)]
            await each.send(FLAC_FILE)
            assert (await each.end()).texts == [summary(AUDIO)]
        async with coded_client(service) as each:
            await each.send(FLAC_FILE)
            assert (await each.end()).texts == [summary(AUDIO)]
