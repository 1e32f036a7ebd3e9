import json

import pytest

from server.errors import (
    BadTensor,
    CapacityExceeded,
    InstanceFailed,
    KeyLimit,
    MissingStart,
    MoorageError,
    QueueFull,
    RequestTimeout,
    StepFailed,
    Unauthorized,
    UnknownModel,
)
from server.gateway.http import UpgradeRequired
from server.rest.refusals import kserve_refusal, listen_refusal
from server.wire.request_errors import BodyTooLarge, MethodRefused, NotReady, NotSupported


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (BadTensor("why"), 400, {}),
        (MissingStart("why"), 400, {}),
        (Unauthorized("why"), 401, {"WWW-Authenticate": "Token"}),
        (UnknownModel("why"), 404, {}),
        (MethodRefused("why", allowed="POST"), 405, {"Allow": "POST"}),
        (BodyTooLarge("why"), 413, {}),
        (KeyLimit("why", retry_after_s=7), 429, {"Retry-After": "7"}),
        (NotSupported("why"), 501, {}),
        (CapacityExceeded("why", retry_after_s=3), 503, {"Retry-After": "3"}),
        (QueueFull("why"), 503, {"Retry-After": "1"}),
        (RequestTimeout("why"), 503, {"Retry-After": "1"}),
        (NotReady("why"), 503, {"Retry-After": "1"}),
    ],
)
def test_a_client_is_told_what_was_wrong(error: MoorageError, status: int, headers: dict[str, str]) -> None:
    refused = kserve_refusal(error, "r")
    assert refused.status == status
    assert json.loads(refused.body) == {"error": "why", "code": error.code}
    assert refused.headers == {"Content-Type": "application/json", **headers}


@pytest.mark.parametrize(("error", "status"), [(StepFailed("a secret"), 500), (InstanceFailed("a secret"), 503)])
def test_our_own_internals_are_told_nobody(error: MoorageError, status: int) -> None:
    refused = kserve_refusal(error, "r")
    assert refused.status == status
    assert b"secret" not in refused.body
    assert json.loads(refused.body)["code"] == error.code


def test_elsewhere_it_has_the_shape_of_the_websocket() -> None:
    refused = listen_refusal(BodyTooLarge("why"), "r")
    assert refused.status == 413
    said = json.loads(refused.body)
    assert (said["err_code"], said["err_msg"], said["request_id"]) == ("body_too_large", "why", "r")
    assert listen_refusal(UpgradeRequired("why"), "r").status == 426
