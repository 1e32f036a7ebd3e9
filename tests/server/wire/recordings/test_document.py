"""docs/recordings.md says what the code does: parameters, fields, statuses."""

import re

import pytest

from server.errors import (
    BadAudio,
    CapacityExceeded,
    InstanceFailed,
    KeyLimit,
    MoorageError,
    OriginRefused,
    QueueFull,
    SequenceTooLong,
    ShuttingDown,
    StepFailed,
    Unauthorized,
)
from server.wire.parameters import PARAMETERS
from server.wire.query import sentiment_refused
from server.wire.recordings.deepgram_query import RECORDING_PARAMETERS
from server.wire.recordings.openai_form import FIELDS, MODELS, ResponseFormat
from server.wire.request_errors import (
    BadRequest,
    BodyTooLarge,
    BodyTooSlow,
    MethodRefused,
    NotReady,
    NotSupported,
    status_of,
)
from tests.server.wire.test_document import parameter_row
from tests.support.fixtures import ROOT

DOCUMENT = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")


def test_every_parameter_that_differs_from_live_streams_stands_there_as_the_table_has_it() -> None:
    expected = [
        parameter_row(name, parameter)
        for name, parameter in RECORDING_PARAMETERS.items()
        if PARAMETERS.get(name) != parameter
    ]
    shown = [line for line in DOCUMENT.splitlines() if re.match(r"\| `\w+` \| (supported|accepted|refused) \|", line)]
    assert shown == expected


def test_every_field_has_its_row() -> None:
    rows = re.findall(r"^\| `([\w\[\]]+)` \| ([^|]+) \|", DOCUMENT, re.MULTILINE)
    fields = {name: values for name, values in rows if name in FIELDS}
    assert set(fields) == set(FIELDS)
    assert fields["response_format"] == ", ".join(each.value for each in ResponseFormat)
    assert ", ".join(MODELS) in fields["model"]


@pytest.mark.parametrize(
    "error",
    [
        sentiment_refused(),
        BadRequest("x"),
        BadAudio("x"),
        SequenceTooLong("x"),
        Unauthorized("x"),
        OriginRefused("x"),
        MethodRefused("x", allowed="POST"),
        BodyTooSlow("x"),
        BodyTooLarge("x"),
        KeyLimit("x"),
        StepFailed("x"),
        NotSupported("x"),
        CapacityExceeded("x"),
        QueueFull("x"),
        NotReady("x"),
        InstanceFailed("x"),
        ShuttingDown("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_refusal_has_its_row(error: MoorageError) -> None:
    row = rf"^\| {status_of(error).value} \| `{error.code}` \| .+ \|$"
    assert len(re.findall(row, DOCUMENT, re.MULTILINE)) == 1
