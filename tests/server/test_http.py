"""Plain GETs, as functions."""

import json
from http import HTTPStatus

import pytest

from server.errors import CapacityExceeded, ShuttingDown, StepFailed
from server.http import ROUTES, Reply, Site, refusal, respond
from server.wire.query import BadQuery
from tests.support.statistics import engine_stats


def site(*, is_ready: bool = True) -> Site:
    return Site(stats=lambda: engine_stats(is_ready=is_ready), metrics=lambda: b"moorage_ready 1\n", version="9.9")


def get(path: str, *, is_ready: bool = True) -> Reply:
    return respond("GET", path, site(is_ready=is_ready))


class TestRoutes:
    def test_health_does_not_depend_on_readiness(self) -> None:
        assert get("/healthz", is_ready=False) == Reply(status=HTTPStatus.OK, body=b"ok\n")

    @pytest.mark.parametrize(("is_ready", "status"), [(True, 200), (False, 503)])
    def test_readiness(self, is_ready: bool, status: int) -> None:
        reply = get("/readyz", is_ready=is_ready)
        assert reply.status == status
        assert json.loads(reply.body) == {
            "ready": is_ready,
            "models": {"live": "1/2 instances ready", "final": "1/1 instances ready"},
        }

    def test_metrics(self) -> None:
        reply = get("/metrics")
        assert (reply.body, reply.content_type) == (b"moorage_ready 1\n", "text/plain; version=0.0.4; charset=utf-8")

    def test_models(self) -> None:
        live, final = json.loads(get("/v1/models").body)["models"]
        assert live == {
            "role": "live",
            "name": "accumulator",
            "scheduler": "sequence",
            "device": "cpu",
            "instances": 2,
            "instances_ready": 1,
            "slots": 4,
            "slot_bytes": 100,
            "streams": 5,
        }
        assert (final["name"], final["slots"], final["streams"]) == ("sum", 0, None)

    def test_the_index_names_every_path(self) -> None:
        text = get("/").body.decode()
        assert text.startswith("Moorage 9.9: ")
        assert all(path in text for path in (*ROUTES, "/v1/listen"))

    @pytest.mark.parametrize("path", ["/nothing", "", "//", "/healthz/", "/v1/listen/"])
    def test_unknown_paths(self, path: str) -> None:
        reply = get(path)
        assert reply.status == 404
        assert reply.body.startswith(b"not found; known paths: /, /healthz, ")

    @pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE"])
    def test_only_get(self, method: str) -> None:
        reply = respond(method, "/healthz", site())
        assert (reply.status, reply.headers) == (405, {"Allow": "GET"})


class TestRefusal:
    def test_a_bad_query(self) -> None:
        reply = refusal(BadQuery(parameter="sample_rate", value="0", allowed="8000"), request_id="r")
        assert reply.status == 400
        assert json.loads(reply.body) == {
            "err_code": "bad_parameter",
            "err_msg": "query parameter sample_rate is '0'; allowed: 8000",
            "request_id": "r",
            "parameter": "sample_rate",
            "value": "0",
            "allowed": "8000",
        }
        assert "Retry-After" not in reply.headers

    def test_a_full_service(self) -> None:
        reply = refusal(CapacityExceeded("every slot is taken", retry_after_s=7), request_id="r")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "7")
        assert json.loads(reply.body)["err_msg"] == "every slot is taken"

    def test_a_service_that_stops(self) -> None:
        reply = refusal(ShuttingDown("stopping"), request_id="r")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")

    def test_our_own_fault_stays_ours(self) -> None:
        assert b"secret" not in refusal(StepFailed("secret"), request_id="r").body

    @pytest.mark.parametrize("name", ["a\r\nX: y", "ä\x00\u2028", "x" * 5000, "\ud800"])
    def test_headers_are_printable_ascii_whatever_the_client_wrote(self, name: str) -> None:
        reply = refusal(BadQuery(parameter=name, value=None, allowed="nothing"), request_id="r")
        said = reply.headers["dg-error"]
        assert said.isascii()
        assert said.isprintable()
        assert len(said) <= 500
        json.loads(reply.body)
