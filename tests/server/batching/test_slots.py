"""The ledger of slots."""

import pytest

from server.batching.slots import Lease, SlotState, SlotTable
from server.errors import CapacityExceeded, ServiceError
from server.ids import SlotIndex


def assert_counts(table: SlotTable, *, free: int, held: int, quarantined: int) -> None:
    assert (table.n_free, table.n_held, table.n_quarantined) == (free, held, quarantined)
    assert table.n_slots == free + held + quarantined


def test_every_slot_is_given_once_the_lowest_first() -> None:
    table = SlotTable(3)
    assert_counts(table, free=3, held=0, quarantined=0)
    leases = [table.acquire() for _ in range(3)]
    assert [lease.slot for lease in leases] == [0, 1, 2]
    assert_counts(table, free=0, held=3, quarantined=0)
    with pytest.raises(CapacityExceeded, match="every slot is taken"):
        table.acquire()
    table.release(leases[2])
    table.release(leases[0])
    assert table.acquire().slot == 0


def test_a_tenancy_has_its_own_generation() -> None:
    table = SlotTable(1)
    first = table.acquire()
    assert first == Lease(slot=SlotIndex(0), generation=1)
    assert table.holds(first)
    table.release(first)
    assert not table.holds(first)
    second = table.acquire()
    assert second == Lease(slot=SlotIndex(0), generation=2)
    assert table.holds(second)
    assert not table.holds(first), "the old tenant must not pass for the new one"


@pytest.mark.parametrize("verb", ["release", "quarantine"])
def test_a_tenancy_ends_once(verb: str) -> None:
    table = SlotTable(1)
    lease = table.acquire()
    table.release(lease)
    table.acquire()
    with pytest.raises(ServiceError, match="slot 0: generation 1 is not its tenant"):
        table.release(lease) if verb == "release" else table.quarantine(lease, 0)
    assert_counts(table, free=0, held=1, quarantined=0)


def test_a_slot_in_doubt_is_given_again_only_after_it_is_proved_clean() -> None:
    table = SlotTable(1)
    lease = table.acquire()
    table.quarantine(lease, scrub_at_ns=5)
    assert table.state(lease.slot) is SlotState.QUARANTINED
    assert not table.holds(lease)
    assert_counts(table, free=0, held=0, quarantined=1)
    with pytest.raises(CapacityExceeded):
        table.acquire()
    table.clear(lease.slot)
    assert table.state(lease.slot) is SlotState.FREE
    assert table.acquire().generation == 2
    assert table.state(lease.slot) is SlotState.HELD


def test_scrubs_have_their_time() -> None:
    table = SlotTable(3)
    leases = [table.acquire() for _ in range(3)]
    assert table.next_scrub_at_ns() is None
    table.quarantine(leases[1], scrub_at_ns=5)
    table.quarantine(leases[0], scrub_at_ns=8)
    assert table.next_scrub_at_ns() == 5
    assert table.take_scrubs(4) == ()
    assert table.take_scrubs(5) == (1,)
    assert table.next_scrub_at_ns() == 8
    # a slot is in one scrub at a time
    assert table.take_scrubs(8) == (0,)
    assert table.next_scrub_at_ns() is None
    table.defer_scrub(leases[1].slot, 20)
    assert table.next_scrub_at_ns() == 20
    assert table.take_scrubs(19) == ()
    assert table.take_scrubs(20) == (1,)
    table.clear(leases[0].slot)
    assert table.next_scrub_at_ns() is None
    assert table.n_quarantined == 1


def test_a_scrub_under_way_ends_with_its_instance() -> None:
    table = SlotTable(1)
    table.quarantine(table.acquire(), 0)
    assert table.take_scrubs(0) == (0,)
    table.quarantine_all(7)
    assert table.take_scrubs(7) == (0,)


@pytest.mark.parametrize("is_held", [True, False])
def test_only_slots_in_doubt_are_scrubbed(is_held: bool) -> None:
    table = SlotTable(1)
    if is_held:
        table.acquire()
    message = f"slot 0 is {'held' if is_held else 'free'}, not quarantined"
    with pytest.raises(ServiceError, match=message):
        table.clear(SlotIndex(0))
    with pytest.raises(ServiceError, match=message):
        table.defer_scrub(SlotIndex(0), 1)


def test_a_lost_instance_leaves_every_slot_in_doubt() -> None:
    table = SlotTable(3)
    held = table.acquire()
    doubtful = table.acquire()
    table.quarantine(doubtful, 50)
    table.quarantine_all(9)
    assert_counts(table, free=0, held=0, quarantined=3)
    assert not table.holds(held)
    assert table.take_scrubs(9) == (1, 0, 2)
