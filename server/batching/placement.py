"""Which instance a new sequence goes to. Pure: looks, and decides nothing else."""

from collections.abc import Sequence

from server.batching.lane import Lane


def choose_lane(lanes: Sequence[Lane]) -> Lane | None:
    """The instance for a new sequence; None: no slot is free.

    The one with the greatest share of its slots free; of equals one on the device with the greatest share free; of
    those the one with the least work ahead, by what its steps take; then the first. A lost instance has no free slot,
    and a slot in doubt is not free, so that ill instances get less.
    """
    free = [lane for lane in lanes if lane.slots.n_free]
    if not free:
        return None
    device_shares = {device: _device_share(lanes, device) for device in {lane.device for lane in free}}
    return max(free, key=lambda lane: (_share(lane), device_shares[lane.device], -lane.work_ahead_ns(), -lane.instance))


def _share(lane: Lane) -> float:
    return lane.slots.n_free / lane.slots.n_slots


def _device_share(lanes: Sequence[Lane], device: str) -> float:
    there = [lane for lane in lanes if lane.device == device]
    return sum(lane.slots.n_free for lane in there) / sum(lane.slots.n_slots for lane in there)
