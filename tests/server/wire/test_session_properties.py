"""Any messages and any events, in any order: typed outcomes, one end, results that tile the timeline."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from asr_model.transcript import UtteranceEnd
from server.codec.resampler import MODEL_RATE
from server.errors import BadAudio, MoorageError, ShuttingDown, SlowReader, StepFailed
from server.events import CloseCause, SequenceFailed
from server.wire.session import Audio, Close, Command, End, Fail, Finalize, KeepAlive, Session, State, Text
from tests.support.wire import SEQUENCE, closed, final, make_session, partial, speech_started

CHANNELS = 2
KINDS = {"Results", "Metadata", "Error", "SpeechStarted", "UtteranceEnd", "ConfigureSuccess", "ConfigureFailure"}
TEXTS = st.one_of(
    st.sampled_from(["Finalize", "CloseStream", "KeepAlive", "Configure", "Reset"]).map(
        lambda name: json.dumps({"type": name})
    ),
    st.sampled_from(["{}", "[[", "null", '{"type": "Finalize", "channel": 9}', "x" * 300]),
    st.text(max_size=20),
)
QUERIES = st.sampled_from(
    [
        "",
        "interim_results=false",
        "vad_events=true&utterance_end_ms=1000&endpointing=false",
        "utterance_end_ms=1000&punctuate=false&filler_words=false&profanity_filter=true",
    ]
)
ERRORS = st.sampled_from([BadAudio("a"), SlowReader("b"), StepFailed("c"), ShuttingDown("d")])


@dataclass
class Spoken:
    """One channel as the engine tells of it."""

    utterance: int = 0
    at_samples: int = 0
    is_over: bool = False
    told: list[dict] = field(default_factory=list)  # type: ignore[type-arg]


class SessionMachine(RuleBasedStateMachine):
    """A client, an engine with events in a lawful order per channel, and a service that may lose patience."""

    @initialize(query=QUERIES, channels=st.integers(1, CHANNELS))
    def open(self, query: str, channels: int) -> None:
        self.session: Session = make_session(
            f"{query}&encoding=linear16&channels={channels}&multichannel=true",
            max_message_bytes=64,
            max_control_chars=200,
            max_sequence_s=5,
        )
        self.channels = [Spoken() for _ in range(channels)]
        self.commands: list[Command] = []
        self.is_closed = False
        self.finalized = 0

    def take(self, commands: list[Command]) -> None:
        """The commands, as the gateway would."""
        self.commands += commands
        assert all(isinstance(each, Audio | Finalize | End | KeepAlive | Fail) for each in commands)
        counts = Counter(type(each) for each in self.commands)
        assert counts[Fail] <= 1
        assert counts[End] <= 1
        kinds = [type(each) for each in self.commands]
        if Fail in kinds:
            assert kinds[-1] is Fail
        if End in kinds:
            assert set(kinds[kinds.index(End) + 1 :]) <= {Fail}
        self.hear(self.session.pending())

    def hear(self, outgoing: list[Text | Close]) -> None:
        """The client's side: JSON of a known type, and nothing after a close."""
        for each in outgoing:
            assert not self.is_closed
            if isinstance(each, Close):
                assert 1000 <= each.code <= 1013
                assert len(each.reason.encode()) <= 123
                self.is_closed = True
                continue
            message = json.loads(each.text)
            assert message["type"] in KINDS
            channel = message.get("channel_index") or (
                message.get("channel") if message["type"] in ("SpeechStarted", "UtteranceEnd") else None
            )
            if channel is not None:
                assert channel[1] == len(self.channels)
                self.channels[channel[0]].told.append(message)

    # the client

    @rule(data=st.binary(max_size=70))
    def send_audio(self, data: bytes) -> None:
        self.take(self.session.receive_binary(data))

    @rule(text=TEXTS)
    def send_text(self, text: str) -> None:
        self.take(self.session.receive_text(text))

    # the service

    @rule(n_samples=st.integers(0, 8_000))
    def decode(self, n_samples: int) -> None:
        self.take(self.session.decoded(n_samples))

    @rule(error=ERRORS)
    def lose_the_connection(self, error: MoorageError) -> None:
        self.take(self.session.fail(error))

    @rule()
    def drain(self) -> None:
        self.take(self.session.wind_up(ShuttingDown("drained")))

    # the engine

    def live_channel(self, pick: int) -> tuple[int, Spoken] | None:
        live = [(index, each) for index, each in enumerate(self.channels) if not each.is_over]
        return live[pick % len(live)] if live else None

    @rule(pick=st.integers(0, 7), text=st.sampled_from(["", "um, shit.", "Hello — there"]), n=st.integers(0, 40_000))
    def partial(self, pick: int, text: str, n: int) -> None:
        found = self.live_channel(pick)
        if found is None:
            return
        index, spoken = found
        start_s = spoken.at_samples / MODEL_RATE
        event = partial(text, utterance=spoken.utterance, start_s=start_s, covered_s=start_s + n / MODEL_RATE)
        self.hear(self.session.translate(event, index))

    @rule(pick=st.integers(0, 7))
    def speech(self, pick: int) -> None:
        found = self.live_channel(pick)
        if found is not None:
            self.hear(self.session.translate(speech_started(found[1].at_samples / MODEL_RATE), found[0]))

    @rule(
        pick=st.integers(0, 7),
        text=st.sampled_from(["", "Um, yes.", "Hello — there"]),
        cause=st.sampled_from(UtteranceEnd),
        n=st.integers(0, 20 * MODEL_RATE),
    )
    def final(self, pick: int, text: str, cause: UtteranceEnd, n: int) -> None:
        found = self.live_channel(pick)
        if found is None:
            return
        index, spoken = found
        span = (spoken.at_samples / MODEL_RATE, (spoken.at_samples + n) / MODEL_RATE)
        event = replace(final(text, cause, span, utterance=spoken.utterance), has_final_pass=bool(n % 2))
        spoken.utterance, spoken.at_samples = spoken.utterance + 1, spoken.at_samples + n
        n_before = len(spoken.told)
        is_answered = self.session.state not in (State.FAILED, State.CLOSED)
        self.hear(self.session.translate(event, index))
        if is_answered and cause is UtteranceEnd.FINALIZE:
            assert [each["from_finalize"] for each in spoken.told[n_before:] if each.get("is_final")] == [True]

    @rule(pick=st.integers(0, 7), how=st.sampled_from(["end", "cancelled", "failed"]))
    def terminal(self, pick: int, how: str) -> None:
        found = self.live_channel(pick)
        if found is None:
            return
        index, spoken = found
        spoken.is_over = True
        if how == "failed":
            self.hear(self.session.translate(SequenceFailed(sequence_id=SEQUENCE, error=StepFailed("x")), index))
        else:
            self.hear(self.session.translate(closed(CloseCause(how)), index))

    @precondition(lambda self: all(each.is_over for each in self.channels))
    @rule()
    def over(self) -> None:
        assert self.session.state is State.CLOSED

    def teardown(self) -> None:
        """The results of each channel: finals tile, UtteranceEnd follows a final, once per last word."""
        for spoken in getattr(self, "channels", []):
            finals = [each for each in spoken.told if each.get("is_final")]
            at_s = 0.0
            for each in finals:
                assert each["start"] == at_s
                at_s = round(each["start"] + each["duration"], 7)
            ends = [(index, each["last_word_end"]) for index, each in enumerate(spoken.told) if "last_word_end" in each]
            assert len({end for _, end in ends}) == len(ends)
            for index, _ in ends:
                assert any(each.get("is_final") for each in spoken.told[:index])


SessionMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSessionMachine = SessionMachine.TestCase


class TestAnyFraming:
    @given(st.binary(max_size=400), st.lists(st.integers(1, 50), max_size=20))
    def test_bytes_are_passed_on_in_order(self, data: bytes, sizes: list[int]) -> None:
        session, passed, at = make_session(), b"", 0
        for size in [*sizes, len(data) + 1]:
            piece, at = data[at : at + size], at + size
            commands = session.receive_binary(piece) if piece else []
            assert all(isinstance(each, Audio) for each in commands)
            passed += b"".join(each.data for each in commands if isinstance(each, Audio))
        assert passed == data
