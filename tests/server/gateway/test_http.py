"""Plain GETs, as functions."""

import json
from dataclasses import replace
from http import HTTPStatus

import pytest

from server.audit.auditor import AuditStats
from server.codec.audio_format import CONTAINERS, ENCODINGS
from server.errors import (
    BadMessage,
    CapacityExceeded,
    KeyLimit,
    OriginRefused,
    ShuttingDown,
    StepFailed,
    Unauthorized,
)
from server.gateway.http import PROTECTED_PATHS, ROUTES, Reply, Site, refusal, respond
from server.wire.query import BadQuery
from tests.support.statistics import engine_stats, model


def site(*, is_ready: bool = True) -> Site:
    return Site(stats=lambda: engine_stats(is_ready=is_ready), metrics=lambda: b"moorage_ready 1\n", version="9.9")


def get(path: str, *, is_ready: bool = True) -> Reply:
    return respond("GET", path, site(is_ready=is_ready))


class TestRoutes:
    def test_health_does_not_depend_on_readiness(self) -> None:
        assert get("/healthz", is_ready=False) == Reply(status=HTTPStatus.OK, body=b"ok\n")

    @pytest.mark.parametrize(
        ("is_ready", "is_loaded", "is_draining", "reasons"),
        [
            (True, True, False, []),
            (False, False, False, ["loading models"]),
            (False, True, False, ["live model down: its instances are being replaced"]),
            (True, True, True, ["draining: the service is about to stop"]),
            (False, False, True, ["draining: the service is about to stop"]),
        ],
    )
    def test_readiness(self, is_ready: bool, is_loaded: bool, is_draining: bool, reasons: list[str]) -> None:
        stats = engine_stats(is_ready=is_ready, is_loaded=is_loaded)
        shown = Site(stats=lambda: stats, metrics=lambda: b"", version="9", is_draining=lambda: is_draining)
        reply = respond("GET", "/readyz", shown)
        assert reply.status == (503 if reasons else 200)
        assert json.loads(reply.body) == {
            "ready": not reasons,
            "reasons": reasons,
            "degraded": not reasons,
            "models": {"live": "1/2 instances ready", "final": "1/1 instances ready"},
        }

    @pytest.mark.parametrize(("final_ready", "is_degraded"), [(0, True), (1, False)])
    def test_a_final_model_that_is_down_degrades(self, final_ready: int, is_degraded: bool) -> None:
        models = (model("live", "a", scheduler="sequence"), model("final", "b", instances_ready=final_ready))
        stats = replace(engine_stats(), models=models)
        reply = respond("GET", "/readyz", Site(stats=lambda: stats, metrics=lambda: b"", version="9"))
        assert reply.status == 200
        assert json.loads(reply.body)["degraded"] is is_degraded

    @pytest.mark.parametrize(
        ("query", "is_strict"),
        [
            *((query, True) for query in ("strict", "strict=1", "a=b&strict=true")),
            *((query, False) for query in ("strict=0", "strict=false", "", "a=strict", "strictly")),
        ],
    )
    def test_strictly_ready_only_without_an_alarm(self, query: str, is_strict: bool) -> None:
        alarm = "audit: sequence s was told what its audio alone does not say"
        for standing in (alarm, None):
            stats = replace(engine_stats(), audit=AuditStats(alarm=standing))
            shown = Site(stats=lambda stats=stats: stats, metrics=lambda: b"", version="9")  # type: ignore[misc]
            reply = respond("GET", "/readyz", shown, query)
            fails = is_strict and standing is not None
            assert reply.status == (503 if fails else 200)
            assert json.loads(reply.body)["reasons"] == ([alarm] if fails else [])

    def test_metrics(self) -> None:
        reply = get("/metrics")
        assert (reply.body, reply.content_type) == (b"moorage_ready 1\n", "text/plain; version=0.0.4; charset=utf-8")

    def test_models(self) -> None:
        live, final = json.loads(get("/v1/models").body)["models"]
        known = {
            "role": "live",
            "name": "accumulator",
            "scheduler": "sequence",
            "device": "cpu",
            "precision": "bfloat16",
            "tick_ms": 240.0,
            "instances": 2,
            "instances_ready": 1,
            "slots": 4,
            "slots_total": 8,
            "slots_used": 5,
            "slots_quarantined": 1,
            "slot_bytes": 100,
            "streams": 5,
        }
        assert {name: live[name] for name in known} == known
        assert (final["name"], final["slots"], final["streams"]) == ("sum", 0, None)
        assert (final["slots_total"], final["slots_used"], final["tick_ms"]) == (0, 0, None)

    def test_the_index_names_every_path(self) -> None:
        text = get("/").body.decode()
        assert text.startswith("Moorage 9.9: ")
        assert all(path in text for path in (*ROUTES, "/v1/listen"))
        assert all(audio in text for audio in (*ENCODINGS, *CONTAINERS))

    @pytest.mark.parametrize("path", ["/nothing", "", "//", "/healthz/", "/v1/listen/"])
    def test_unknown_paths(self, path: str) -> None:
        reply = get(path)
        assert reply.status == 404
        assert reply.body.startswith(b"not found; known paths: /, /healthz, ")

    def test_without_a_key_nothing_is_shown_but_that_it_runs(self) -> None:
        assert frozenset(ROUTES) - PROTECTED_PATHS == {"/", "/healthz", "/readyz"}
        assert {"/metrics", "/v1/models"} <= PROTECTED_PATHS

    @pytest.mark.parametrize("method", ["POST", "OPTIONS", "DELETE"])
    def test_only_get_and_head(self, method: str) -> None:
        reply = respond(method, "/healthz", site())
        assert (reply.status, reply.headers) == (405, {"Allow": "GET, HEAD"})

    @pytest.mark.parametrize("path", [*ROUTES, "/nothing"])
    @pytest.mark.parametrize("is_ready", [True, False])
    def test_head_is_get_without_its_body(self, path: str, is_ready: bool) -> None:
        head, whole = respond("HEAD", path, site(is_ready=is_ready)), get(path, is_ready=is_ready)
        assert (head.status, head.content_type, head.body) == (whole.status, whole.content_type, b"")
        assert head.headers["Content-Length"] == str(len(whole.body))


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

    def test_a_wrong_key(self) -> None:
        reply = refusal(Unauthorized("the API key is not known here"), request_id="r")
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Token")
        assert json.loads(reply.body) == {
            "err_code": "INVALID_AUTH",
            "err_msg": "the API key is not known here",
            "request_id": "r",
        }
        assert "Retry-After" not in reply.headers

    def test_a_page_from_elsewhere(self) -> None:
        reply = refusal(OriginRefused("no"), request_id="r")
        assert (reply.status, json.loads(reply.body)["err_code"]) == (403, "origin_refused")
        assert not {"Retry-After", "WWW-Authenticate"} & set(reply.headers)

    def test_a_key_at_its_limit(self) -> None:
        reply = refusal(KeyLimit("the key 'a' has 3 of its 3 streams open", retry_after_s=9), request_id="r")
        assert (reply.status, reply.headers["Retry-After"]) == (429, "9")
        assert json.loads(reply.body)["err_code"] == "TOO_MANY_REQUESTS"
        assert json.loads(reply.body)["err_msg"] == "the key 'a' has 3 of its 3 streams open"

    def test_other_mistakes_of_a_client(self) -> None:
        reply = refusal(BadMessage("no"), request_id="r")
        assert (reply.status, json.loads(reply.body)["err_code"]) == (400, "bad_message")

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
