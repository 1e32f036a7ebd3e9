"""Findings as text and as JSON."""

import json

from server.doctor.finding import as_json, as_text, fault, has_fault, ok, warning

FINDINGS = [ok("a", "fine"), warning("bcd", "two\nlines", "do this"), fault("e", "broken", "do that")]


def test_text() -> None:
    assert as_text(FINDINGS).splitlines() == [
        "ok       a    fine",
        "warning  bcd  two",
        "              lines",
        "              → do this",
        "fault    e    broken",
        "              → do that",
        "",
        "1 fault, 1 warning",
    ]


def test_json() -> None:
    told = json.loads(as_json(FINDINGS))
    assert told["ok"] is False
    assert told["findings"][1] == {"check": "bcd", "status": "warning", "text": "two\nlines", "advice": "do this"}
    assert json.loads(as_json(FINDINGS[:2]))["ok"] is True


def test_only_faults_are_faults() -> None:
    assert not has_fault(FINDINGS[:2])
    assert has_fault(FINDINGS)
