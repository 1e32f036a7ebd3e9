"""Refusals in the shapes of the service: KServe's below ``/v2``, OpenAI's, and that of ``/v1/listen`` elsewhere."""

import json

from server.errors import MoorageError
from server.gateway.http import UpgradeRequired, refusal
from server.rest.parts import Refusal
from server.wire.recordings import openai_answer
from server.wire.request_errors import error_body, error_headers, status_of

JSON = {"Content-Type": "application/json"}


def kserve_refusal(error: MoorageError, request_id: str) -> Refusal:
    """``{"error": text, "code": word}``."""
    body = json.dumps(error_body(error)).encode()
    return Refusal(status=status_of(error).value, body=body, headers=JSON | error_headers(error))


def listen_refusal(error: MoorageError, request_id: str) -> Refusal:
    """``{"err_code": word, "err_msg": text}``, with the status that such an error has here."""
    reply = refusal(error, request_id=request_id)
    headers = {"Content-Type": reply.content_type, **reply.headers, **error_headers(error)}
    status = reply.status if isinstance(error, UpgradeRequired) else status_of(error)
    return Refusal(status=status.value, body=reply.body, headers=headers)


def openai_refusal(error: MoorageError, request_id: str) -> Refusal:
    """``{"error": {"message": …}}``, with the status that such an error has here."""
    body = json.dumps(openai_answer.error_body(error)).encode()
    headers = JSON | {"x-request-id": request_id} | error_headers(error)
    return Refusal(status=status_of(error).value, body=body, headers=headers)
