"""The session and the decoders of raw audio, fed with damaged messages: nothing but typed errors, and always an end.

Every message is a function of its seed: a failure names the seed and is the same each time.
"""

import itertools
import json
from collections.abc import Sequence

import numpy as np
import pytest

from asr_model.transcript import UtteranceEnd
from server.codec.audio_format import AudioFormat
from server.codec.intake import PcmIntake
from server.codec.resampler import MODEL_RATE
from server.codec.rows import BLOCK_SAMPLES
from server.errors import BadParameter, MoorageError, PeerError, ShuttingDown
from server.events import CloseCause, Event, SequenceFailed
from server.gateway.http import Reply, refusal
from server.wire.close_codes import MAX_REASON_BYTES
from server.wire.query import SessionOptions, parse_query
from server.wire.session import (
    Audio,
    Close,
    Command,
    End,
    Fail,
    Finalize,
    KeepAlive,
    Outgoing,
    Session,
    SessionLimits,
    State,
    Text,
)
from tests.support.mutation import Mutator
from tests.support.wire import IDENTITY, SEQUENCE, closed, final, partial

MESSAGES = 100_000
"""That a session looks at: what comes after its failure is not counted."""
MESSAGES_PER_SESSION = 40
MESSAGES_AFTER_FAILURE = 2
SHARDS = 20
QUERIES = 20_000
MAX_SAID_CHARS = 1_000
LIMITS = SessionLimits(max_message_bytes=4096, max_sequence_s=30.0)


class Talk:
    """One session from its first message to its close, with an engine that answers at random."""

    def __init__(self, seed: int) -> None:
        self.mutator = Mutator(seed)
        options = _options(self.mutator)
        self.options = options
        self.session = Session(options, IDENTITY, LIMITS)
        self.intake = PcmIntake(options.audio, mixdown=not options.multichannel)
        self.is_over = False
        """A terminal event is due: no command may follow."""
        self.closes: list[Close] = []
        self.errors: list[MoorageError] = []
        self.heard_samples = 0
        self.sent_bytes = 0
        self.looked_at = 0

    async def run(self) -> None:
        rng = self.mutator.rng
        for _ in range(MESSAGES_PER_SESSION):
            if self.is_over and rng.random() < 1 / MESSAGES_AFTER_FAILURE:
                break
            await self.receive(self.mutator.message())
            if rng.random() < 0.2:
                self.check_told(self.session.translate(self.event(), rng.randrange(self.options.sequences)))
            if rng.random() < 0.01:
                await self.apply(self.session.wind_up(ShuttingDown("the service is shutting down")))
        await self.apply(self.session.receive_binary(b""))
        self.finish()

    async def receive(self, message: str | bytes) -> None:
        self.looked_at += self.session.state in (State.OPEN, State.ENDING)
        if isinstance(message, str):
            await self.apply(self.session.receive_text(message))
        else:
            self.sent_bytes += len(message)
            await self.apply(self.session.receive_binary(message))
        self.check_told(self.session.pending())

    async def apply(self, commands: Sequence[Command]) -> None:
        for command in commands:
            assert not self.is_over or isinstance(command, Fail), command
            match command:
                case Audio(data):
                    await self.decode(data)
                case End():
                    self.is_over = True
                    async for block in self.intake.finish():
                        self.check_block(block)
                case Fail(error):
                    assert isinstance(error, MoorageError)
                    assert 0 < len(str(error)) < MAX_SAID_CHARS
                    self.errors.append(error)
                    self.is_over = True
                case Finalize(channel):
                    assert channel is None or 0 <= channel < self.options.sequences
                case KeepAlive():
                    pass

    async def decode(self, data: bytes) -> None:
        try:
            async for block in self.intake.feed(data):
                self.check_block(block)
                await self.apply(self.session.decoded(block.shape[1]))
        except PeerError as error:
            await self.apply(self.session.fail(error))

    def check_block(self, block: np.ndarray) -> None:
        rows, n_samples = block.shape
        assert block.dtype == np.float32
        assert rows == self.options.sequences
        assert 0 < n_samples <= BLOCK_SAMPLES
        assert np.isfinite(block).all()
        self.heard_samples += n_samples
        audio = self.options.audio
        assert audio.sample_rate is not None
        assert self.heard_samples <= self.sent_bytes / audio.channels * MODEL_RATE / audio.sample_rate + 1

    def event(self) -> Event:
        rng = self.mutator.rng
        start_s = rng.random() * 10
        if rng.random() < 0.5:
            return partial("a b", "c", covered_s=start_s + 1, utterance=rng.randrange(3))
        cause = rng.choice([UtteranceEnd.ENDPOINT, UtteranceEnd.FINALIZE, UtteranceEnd.END])
        return final("a é𝄞", cause, (start_s, start_s + 2), utterance=rng.randrange(3))

    def finish(self) -> None:
        """The engine ends every sequence, and the client is told so once."""
        for channel in range(self.options.sequences):
            is_failed = self.mutator.rng.random() < 0.1
            end: Event = closed(CloseCause.CANCELLED if self.errors else CloseCause.END)
            if is_failed:
                end = SequenceFailed(sequence_id=SEQUENCE, error=ShuttingDown("stopping"))
            self.check_told(self.session.translate(end, channel))
        assert self.session.state is State.CLOSED
        assert len(self.closes) == 1
        assert len(self.errors) <= 1
        assert (self.closes[0].code == 1000) <= (not self.errors)

    def check_told(self, outgoing: Sequence[Outgoing]) -> None:
        for each in outgoing:
            assert not self.closes, "nothing follows a close"
            if isinstance(each, Close):
                assert len(each.reason.encode()) <= MAX_REASON_BYTES
                self.closes.append(each)
            else:
                assert isinstance(each, Text)
                assert len(each.text.encode()) < 4 * MAX_SAID_CHARS
                assert isinstance(json.loads(each.text), dict)


def _options(mutator: Mutator) -> SessionOptions:
    """Those of a good query, of raw audio."""
    while True:
        options = parse_query(mutator.good_query())
        if options.audio.is_pcm:
            return options


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_any_messages_end_in_one_close_and_typed_errors(shard: int) -> None:
    seeds = itertools.count(shard * MESSAGES)
    looked_at, ends = 0, set[int]()
    while looked_at < MESSAGES // SHARDS:
        seed = next(seeds)
        talk = Talk(seed)
        try:
            await talk.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        looked_at += talk.looked_at
        ends.add(talk.closes[0].code)
    assert {1000, 1003, 1007} <= ends, "the messages reach far enough to mean something"


def check_refusal(reply: Reply) -> None:
    assert reply.status == 400
    assert json.loads(reply.body)["err_code"] == "bad_parameter"
    assert all(value.isascii() and value.isprintable() for value in reply.headers.values())
    assert len(reply.headers["dg-error"]) <= 500


def test_any_query_is_read_or_refused_by_name() -> None:
    refused = 0
    for seed in range(QUERIES):
        query = Mutator(seed).query()
        try:
            options = parse_query(query)
        except BadParameter as error:
            refused += 1
            check_refusal(refusal(error, request_id="r"))
        else:
            assert isinstance(options.audio, AudioFormat), query
            assert 1 <= options.sequences <= 8
    assert 0.2 < refused / QUERIES < 0.9, "both happen"
