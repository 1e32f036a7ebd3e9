"""From what the copies of a model answered to whether it may be served as it is to be. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.proving.evidence import (
    ROUNDED,
    Answer,
    Claim,
    Observation,
    Proof,
    Tolerance,
    conclude,
    contradiction,
    copies_differ,
    is_excusable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """An order to a worker: find out what the loaded model is."""

    is_whole: bool = True
    """Whether to do all experiments; else only what is compared with another copy."""
    is_thorough: bool = False
    """More audio and one experiment for each question, as the doctor wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The reply: what it is."""

    proof: Proof | None
    """None: it was not asked for."""
    answers: tuple[Answer, ...]
    """For comparison with another copy of the same model."""
    tolerance: Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Another copy of a model, and what it answered."""

    probed: Probed
    is_alike: bool = True
    """Whether it computes on the same kind of device as the first, so that hardly anything may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a model may be served with the scheduler that it is to have."""

    claim: Claim
    proof: Proof
    fault: str | None
    """Why not, naming the evidence; None: it may."""
    is_excusable: bool
    """Whether ``allow_wrong_scheduler`` lets it serve all the same."""

    def refusal(self, *, is_wrong_allowed: bool) -> str | None:
        """Why it is not served; None: it is."""
        return None if self.is_excusable and is_wrong_allowed else self.fault


def judge(claim: Claim, first: Probed, others: Sequence[Copy] = ()) -> Judgement:
    """What the probes of all copies amount to.

    Args:
        claim: Which scheduler the model is to have.
        first: The copy that was asked everything.
        others: The rest, asked for comparison.
    """
    assert first.proof is not None, "the first copy is asked everything"
    copies = [differs_from(first, other) for other in others]
    proof = conclude([*first.proof.observations, *copies]) if copies else first.proof
    fault = contradiction(claim, proof)
    if fault is None and proof.scheduler is None and claim.configured and claim.configured != claim.declared != "":
        fault = (
            f"{claim.role}.scheduler: the configuration says {claim.configured}, {claim.model} declares"
            f" {claim.declared}, and it cannot be told which is right: {'; '.join(proof.evidence)}"
        )
    return Judgement(claim=claim, proof=proof, fault=fault, is_excusable=is_excusable(proof))


def differs_from(first: Probed, other: Copy) -> Observation:
    """Whether another copy answers as the first did."""
    return copies_differ(first.answers, other.probed.answers, first.tolerance if other.is_alike else ROUNDED)
