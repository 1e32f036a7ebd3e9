"""Asks a loaded model what it is. Runs where the model runs; what comes back is flat."""

from typing import Final

from asr_model.contract import Model, OneShotModel, StreamingModel, TensorModel, TensorStreamingModel
from server.proving.audio_probe import ListeningRequests, ListeningSlots, tolerance_of
from server.proving.evidence import conclude
from server.proving.experiments import examine_requests, examine_slots, reference, requests_alone
from server.proving.judgement import Probe, Probed
from server.proving.tensor_probe import TensorRequests, TurnSlots

SHORT_TICKS: Final = 3
"""Ticks of a voice at the start of a service: 0.7 s, enough for the live model's first words."""
THOROUGH_TICKS: Final = 6
SHORT_TURNS: Final = 4
THOROUGH_TURNS: Final = 9


def probe(model: Model, device: str, order: Probe) -> Probed:
    """Puts the model through the experiments for its kind, which is told by the verb it has, not by what it declares.

    Args:
        model: A loaded model.
        device: Torch device name of the model.
        order: How much is asked.
    """
    subject = _subject(model, device, order)
    tolerance = tolerance_of(model.spec.precision)
    if isinstance(subject, ListeningSlots | TurnSlots):
        if not order.is_whole:
            return Probed(proof=None, answers=tuple(reference(subject, subject.n_pieces)), tolerance=tolerance)
        examined = examine_slots(subject, is_thorough=order.is_thorough)
    else:
        if not order.is_whole:
            return Probed(proof=None, answers=tuple(requests_alone(subject)), tolerance=tolerance)
        examined = examine_requests(subject, is_thorough=order.is_thorough)
    return Probed(proof=conclude(examined.observations), answers=examined.answers, tolerance=tolerance)


def _subject(
    model: Model, device: str, order: Probe
) -> ListeningSlots | TurnSlots | ListeningRequests | TensorRequests:
    match model:
        case StreamingModel():
            return ListeningSlots(model, device, THOROUGH_TICKS if order.is_thorough else SHORT_TICKS)
        case TensorStreamingModel():
            return TurnSlots(model, device, THOROUGH_TURNS if order.is_thorough else SHORT_TURNS)
        case OneShotModel():
            return ListeningRequests(model)
        case TensorModel():
            return TensorRequests(model, device)
