"""The whole benchmark with the light model and a few streams: bare, served, in three forms on paper."""

import io
import json
from dataclasses import replace

import psutil
import pytest
import typer
from rich.console import Console

from clients.bench.bare import BareFailed, BareModels
from clients.bench.cases import QUICK, CaseName, case_config
from clients.bench.command import command
from clients.bench.figures import BenchFigures, CaseFigures
from clients.bench.machine import Meter, describe_machine, usage_between
from clients.bench.report import print_rich, to_json, to_markdown
from clients.bench.run import Bench
from clients.bench.service_process import ServiceFailed, ServiceProcess, is_empty
from clients.bench.track import Track, default_files, make_track
from clients.connection import ANYONE
from server.composition import engine_config
from server.configuration.config import LiveConfig, MoorageConfig

TINY = replace(
    QUICK,
    settle_ticks=1,
    timed_ticks=2,
    settle_s=0.4,
    measure_s=0.8,
    trials=1,
    confirmations=0,
    light_load_s=0.0,
    budget_s=0.0,
)
CONFIG = MoorageConfig(live=LiveConfig(instances=1, threads=1, device="cpu", max_batch=2))


@pytest.fixture(scope="module")
def track() -> Track:
    return make_track(default_files(1), None)


@pytest.fixture(scope="module")
def light(track: Track) -> CaseFigures:
    """One run; what it says while it runs is not looked at."""
    bench = Bench(config=CONFIG, track=track, effort=TINY, chunk_ms=100, say=lambda _: None)
    (found,) = bench.run([CaseName.LIGHT])
    return found


def figures(light: CaseFigures, track: Track) -> BenchFigures:
    return BenchFigures(
        machine=describe_machine(), speech=track.description, chunk_ms=100, seconds=TINY.measure_s, cases=(light,)
    )


def test_bare_and_served_streams_are_found(light: CaseFigures) -> None:
    assert [point.batch for point in light.bare[0].points] == [1, 2]
    assert len(light.bare) == 2, "before and after the served streams"
    assert light.bare_streams is not None
    assert light.bare_streams >= 1
    trial = light.trials[0]
    assert trial.failure == ""
    assert trial.step is not None
    assert trial.step.count == pytest.approx(trial.streams * TINY.measure_s / 0.16, abs=trial.streams)
    assert trial.usage.worker_cores > 0
    assert trial.usage.service_cores > 0
    assert (light.tick_ms, light.instances, light.threads, light.slot_bytes) == (160.0, 1, 1, 18_560)


def test_nothing_is_left_running(light: CaseFigures) -> None:
    names = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not [name for name in names if "serve" in name], light.title


@pytest.mark.parametrize("held", [True, False])
def test_it_goes_on_paper(light: CaseFigures, track: Track, held: bool) -> None:
    shown = figures(replace(light, held=light.trials[0] if held else None), track)
    paper = io.StringIO()
    print_rich(Console(file=paper, width=200), shown)
    markdown = to_markdown(shown)
    for text in (paper.getvalue(), markdown):
        assert "light model" in text
        assert f"{light.bare_streams:.1f}" in text
        assert ("no trial was held" in text) is not held
    assert markdown.count("\n|---|") == (4 if held else 3), "without latencies if none was held"
    (case,) = json.loads(to_json(shown))["cases"]
    assert case["bare_streams"] == light.bare_streams
    assert bool(case["ratio"]) is held


def test_it_loads_a_service_that_runs_elsewhere(track: Track) -> None:
    bench = Bench(config=CONFIG, track=track, effort=TINY, chunk_ms=20, say=lambda _: None)
    settings = {"LIVE__MODEL": "light-lstm", "LIVE__SLOTS": "2", "LIVE__INSTANCES": "1", "FINAL__MODEL": "none"}
    with ServiceProcess(None, {f"MOORAGE_{name}": value for name, value in settings.items()}) as service:
        service.wait_ready()
        found = bench.run_elsewhere(CaseName.LIGHT, service.url, ANYONE, 2)
        full = bench.run_elsewhere(CaseName.LIGHT, service.url, ANYONE, 3)
    assert [(trial.streams, trial.failure) for trial in found.trials] == [(2, "")]
    assert "503" in full.trials[0].failure, "the service has two slots"
    assert [trial.streams for trial in full.trials] == [3, 1]
    assert found.bare_streams is None


def test_a_service_that_does_not_start_says_why() -> None:
    with ServiceProcess(None, {"MOORAGE_LIVE__MODEL": "none-such"}) as service, pytest.raises(ServiceFailed) as caught:
        service.wait_ready()
    assert "none-such" in str(caught.value)


def test_a_model_that_cannot_be_loaded_says_why(track: Track) -> None:
    config = case_config(CONFIG, CaseName.LIGHT)
    config = config.model_copy(update={"live": config.live.model_copy(update={"options": {"depth": 3}})})
    with pytest.raises(BareFailed, match="no option depth"), BareModels(engine_config(config), track, TINY):
        pass


def test_the_meter_sees_what_this_process_uses() -> None:
    meter = Meter(service_pid=psutil.Process().pid, client_pid=psutil.Process().pid)
    before = meter.read()
    assert sum(range(10_000_000)) > 0
    usage = usage_between(before, meter.read())
    assert usage.service_cores > 0
    assert meter.memory_bytes() > 0


def test_a_running_service_is_measured_with_one_case() -> None:
    with pytest.raises(typer.BadParameter, match="--only"):
        command(url="ws://127.0.0.1:1", only=[CaseName.LIVE, CaseName.LIGHT])


def test_a_service_that_is_not_there_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        command(url="ws://127.0.0.1:9", only=[CaseName.LIGHT], quick=True, speech=default_files(1))
    assert caught.value.exit_code == 1
    assert "no trial was held: ConnectionRefusedError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("live", "used", "empty"), [("0.0", "0.0", True), ("0.0", "1.0", False), ("2.0", "0.0", False)]
)
def test_a_slot_outlives_its_stream(live: str, used: str, empty: bool) -> None:
    page = f'# HELP x\nmoorage_sequences_live {live}\nmoorage_slots{{state="used"}} {used}\n'
    assert is_empty(page) is empty
    assert not is_empty("")
