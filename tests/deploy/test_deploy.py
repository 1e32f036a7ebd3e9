"""What is in deploy/ agrees with the service: every metric, label, setting and limit that is named there exists."""

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from server import errors
from server.configuration.config import MoorageConfig, load_config
from server.configuration.environment import PREFIX
from server.errors import MoorageError
from server.figures.metrics import ServiceCollector, metrics_page
from server.gateway.entrance import ServiceNotReady
from tests.server.figures.test_metrics import GATEWAY
from tests.support.accumulator_model import exact_audio
from tests.support.engines import CONFIG
from tests.support.service import exchange, serving
from tests.support.statistics import engine_stats

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
TARGET_LABELS = {"job", "instance"}
"""Prometheus adds them to everything that it reads."""

Labels = dict[str, set[str]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def expressions() -> list[str]:
    return dashboard_expressions() + [rule["expr"] for rule in RULES]


def labels_of(page: str) -> Labels:
    """Samples of a page by name, with their labels."""
    found: Labels = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def shown() -> Labels:
    """Everything that the page can show: keys, certificate, and models that count their work."""
    return labels_of(metrics_page(ServiceCollector(engine_stats, lambda: GATEWAY, lambda: 1.0))().decode())


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Metrics of an expression with the labels that are matched."""
    for name, matchers in re.findall(r"\b((?:moorage|process)_\w+)(\{[^}]*\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))


async def test_a_real_page_has_every_metric_that_needs_no_key_or_certificate(shown: Labels) -> None:
    async with serving(CONFIG) as service:
        audio = (exact_audio(1, 16_000) * 32768).astype("<i2").tobytes()
        await exchange(service, [audio, json.dumps({"type": "CloseStream"})], "encoding=linear16&sample_rate=16000")
        async with httpx.AsyncClient(trust_env=False) as http:
            page = (await http.get(f"http://127.0.0.1:{service.gateway.port}/metrics")).text
    declared = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    assert sorted(declared) == sorted(set(declared))
    real = labels_of(page)
    rare = {name for name in shown if name not in real}
    # labelled by what has not happened here, or of models that count their work in other words
    assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in rare} <= {
        "moorage_tls_certificate_expiry_timestamp_seconds",
        "moorage_key_sequences",
        "moorage_measured_streams",
        "moorage_refusals",
        "moorage_finals_replaced",
        "moorage_early_finals",
        "moorage_sentiments",
        "moorage_encoder_frames",
        "moorage_decoder_passes",
        "moorage_decoder_positions",
        "moorage_rows",
        "moorage_cache_bytes",
        "moorage_http_requests",
        "moorage_resource",
        "moorage_resource_waiting",
    }
    assert all(real[name] == shown[name] for name in real if name in shown)


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_that_is_asked_for_exists(shown: Labels, expression: str) -> None:
    found = list(selectors(expression))
    assert found or expression.startswith("up{")
    for name, labels in found:
        assert name in shown, expression
        assert labels <= shown[name] | TARGET_LABELS, expression
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    known = set().union(*(shown[name] for name, _ in found)) if found else set()
    assert grouped <= known | TARGET_LABELS, expression


@pytest.mark.parametrize("expression", expressions())
def test_prometheus_can_read_every_expression(expression: str) -> None:
    plain = expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
    promql_parser.parse(plain)


def test_every_metric_is_on_the_dashboard(shown: Labels) -> None:
    asked = {name for expression in dashboard_expressions() for name, _ in selectors(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown if name.startswith("moorage_")}
    asked_families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert {name for name in families if not name.endswith("_created")} - asked_families == {
        "moorage_decoder_positions_total",
        "moorage_requests_total",
        "moorage_samples_total",
        "moorage_rows_total",
    }


class TestDashboard:
    def test_it_can_be_imported(self) -> None:
        assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("moorage", "Moorage")
        assert "id" not in DASHBOARD, "an import must not name a dashboard of somebody's own"
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        assert len(ids) == len(set(ids))
        variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
        assert set(re.findall(r"\$(?!__)\{?(\w+)", json.dumps(DASHBOARD["panels"]))) == variables

    def test_every_panel_says_what_it_shows(self) -> None:
        assert all(panel["title"] and len(panel["description"]) > 10 and panel["targets"] for panel in panels())

    def test_no_panel_lies_on_another(self) -> None:
        taken: set[tuple[int, int]] = set()
        for panel in DASHBOARD["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            cells = {
                (place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])
            }
            assert not cells & taken, panel["title"]
            taken |= cells


class TestAlerts:
    def test_each_says_how_bad_it_is_and_what_to_do(self) -> None:
        names = [rule["alert"] for rule in RULES]
        assert len(names) == len(set(names)) > 15
        for rule in RULES:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
            assert rule["labels"]["severity"] in ("page", "ticket"), rule
            assert set(rule["annotations"]) == {"summary", "description"}, rule

    def test_causes_and_reasons_are_those_that_there_are(self) -> None:
        codes = {
            kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MoorageError)
        }
        codes |= {"end", "cancelled", "endpoint", "finalize", "empty", "failed", ServiceNotReady.code}
        for rule in RULES:
            for values in re.findall(r'(?:cause|reason)(?:=~|!=|=)"([^"]*)"', rule["expr"]):
                assert set(values.split("|")) <= codes, rule["alert"]

    @pytest.mark.parametrize("condition", ["up{", "moorage_lag", "moorage_step_seconds", "moorage_finals_waiting"])
    def test_what_must_not_go_unnoticed_is_watched(self, condition: str) -> None:
        assert any(condition in rule["expr"] for rule in RULES)


class TestSystemd:
    @pytest.fixture
    def service(self) -> dict[str, list[str]]:
        lines = (DEPLOY / "moorage.service").read_text(encoding="utf-8").splitlines()
        settings: dict[str, list[str]] = {}
        for line in lines:
            name, separator, value = line.partition("=")
            if separator and not line.startswith(("#", "[")):
                settings.setdefault(name, []).append(value)
        return settings

    def test_it_is_a_unit(self) -> None:
        parser = configparser.RawConfigParser(strict=False)
        parser.optionxform = str  # type: ignore[assignment, method-assign]  # the documented way
        parser.read(DEPLOY / "moorage.service", encoding="utf-8")
        assert parser.sections() == ["Unit", "Service", "Install"]

    def test_it_waits_longer_than_the_service_drains(self, service: dict[str, list[str]]) -> None:
        server = MoorageConfig().server
        assert int(service["TimeoutStopSec"][0]) >= server.drain_timeout_s + server.shutdown_timeout_s + 10

    def test_signals_reach_the_main_process_alone(self, service: dict[str, list[str]]) -> None:
        assert (service["KillMode"], service["KillSignal"]) == (["mixed"], ["SIGTERM"])
        assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]

    def test_it_may_open_what_it_takes(self, service: dict[str, list[str]]) -> None:
        server = MoorageConfig().server
        assert int(service["LimitNOFILE"][0]) >= server.max_connections + server.max_handshakes + 128

    def test_a_wrong_configuration_is_not_tried_again(self, service: dict[str, list[str]]) -> None:
        assert service["RestartPreventExitStatus"] == ["2"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("DynamicUser", "yes"),
            ("NoNewPrivileges", "yes"),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "yes"),
            ("PrivateTmp", "yes"),
            ("CapabilityBoundingSet", ""),
            ("LimitCORE", "0"),
        ],
    )
    def test_it_may_do_little(self, service: dict[str, list[str]], name: str, value: str) -> None:
        assert service[name] == [value]

    def test_its_variables_are_settings(self, service: dict[str, list[str]]) -> None:
        variables = dict(entry.split("=", 1) for entry in service["Environment"])
        assert load_config(environment=variables).log.format == "json"


class TestContainer:
    TEXT = (DEPLOY / "Containerfile").read_text(encoding="utf-8")

    def instructions(self, name: str) -> list[str]:
        joined = re.sub(r"\\\n\s*", "", self.TEXT)
        return [line.split(" ", 1)[1] for line in joined.splitlines() if line.startswith(f"{name} ")]

    def test_what_it_copies_is_there(self) -> None:
        for copied in self.instructions("COPY"):
            if not copied.startswith("--from"):
                *sources, _ = copied.split()
                assert all((ROOT / source).exists() for source in sources), copied

    def test_it_copies_every_package(self) -> None:
        packages = {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").exists()}
        copied = {word for line in self.instructions("COPY") for word in line.split()}
        assert packages - copied == {"tests", "audio_fixtures"}

    def test_it_is_not_root_and_can_be_stopped_and_asked(self) -> None:
        (user,) = self.instructions("USER")
        assert int(user.split(":")[0]) > 1000
        assert self.instructions("STOPSIGNAL") == ["SIGTERM"]
        (health,) = self.instructions("HEALTHCHECK")
        assert "/healthz" in self.TEXT
        command = json.loads(health.split("CMD ")[1])
        compile(command[2], "healthcheck", "exec")

    def test_its_variables_are_settings(self) -> None:
        words = " ".join(self.instructions("ENV")).split()
        variables = dict(word.split("=", 1) for word in words if word.startswith(PREFIX))
        config = load_config(environment=variables, overrides={"access": {"allow_anonymous": True}})
        assert (config.server.host, config.log.format) == ("0.0.0.0", "json")

    def test_the_constraints_have_what_its_commands_look_for(self) -> None:
        text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
        assert len(re.findall(r"^torch==\d", text, re.MULTILINE)) == 1
