"""Which scheduler each configured model needs, found out by asking it: the same probe as at the start, in full."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.configuration.config import MoorageConfig
from server.configuration.model_sections import ModelSection
from server.doctor.finding import Finding, fault, ok, warning
from server.proving.evidence import Claim, Conclusion
from server.proving.judgement import Copy, Judgement, Probe, Probed, judge
from server.workers.orders import Load, Loaded, ModelSource, Refused

if TYPE_CHECKING:
    from server.workers.worker_host import Host

ALIKE: Final = "else the same alone and in company, in any order, twice, and by another copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One copy of a model, and what it answered."""

    loaded: Loaded
    probed: Probed


def check_schedulers(config: MoorageConfig) -> Iterator[Finding]:
    """Loads each model twice, one copy after the other, and probes it."""
    sections: list[tuple[str, ModelSection]] = [("live", config.live)]
    if config.final.enabled:
        sections.append(("final", config.final))
    sections += [(model.name, model) for model in config.models]
    for role, section in sections:
        yield _finding(role, section)


def _finding(role: str, section: ModelSection) -> Finding:
    check = f"{role} scheduler"
    first = _ask(section, 0, Probe(is_thorough=True))
    if isinstance(first, Refused):
        return fault(check, f"{section.model} could not be asked: {first.error}", "correct what hinders it to load")
    declared = first.loaded.scheduler
    if not (section.scheduler or declared):
        text = f"{section.model} does not say which scheduler it needs, and neither does the configuration"
        needed = first.probed.proof.scheduler if first.probed.proof is not None else None
        return fault(check, text, f"set its scheduler; the probe found {needed or 'nothing'}")
    claim = Claim(role=role, model=section.model, declared=declared, configured=section.scheduler)
    second = _ask(section, 1, Probe(is_whole=False, is_thorough=True))
    if isinstance(second, Refused):
        return fault(check, f"a second copy of {section.model} could not be asked: {second.error}", "see the log")
    is_alike = first.loaded.device.partition(":")[0] == second.loaded.device.partition(":")[0]
    return _told(check, section, judge(claim, first.probed, [Copy(probed=second.probed, is_alike=is_alike)]))


def _told(check: str, section: ModelSection, judged: Judgement) -> Finding:
    proof, claim = judged.proof, judged.claim
    evidence = "; ".join(proof.evidence)
    if judged.fault is None and proof.conclusion is Conclusion.UNDECIDED:
        text = f"{claim.model} gets the {claim.effective} batcher, which cannot be proved: {evidence}"
        return warning(check, text, "make sure that it is right: a wrong one gives wrong answers without an error")
    if judged.fault is None:
        told = f"{claim.model} is {proof.conclusion.value}, {claim.effective} batcher: {evidence}; {ALIKE}"
        return ok(check, told)
    if judged.refusal(is_wrong_allowed=section.allow_wrong_scheduler) is None:
        advice = "for the demonstration alone: remove allow_wrong_scheduler and what it allows"
        return warning(check, f"WRONG, and allowed: {judged.fault}", advice)
    return fault(check, judged.fault, _advice(judged))


def _advice(judged: Judgement) -> str:
    needed, declared = judged.proof.scheduler, judged.claim.declared
    if needed is None:
        return "no setting makes it right: the model itself must keep its rows apart"
    if declared == needed:
        return f'remove scheduler = "{judged.claim.configured}": the model declares the right one'
    return f'set scheduler = "{needed}"; better, let the model declare it'


def _ask(section: ModelSection, instance: int, order: Probe) -> Asked | Refused:
    """Loads a copy, asks it, lets it go."""
    from server.workers.device_gate import DeviceGate, cells_needed
    from server.workers.worker_host import Host

    host = Host(DeviceGate([0] * cells_needed(1)), may_nice=False)
    groups = section.groups
    loaded = host.carry_out(
        Load(
            source=ModelSource(name=section.model, options=section.options),
            instance=instance,
            device=groups[min(instance, len(groups) - 1)].device,
            threads=0,
            optimize="" if section.optimize == "none" else section.optimize,
        )
    )
    return _probed(host, loaded, order) if isinstance(loaded, Loaded) else _refused(loaded)


def _probed(host: "Host", loaded: Loaded, order: Probe) -> Asked | Refused:
    probed = host.carry_out(order)
    return Asked(loaded=loaded, probed=probed) if isinstance(probed, Probed) else _refused(probed)


def _refused(reply: object) -> Refused:
    assert isinstance(reply, Refused), f"{reply!r} in reply to an order"
    return reply
