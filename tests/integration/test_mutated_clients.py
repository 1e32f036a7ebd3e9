"""Clients that send damaged messages, frames and handshakes to a real port, while neighbours stream undisturbed.

What is sent is a function of its seed; what the neighbours hear must be what they hear alone.
"""

import asyncio
import logging
from collections import Counter
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.app import Service
from tests.support.accumulator_model import exact_audio, summary
from tests.support.calm_model import calm_engine
from tests.support.engines import until
from tests.support.mutation import Mutator
from tests.support.raw_socket import frame, raw_socket, upgrade
from tests.support.service import client, serving, slots_used
from tests.support.wire import linear16

QUERY = "encoding=linear16&sample_rate=16000"
MESSAGES = 4_000
FRAMES = 1_500
HANDSHAKES = 400
ATTACKERS = 3
NEIGHBOURS = 3


class Neighbours:
    """Streams that go on as long as others attack, each checked to the letter."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.is_over = asyncio.Event()
        self.heard = 0

    async def stream(self, number: int) -> None:
        seed = number
        while not self.is_over.is_set() or seed == number:
            audio = exact_audio(seed, 1500)
            data = linear16(audio)
            async with client(self.service, QUERY) as each:
                for start in range(0, len(data), 300):
                    await each.send(data[start : start + 300])
                    await asyncio.sleep(0.002)
                heard = await each.end()
            assert (heard.texts, heard.code) == ([summary(audio)], 1000)
            seed += NEIGHBOURS
            self.heard += 1


async def attacked(service: Service, attack: "Attack") -> None:
    """Runs the attackers until each has done its share, with the neighbours beside them."""
    neighbours = Neighbours(service)
    streams = [asyncio.create_task(neighbours.stream(number)) for number in range(NEIGHBOURS)]
    try:
        await asyncio.gather(*(attack.run(service, number) for number in range(ATTACKERS)))
    finally:
        neighbours.is_over.set()
    await asyncio.gather(*streams)
    assert neighbours.heard >= NEIGHBOURS
    await slots_used(service, 0)


class Attack:
    """What attackers send, until all of them together have sent ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sent = 0
        self.outcomes: Counter[str] = Counter()

    async def run(self, service: Service, number: int) -> None:
        seed = number
        while self.sent < self.limit:
            await self.once(service, Mutator(seed))
            seed += ATTACKERS

    async def once(self, service: Service, mutator: Mutator) -> None:
        raise NotImplementedError


class Messages(Attack):
    """Good frames with damaged messages, to a good query or a damaged one."""

    async def once(self, service: Service, mutator: Mutator) -> None:
        is_good = mutator.rng.random() < 0.8
        query = mutator.good_query() if is_good else mutator.query().encode("utf-8", "replace").hex()
        self.sent += 1
        try:
            async with client(service, query) as each:
                with suppress(ConnectionClosed):
                    for _ in range(mutator.rng.randrange(12)):
                        message = mutator.message()
                        await each.send(
                            message.encode("utf-8", "replace").decode() if isinstance(message, str) else message
                        )
                        self.sent += 1
                if mutator.rng.random() < 0.7:
                    with suppress(ConnectionClosed):
                        await each.send(b"")
                    heard = await each.to_close()
                    assert heard.code is not None, "the peer always learns why"
                    self.outcomes[str(heard.code)] += 1
        except InvalidStatus as error:
            self.outcomes[str(error.response.status_code)] += 1


class Frames(Attack):
    """Damaged bytes after a good handshake."""

    async def once(self, service: Service, mutator: Mutator) -> None:
        async with raw_socket(service.gateway.port) as each:
            await each.send(upgrade(QUERY))
            head = await each.head()
            self.outcomes[head[9:12].decode()] += 1
            with suppress(ConnectionError):
                for _ in range(mutator.rng.randrange(1, 10)):
                    opcode = mutator.rng.choice((0, 1, 2, 2, 2, 8, 9, 10, 15))
                    good = frame(opcode, mutator.audio()[:4000], fin=mutator.rng.random() < 0.8)
                    await each.send(mutator.damaged(good, mutator.rng.randrange(3)))
                    self.sent += 1
                if mutator.rng.random() < 0.5:
                    each.writer.write_eof()
                    await each.to_close()


class Handshakes(Attack):
    """Damaged handshakes."""

    async def once(self, service: Service, mutator: Mutator) -> None:
        self.sent += 1
        damaged = mutator.lines(upgrade(mutator.good_query(), "Origin: http://127.0.0.1", "Authorization: Token a"))
        async with raw_socket(service.gateway.port) as each:
            with suppress(ConnectionError):
                await each.send(damaged)
                heard = await each.reader.read(65_536)
                self.outcomes[heard[9:12].decode(errors="replace")] += 1


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (Messages(MESSAGES), {"1000", "1003", "1007", "400"}),
        (Frames(FRAMES), {"101"}),
        (Handshakes(HANDSHAKES), {"101", "400", "403", "404", "426", ""}),
    ],
    ids=["messages", "frames", "handshakes"],
)
async def test_neighbours_hear_what_they_hear_alone(
    attack: Attack, expected: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(calm_engine(instances=2, slots=8), handshake_timeout_s=5.0, send_timeout_s=5.0) as service:
        await attacked(service, attack)
        await until(lambda: service.gateway.stats().connections == 0)
        assert attack.sent >= attack.limit
        assert service.engine.is_ready
    assert expected <= set(attack.outcomes), attack.outcomes
    assert "500" not in attack.outcomes
    failures = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert failures == [], "only typed errors"
