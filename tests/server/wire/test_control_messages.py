"""Text messages of a client: which one it is, and the words for what is none."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BadMessage
from server.wire.control_messages import CONTROL_MESSAGES, ConfigureRefusal, ControlMessage, Message, parse_control


def parse(text: str, *, channels: int = 1) -> ControlMessage:
    return parse_control(text, max_chars=4096, channels=channels)


def refused(text: str, *, channels: int = 1) -> str:
    with pytest.raises(BadMessage) as caught:
        parse(text, channels=channels)
    return str(caught.value)


class TestKnown:
    @pytest.mark.parametrize("kind", CONTROL_MESSAGES)
    def test_by_type(self, kind: Message) -> None:
        assert parse(json.dumps({"type": kind.value})) == ControlMessage(kind=kind)

    def test_with_fields_that_mean_nothing(self) -> None:
        assert parse('{"type": "KeepAlive", "channel": "x", "more": [1]}').kind is Message.KEEP_ALIVE

    def test_finalize_of_one_channel(self) -> None:
        assert parse('{"type": "Finalize", "channel": 2}', channels=3).channel == 2
        assert parse('{"type": "Finalize", "channel": null}', channels=3).channel is None

    @pytest.mark.parametrize("channel", ["3", "-1", "true", '"0"', "1.0", "[0]"])
    def test_finalize_of_a_channel_that_is_none(self, channel: str) -> None:
        message = refused(f'{{"type": "Finalize", "channel": {channel}}}', channels=3)
        assert message.endswith("; allowed: an integer from 0 to 2")


class TestUnknown:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("hello", "'hello' is not JSON; text messages are JSON objects, audio goes in binary messages"),
            ("", "'' is not JSON; text messages are JSON objects, audio goes in binary messages"),
            ('{"type": "Finalize"', '\'{"type": "Finalize"\' is not JSON; text messages are JSON objects, audio goes '),
            ("[1]", "'[1]' is not a JSON object with a \"type\"; allowed types: Finalize, CloseStream, KeepAlive"),
            ('"Finalize"', '\'"Finalize"\' is not a JSON object with a "type"; allowed types: '),
            ('{"type": "Reset"}', "message type 'Reset' is not known; allowed types: Finalize, CloseStream, KeepAlive"),
            ('{"type": "audio"}', "message type 'audio' is not known; allowed types: "),
            ('{"type": "finalize"}', "message type 'finalize' is not known; allowed types: "),
            ('{"type": ["Finalize"]}', "message type ['Finalize'] is not known; allowed types: "),
            ('{"type": "a message that is not known"}', "message type 'a message that is not known' is not known"),
            ("{}", "message type None is not known; allowed types: Finalize, CloseStream, KeepAlive, Configure"),
            ("[" * 4000, "'" + "[" * 78 + "… is not JSON; "),
            ("x" * 5000, "a text of 5000 characters is no control message; audio goes in binary messages"),
        ],
    )
    def test_in_words(self, text: str, message: str) -> None:
        assert refused(text).startswith(message)

    @given(
        st.text(max_size=40)
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["type", "channel", "features", "keyterms"]), inner, max_size=4)
            ),
            max_leaves=8,
        ).map(json.dumps)
    )
    def test_anything_is_read_or_refused(self, text: str) -> None:
        with contextlib.suppress(BadMessage):
            assert parse(text).kind in CONTROL_MESSAGES


class TestConfigure:
    @pytest.mark.parametrize(
        "fields",
        [
            "",
            ', "features": {"numerals": false}',
            ', "features": {}',
            ', "features": null',
            ', "keyterms": []',
            ', "keyterms": null',
        ],
    )
    def test_what_is_so_anyway(self, fields: str) -> None:
        assert parse(f'{{"type": "Configure"{fields}}}').refusal is None

    def test_key_terms(self) -> None:
        refusal = parse('{"type": "Configure", "keyterms": ["mooring"], "features": {"numerals": true}}').refusal
        assert refusal == ConfigureRefusal(
            code="CONFIGURE_KEYTERMS_NOT_SUPPORTED", description="the models cannot be prompted with terms yet"
        )

    @pytest.mark.parametrize(("features", "shown"), [('{"numerals": true, "x": false}', "'numerals'"), ("[1]", "[1]")])
    def test_features(self, features: str, shown: str) -> None:
        refusal = parse(f'{{"type": "Configure", "features": {features}}}').refusal
        assert refusal is not None
        assert refusal.code == "CONFIGURE_FEATURE_NOT_SUPPORTED"
        assert shown in refusal.description
