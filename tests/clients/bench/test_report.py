"""What a report says of a case, whether or not a trial was held."""

from dataclasses import replace

import pytest

from clients.bench.figures import Bare, BenchFigures, CaseFigures, MachineFigures, Spread, Trial, Usage
from clients.bench.report import remarks, sheets

BUSY = Usage(service_cores=0.2, worker_cores=0.9, client_cores=0.1, other_cores=0.8)
IDLE = replace(BUSY, other_cores=0.02)
OTHERS = "light model: other processes used 0.8 cores meanwhile: the figures are too low"


def trial(streams: int, usage: Usage = BUSY, failure: str = "") -> Trial:
    step = None if failure else Spread(count=9, p50_ms=1.0, p95_ms=2.0, p99_ms=900.0)
    return Trial(streams=streams, step=step, usage=usage, failure=failure)


def case(*trials: Trial, held: Trial | None = None) -> CaseFigures:
    return CaseFigures(
        name="light",
        title="light model",
        tick_ms=160.0,
        instances=2,
        threads=1,
        bare=(Bare(points=(), finals=None, streams=122.0),),
        trials=trials,
        held=held,
    )


def table(found: CaseFigures, title: str) -> tuple[tuple[str, ...], ...]:
    machine = MachineFigures(
        processor="x", cores=2, memory_gib=8.0, system="Linux", python="3", torch="2", accelerators=()
    )
    figures = BenchFigures(machine=machine, speech="", chunk_ms=80, seconds=4.0, cases=(found,))
    return next((sheet.rows for sheet in sheets(figures) if sheet.title.startswith(title)), ())


def test_others_are_told_of_whether_or_not_a_trial_was_held() -> None:
    assert OTHERS in list(remarks(case(trial(42), trial(21))))
    assert list(remarks(case(trial(42), held=trial(21)))) == [OTHERS]
    assert list(remarks(case(trial(42), held=trial(21, IDLE)))) == []


def test_cores_are_shown_of_the_fewest_streams_where_none_was_held() -> None:
    assert table(case(trial(42), trial(21)), "Cores in use") == (
        ("light model", "21", "0.20", "0.90", "0.10", "0.80", "0.00"),
    )
    assert [row[1] for row in table(case(trial(42), trial(21), held=trial(10)), "Cores in use")] == ["10"]
    assert table(case(trial(42)), "Latency") == ()


def test_a_trial_that_did_not_run_to_its_end_has_no_cores() -> None:
    refused = trial(21, Usage(), "ConnectionRefusedError")
    assert table(case(refused), "Cores in use") == ()
    assert [row[1] for row in table(case(trial(42), refused), "Cores in use")] == ["42"]


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([trial(42, IDLE), trial(21, IDLE)], "; fewer streams were not tried: the time was used up"),
        ([trial(2, IDLE), trial(1, IDLE)], ""),
        ([trial(1, IDLE, "503")], ": 503"),
    ],
)
def test_why_none_was_held(trials: list[Trial], expected: str) -> None:
    assert list(remarks(case(*trials))) == [f"light model: no trial was held{expected}"]
