"""``moorage doctor``: runs every check, whatever the others find."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from server.composition import check_models
from server.configuration.config import MoorageConfig, load_config
from server.doctor import installation, models, schedulers, service
from server.doctor.finding import Finding, as_json, as_text, fault, has_fault, ok
from server.errors import ConfigError

EXIT_FAULT = 1

Check = Callable[[], Iterator[Finding]]


def diagnose(path: Path | None, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything that was found, in order. Never raises: a check that breaks is a fault.

    Args:
        path: Configuration file; None: the defaults.
        environment: Variables to read instead of the process's own.
    """
    findings: list[Finding] = []
    for check in (installation.check_python, installation.check_packages, installation.check_codecs):
        findings += _outcome(check)
    config: MoorageConfig | None = None
    try:
        config = load_config(path, environment)
        check_models(config)
        findings.append(ok("configuration", str(path) if path is not None else "the defaults"))
    except ConfigError as error:
        advice = "correct it; moorage config reference lists every field"
        findings += [fault("configuration", line, advice) for line in str(error).splitlines()]
    findings += _outcome(installation.check_weights_package)
    if config is not None:
        for check in _configured_checks(config):
            findings += _outcome(check)
    return findings


def command(
    config: Annotated[Path | None, typer.Option(help="Configuration (TOML); else the defaults.")] = None,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Check the installation and say what to do. Exit code 1: the service would not serve."""
    findings = diagnose(config)
    typer.echo(as_json(findings) if form == "json" else as_text(findings))
    if has_fault(findings):
        raise typer.Exit(EXIT_FAULT)


def _configured_checks(config: MoorageConfig) -> list[Check]:
    return [
        lambda: models.check_torch(config),
        lambda: models.check_weights(config),
        lambda: models.check_memory(config),
        lambda: schedulers.check_schedulers(config),
        lambda: service.check_port(config),
        lambda: service.check_descriptors(config),
        lambda: service.check_tls(config, time.time()),
    ]


def _outcome(check: Check) -> list[Finding]:
    """What a check found up to its end or to where it broke."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as error:
        text = f"this check broke: {type(error).__name__}: {error}"
        findings.append(fault("doctor", text, "a broken installation, or a fault of ours: please report it"))
    return findings
