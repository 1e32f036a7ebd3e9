"""Codec processes: when they start, how many there are, and that one's death harms its own streams alone."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from server.codec.audio_format import AudioFormat
from server.codec.coded import CodedIntake
from server.codec.intake import Intake, open_intake
from server.codec.pool import CodecLimits, CodecPool
from server.codec.rows import Block
from server.errors import CapacityExceeded, CodecFailed, ShuttingDown
from tests.server.codec.feeding import CONTAINER, at_model_rate, hear, until
from tests.server.codec.media import WEBM, muxed, read_sound_file, sound_file, speechlike

ROOT = Path(__file__).parents[3]
FLAC = AudioFormat(encoding="flac")
DATA = sound_file(speechlike(16_000, 1.0), 16_000, "FLAC", "PCM_16")
EXPECTED = at_model_rate(read_sound_file(DATA)[0], 16_000)


@asynccontextmanager
async def pool_of(**limits: float) -> AsyncIterator[CodecPool]:
    """A pool, closed at the end; no process of it is left, not even a dead one."""
    pool = CodecPool(CodecLimits(**limits))  # type: ignore[arg-type]  # whole numbers where they are due
    before = {child.pid for child in psutil.Process().children()}
    try:
        yield pool
    finally:
        await pool.close()
        assert pool.stats().processes == 0
    assert {child.pid for child in psutil.Process().children()} <= before


def codec_processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "server.codec.process" in child.cmdline()]


async def started(pool: CodecPool) -> Intake:
    """A stream in the middle of a file."""
    intake = open_intake(FLAC, True, pool)
    await taken(intake.feed(DATA[:8000]))
    return intake


async def taken(coming: AsyncIterator[Block]) -> int:
    return sum([block.shape[1] async for block in coming])


class TestStarting:
    async def test_nothing_is_started_for_raw_audio_and_wav(self) -> None:
        async with pool_of() as pool:
            raw = open_intake(AudioFormat(encoding="mulaw", sample_rate=8000), True, pool)
            assert pool.stats().streams == 0
            await taken(raw.feed(bytes(1000)))
            wav = open_intake(CONTAINER, True, pool)
            assert pool.stats().streams == 1
            await taken(wav.feed(sound_file(speechlike(16_000, 0.1), 16_000, "WAV", "PCM_16")))
            assert pool.stats().streams == 0
            assert pool.stats().processes == 0

    async def test_streams_share_a_process_up_to_its_limit(self) -> None:
        async with pool_of(max_processes=2, streams_per_process=2) as pool:
            intakes = [await started(pool) for _ in range(2)]
            assert pool.stats().processes == 1
            intakes += [await started(pool) for _ in range(2)]
            assert pool.stats().processes == 2
            with pytest.raises(CapacityExceeded, match="all 4 decoders for coded audio are taken"):
                open_intake(FLAC, True, pool)
            await intakes[0].close()
            np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)
            assert pool.stats().processes == 2
            for intake in intakes:
                await intake.close()

    async def test_streams_that_start_together_start_one_process(self) -> None:
        async with pool_of() as pool:
            for heard in await asyncio.gather(*(hear(pool, DATA, FLAC) for _ in range(10))):
                np.testing.assert_array_equal(heard, EXPECTED)
            assert pool.stats().processes == 1

    @pytest.mark.parametrize("turns_of_the_loop", [0, 1, 2, 3])
    async def test_a_client_that_leaves_while_a_process_starts(self, turns_of_the_loop: int) -> None:
        async with pool_of() as pool:
            intake = open_intake(FLAC, True, pool)
            first = asyncio.create_task(taken(intake.feed(DATA)))
            for _ in range(1 + turns_of_the_loop):
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            await intake.close()
            async with asyncio.timeout(5):
                np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)
            assert pool.stats().processes == 1
            assert pool.stats().lost_processes == 0

    async def test_a_pool_that_is_closed_while_a_process_starts(self) -> None:
        async with pool_of() as pool:
            intake = open_intake(FLAC, True, pool)
            first = asyncio.create_task(taken(intake.feed(DATA)))
            await asyncio.sleep(0)
            await pool.close()
            with pytest.raises((CodecFailed, ShuttingDown)):
                await first
            await intake.close()

    async def test_a_place_is_given_back_once(self) -> None:
        async with pool_of() as pool:
            intake = open_intake(FLAC, True, pool)
            await intake.close()
            await intake.close()
            assert pool.stats().streams == 0

    async def test_no_process_to_be_had(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with pool_of() as pool:
            monkeypatch.setattr(sys, "executable", "/nonexistent/python")
            with pytest.raises(CodecFailed, match="no codec process could be started"):
                await hear(pool, DATA, FLAC)
            assert pool.stats().streams == 0
            monkeypatch.undo()
            np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)


class TestDeath:
    async def test_streams_between_turns_learn_it_at_the_next(self) -> None:
        async with pool_of() as pool:
            intakes = [await started(pool) for _ in range(3)]
            codec_processes()[0].kill()
            await until(lambda: pool.stats().lost_processes == 1)
            for intake in intakes:
                with pytest.raises(CodecFailed, match="the decoder's process ended"):
                    await taken(intake.feed(DATA[8000:9000]))
                await intake.close()
            assert pool.stats().streams == 0
            np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)

    async def test_a_stream_in_the_middle_of_a_turn_learns_it_at_once(self) -> None:
        async with pool_of() as pool:
            intake = await started(pool)
            process = codec_processes()[0]
            process.suspend()
            turn = asyncio.create_task(taken(intake.feed(DATA[8000:])))
            await asyncio.sleep(0)
            process.kill()
            with pytest.raises(CodecFailed, match="the decoder's process ended"):
                await turn
            await intake.close()

    async def test_streams_of_other_processes_go_on(self) -> None:
        async with pool_of(streams_per_process=1) as pool:
            first, second = await started(pool), await started(pool)
            assert isinstance(first, CodedIntake)
            pids = sorted(process.pid for process in codec_processes())  # in the order of their start, or nearly
            victims = [pid for pid in pids if pid == min(pids, key=lambda each: psutil.Process(each).create_time())]
            os.kill(victims[0], signal.SIGKILL)
            await until(lambda: pool.stats().lost_processes == 1)
            with pytest.raises(CodecFailed):
                await taken(first.feed(DATA[8000:]))
            assert await taken(second.feed(DATA[8000:])) + await taken(second.finish()) > 0
            await first.close()
            await second.close()

    async def test_a_process_that_hangs_is_replaced(self) -> None:
        async with pool_of() as pool:
            intake = await started(pool)
            intake._stream._turn_timeout_s = 0.1  # type: ignore[attr-defined]  # its start may take longer
            codec_processes()[0].suspend()
            with pytest.raises(CodecFailed, match="the decoder hangs"):
                await taken(intake.feed(DATA[8000:]))
            await intake.close()
            await until(lambda: pool.stats().lost_processes == 1)
            assert pool.stats().processes == 0

    async def test_a_process_that_sends_nonsense_is_killed(self) -> None:
        async with pool_of() as pool:
            intake = await started(pool)
            assert isinstance(intake, CodedIntake)
            channel = pool._channels[0]
            channel.data_received(b"\xff" * 100)
            with pytest.raises(CodecFailed):
                await taken(intake.feed(DATA[8000:]))
            await intake.close()
            await until(lambda: pool.stats().lost_processes == 1)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_signals_to_the_whole_group_leave_it_alone(self, number: signal.Signals) -> None:
        """The service drains on SIGTERM; what streams still send has to be decoded."""
        async with pool_of() as pool:
            intake = await started(pool)
            codec_processes()[0].send_signal(number)
            assert await taken(intake.feed(DATA[8000:])) + await taken(intake.finish()) > 0
            await intake.close()
            assert pool.stats().lost_processes == 0


class TestClosing:
    async def test_open_streams_fail(self) -> None:
        async with pool_of() as pool:
            intake = await started(pool)
            await pool.close()
            assert pool.stats().lost_processes == 0
            with pytest.raises(CodecFailed):
                await taken(intake.feed(DATA[8000:]))
            await intake.close()
            with pytest.raises(ShuttingDown):
                await hear(pool, DATA, FLAC)

    async def test_a_process_that_hangs_does_not_hold_it_up_for_long(self) -> None:
        async with pool_of() as pool:
            await started(pool)
            codec_processes()[0].suspend()
            async with asyncio.timeout(5):
                await pool.close()

    async def test_an_intake_given_up_in_the_middle_of_a_turn(self) -> None:
        """A client leaves: its decoder ends, its neighbours do not notice."""
        async with pool_of() as pool:
            data = muxed(speechlike(48_000, 20.0), 48_000, WEBM).data
            for _ in range(20):
                intake = open_intake(CONTAINER, True, pool)
                coming = intake.feed(data)
                assert (await anext(coming)).shape[1] > 0
                await intake.close()
                await coming.aclose()
            np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)
            process = codec_processes()[0]
            await until(lambda: process.num_threads() < 5)

    async def test_closing_ends_a_turn_that_waits(self) -> None:
        async with pool_of() as pool:
            intake = await started(pool)
            codec_processes()[0].suspend()
            turn = asyncio.create_task(taken(intake.feed(DATA[8000:])))
            await asyncio.sleep(0)
            await intake.close()
            with pytest.raises(CodecFailed, match="the stream was closed"):
                await turn

    async def test_a_turn_that_is_not_taken_to_its_end_is_the_last(self) -> None:
        """As where a sequence reaches its longest within a message: what follows is not heard, and nothing waits."""
        async with pool_of() as pool:
            intake = open_intake(CONTAINER, True, pool)
            async with aclosing(intake.feed(muxed(speechlike(48_000, 20.0), 48_000, WEBM).data)) as coming:
                assert (await anext(coming)).shape[1] > 0
            async with asyncio.timeout(5):
                assert await taken(intake.finish()) == 0
                await intake.close()
            np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)

    async def test_a_process_that_has_served_long_enough_is_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What damaged audio makes libraries forget to free does not add up for weeks."""
        monkeypatch.setattr("server.codec.channel.MAX_STREAMS_SERVED", 3)
        async with pool_of() as pool:
            intakes = [await started(pool) for _ in range(3)]
            first = codec_processes()
            np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)
            assert pool.stats().processes == 2
            for intake in intakes:
                assert await taken(intake.feed(DATA[8000:])) + await taken(intake.finish()) > 0
                await intake.close()
            await until(lambda: pool.stats().processes == 1)
            await until(lambda: not first[0].is_running())
            assert pool.stats().lost_processes == 0

    async def test_its_processes_die_with_the_service(self) -> None:
        script = (
            "import asyncio\n"
            "from tests.server.codec.test_pool import *\n"
            "async def main():\n"
            "    pool = CodecPool()\n"
            "    await started(pool)\n"
            "    print(codec_processes()[0].pid, flush=True)\n"
            "    await asyncio.sleep(60)\n"
            "asyncio.run(main())\n"
        )
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        codec = psutil.Process(int(await parent.stdout.readline()))
        parent.kill()
        await parent.wait()
        await until(lambda: not codec.is_running() or codec.status() == psutil.STATUS_ZOMBIE)


class TestBounds:
    BOMB = sound_file(np.zeros((1, 48_000 * 600), np.float32), 48_000, "FLAC", "PCM_16")

    async def test_a_bomb_is_decoded_as_it_is_taken(self) -> None:
        """Ten minutes of silence in a few kilobytes: what is not taken is not decoded."""
        assert len(self.BOMB) < 150_000
        async with pool_of() as pool:
            intake = open_intake(FLAC, True, pool)
            coming = intake.feed(self.BOMB)
            taken_samples = (await anext(coming)).shape[1]
            before = codec_processes()[0].cpu_times().user
            for _ in range(20):  # turns of others: time for the bomb to go off
                np.testing.assert_array_equal(await hear(pool, DATA, FLAC), EXPECTED)
            stream = intake._stream  # type: ignore[attr-defined]  # what waits there is the point
            assert len(stream._received) <= 2
            assert codec_processes()[0].cpu_times().user - before < 1.0
            assert codec_processes()[0].memory_info().rss < 200 << 20
            samples = sum([block.shape[1] async for block in coming]) + await taken(intake.finish())
            assert samples == 16_000 * 600 - taken_samples
            await intake.close()
