"""docs/operations.md agrees with the service: metrics, events, paths, files and limits."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from server.configuration.config import MoorageConfig, field_paths
from server.figures.metrics import ServiceCollector, metrics_page
from server.gateway.http import ROUTES
from tests.server.figures.test_metrics import GATEWAY
from tests.support.statistics import engine_stats

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_the_table_of_metrics_is_complete_and_right() -> None:
    page = metrics_page(ServiceCollector(engine_stats, lambda: GATEWAY, lambda: 1.0))().decode()
    shown = {}
    for family in text_string_to_metric_families(page):
        if family.name.startswith("moorage_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            shown[name] = (family.type, labels)
    table = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(moorage_\w+)` \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
    }
    assert table == shown


def test_every_path_is_told() -> None:
    assert all(f"`{path}`" in PAGE for path in ROUTES if path != "/")


def test_every_event_is_told() -> None:
    events = set(
        re.findall(r'"event": "(\w+)"', (ROOT / "server" / "gateway" / "stream_log.py").read_text(encoding="utf-8"))
    )
    assert len(events) == 4
    assert all(f"| `{event}` |" in PAGE for event in events)


def test_settings_that_are_named_exist() -> None:
    paths = set(field_paths())
    sections = "|".join(MoorageConfig.model_fields)
    named = set(re.findall(rf"`(?:{sections})\.\w+", PAGE))
    assert len(named) > 10
    assert {name.removeprefix("`") for name in named} <= paths


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert {"../deploy/moorage.service", "../deploy/Containerfile", "configuration.md"} <= set(links)
    for link in links:
        assert (ROOT / "docs" / link).exists(), link
