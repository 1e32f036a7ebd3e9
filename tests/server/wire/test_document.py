"""docs/wire.md says what the code does: parameters, close codes, statuses, messages."""

import json
import re

import pytest

from asr_model.transcript import UtteranceEnd
from server.errors import (
    BadAudio,
    BadMessage,
    CapacityExceeded,
    CodecFailed,
    IdleTimeout,
    InstanceFailed,
    KeyLimit,
    MessageTooLarge,
    MoorageError,
    OriginRefused,
    SequenceAlreadyEnded,
    SequenceTooLong,
    ServiceError,
    ShuttingDown,
    SlowReader,
    StepFailed,
    Unauthorized,
)
from server.gateway.http import refusal
from server.wire.close_codes import close_code
from server.wire.control_messages import CONTROL_MESSAGES
from server.wire.parameters import PARAMETERS, Choice, Parameter
from server.wire.query import BadQuery
from tests.support.fixtures import ROOT
from tests.support.wire import final, make_session, partial, speech_started, tell

DOCUMENT = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
MOST_SHOWN = 8


def rows(first_cell: str) -> list[list[str]]:
    """Cells of the table rows whose first cell matches."""
    found = []
    for line in DOCUMENT.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("| ") else []
        if cells and re.fullmatch(first_cell, cells[0]):
            found.append(cells)
    return found


def parameter_row(name: str, parameter: Parameter) -> str:
    """The row as the document must have it."""
    values = parameter.values
    allowed = values.allowed
    if isinstance(values, Choice) and len(values.words) > MOST_SHOWN:
        allowed = f"{', '.join(values.words[:MOST_SHOWN])} and more"
    return f"| `{name}` | {parameter.support.value} | {allowed} | {parameter.default} | {parameter.note} |"


def test_every_parameter_stands_there_as_the_table_has_it() -> None:
    expected = [parameter_row(name, parameter) for name, parameter in PARAMETERS.items()]
    shown = [line for line in DOCUMENT.splitlines() if re.match(r"\| `\w+` \| (supported|accepted|refused) \|", line)]
    assert shown == expected


CLOSING = [
    BadAudio("x"),
    BadMessage("x"),
    SlowReader("x"),
    SequenceTooLong("x"),
    MessageTooLarge("x"),
    IdleTimeout("x"),
    StepFailed("x"),
    CodecFailed("x"),
    InstanceFailed("x"),
    ShuttingDown("x"),
]


@pytest.mark.parametrize("error", CLOSING, ids=lambda error: type(error).__name__)
def test_every_error_of_an_open_connection_has_its_row(error: MoorageError) -> None:
    [row] = rows(f"`{error.code}`, then {close_code(error)}")
    assert len(row) == 3


REFUSING = [
    BadQuery(parameter="a", value="b", allowed="c"),
    Unauthorized("x"),
    OriginRefused("x"),
    KeyLimit("x"),
    CapacityExceeded("x"),
    ShuttingDown("x"),
]


@pytest.mark.parametrize("error", REFUSING, ids=lambda error: type(error).__name__)
def test_every_refusal_has_its_row(error: MoorageError) -> None:
    reply = refusal(error, request_id="r")
    body = json.loads(reply.body)
    [row] = rows(f"{reply.status.value}, `{body['err_code']}`")
    for header in set(reply.headers) - {"dg-error", "dg-request-id"}:
        assert f"`{header}`" in row[2]
    assert {"err_code", "err_msg", "request_id"} <= set(body)


def test_not_ready_has_its_row() -> None:
    assert refusal(ServiceError("x"), request_id="r").status.value == 503
    assert len(rows("503, `not_ready`")) == 1


@pytest.mark.parametrize("kind", [message.value for message in CONTROL_MESSAGES])
def test_every_message_of_a_client_is_shown(kind: str) -> None:
    assert len(rows(rf'`{{"type": "{kind}".*}}`')) == 1


def test_every_field_of_a_result_is_named() -> None:
    session = make_session("vad_events=true&utterance_end_ms=1000")
    told = tell(session, speech_started(0.0), partial("a", covered_s=0.5), final("a", UtteranceEnd.END, (0.0, 2.0)))
    names: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            names.update(value)
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(told)
    missing = {name for name in names if f"`{name}`" not in DOCUMENT and f'"{name}"' not in DOCUMENT}
    assert missing == set()
    assert SequenceAlreadyEnded.code in DOCUMENT


def test_examples_are_json() -> None:
    blocks = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    assert blocks
    for block in blocks:
        assert json.loads(block)["type"]
