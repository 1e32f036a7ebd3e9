"""What a check says, and how it is told. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """The service runs, but less well than it could or not for long."""
    FAULT = "fault"
    """The service would not start or not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    severity: Severity
    text: str
    advice: str = ""
    """What to do about it; empty where there is nothing to do."""


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check=check, severity=Severity.OK, text=text)


def warning(check: str, text: str, advice: str) -> Finding:
    """It could be better."""
    return Finding(check=check, severity=Severity.WARNING, text=text, advice=advice)


def fault(check: str, text: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(check=check, severity=Severity.FAULT, text=text, advice=advice)


def has_fault(findings: Sequence[Finding]) -> bool:
    """Whether the service would not serve."""
    return any(finding.severity is Severity.FAULT for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """One object: ``ok`` and the findings."""
    rows = [
        {"check": each.check, "status": each.severity.value, "text": each.text, "advice": each.advice}
        for each in findings
    ]
    return json.dumps({"ok": not has_fault(findings), "findings": rows}, indent=2, ensure_ascii=False)


def as_text(findings: Sequence[Finding]) -> str:
    """A line for each finding, its advice indented below, and a summary."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for each in findings:
        lines.append(f"{each.severity.value:<8} {each.check:<{width}}  {_indented(each.text, 11 + width)}")
        if each.advice:
            lines.append(f"{'':<{9 + width}}  → {_indented(each.advice, 13 + width)}")
    counts = {severity: sum(each.severity is severity for each in findings) for severity in Severity}
    faults, warnings = counts[Severity.FAULT], counts[Severity.WARNING]
    lines += [
        "",
        f"{faults} {'fault' if faults == 1 else 'faults'}, {warnings} {'warning' if warnings == 1 else 'warnings'}",
    ]
    return "\n".join(lines)


def _indented(text: str, columns: int) -> str:
    return text.replace("\n", "\n" + " " * columns)
