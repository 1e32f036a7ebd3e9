"""The slots of one instance: which are free, held, or in doubt.

A slot has at most one tenant (I2). Every tenancy has its own generation, so what an earlier tenant's step still brings
is told apart. A slot whose state is in doubt is quarantined until it was re-initialised and proved clean.
Slots are handed out lowest first, so a lightly loaded instance touches little of its state memory.
"""

from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

from server.errors import CapacityExceeded, ServiceError
from server.ids import SlotIndex


class SlotState(Enum):
    """Where a slot stands."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One tenancy of one slot."""

    slot: SlotIndex
    generation: int
    """Counts the slot's tenancies, from 1."""


class SlotTable:
    """The ledger of one instance's slots. Every verb is O(log slots) or better."""

    def __init__(self, n_slots: int) -> None:
        """All ``n_slots`` slots are free and never held."""
        self._states = [SlotState.FREE] * n_slots
        self._generations = [0] * n_slots
        self._free = [SlotIndex(index) for index in range(n_slots)]
        self._scrub_at_ns: dict[SlotIndex, int] = {}
        self._in_scrub: set[SlotIndex] = set()
        self._vacated: set[SlotIndex] = set()

    @property
    def n_slots(self) -> int:
        """Free, held and quarantined together."""
        return len(self._states)

    @property
    def n_free(self) -> int:
        """Slots that ``acquire`` can give."""
        return len(self._free)

    @property
    def n_quarantined(self) -> int:
        """Slots in doubt."""
        return len(self._scrub_at_ns)

    @property
    def n_held(self) -> int:
        """Slots with a tenant."""
        return self.n_slots - self.n_free - self.n_quarantined

    def state(self, slot: SlotIndex) -> SlotState:
        """Where the slot stands."""
        return self._states[slot]

    def acquire(self) -> Lease:
        """Give the lowest free slot to a new tenant.

        Raises:
            CapacityExceeded: no slot is free.
        """
        if not self._free:
            raise CapacityExceeded("every slot is taken")
        slot = heappop(self._free)
        self._states[slot] = SlotState.HELD
        self._generations[slot] += 1
        return Lease(slot=slot, generation=self._generations[slot])

    def holds(self, lease: Lease) -> bool:
        """Whether this very tenancy is still on."""
        return self._states[lease.slot] is SlotState.HELD and self._generations[lease.slot] == lease.generation

    def release(self, lease: Lease) -> None:
        """End a tenancy; the slot is free.

        Raises:
            ServiceError: the tenancy had ended before.
        """
        self._expect_tenancy(lease)
        self._states[lease.slot] = SlotState.FREE
        heappush(self._free, lease.slot)
        self._vacated.add(lease.slot)

    def take_vacated(self) -> tuple[SlotIndex, ...]:
        """Slots that became free since this was last asked, those included that have a new tenant by now."""
        vacated = tuple(sorted(self._vacated))
        self._vacated.clear()
        return vacated

    def quarantine(self, lease: Lease, scrub_at_ns: int) -> None:
        """End a tenancy; the slot is in doubt and may be scrubbed from ``scrub_at_ns`` on.

        Raises:
            ServiceError: the tenancy had ended before.
        """
        self._expect_tenancy(lease)
        self._states[lease.slot] = SlotState.QUARANTINED
        self._scrub_at_ns[lease.slot] = scrub_at_ns

    def quarantine_all(self, scrub_at_ns: int) -> None:
        """Put every slot in doubt, with or without a tenant: the instance that held them is gone."""
        self._free.clear()
        self._in_scrub.clear()
        self._vacated.clear()
        for index in range(self.n_slots):
            self._states[index] = SlotState.QUARANTINED
            self._scrub_at_ns[SlotIndex(index)] = scrub_at_ns

    def take_scrubs(self, now_ns: int) -> tuple[SlotIndex, ...]:
        """Slots in doubt that may be scrubbed now; each is in one step at a time, until it is cleared or deferred."""
        due = tuple(s for s, at_ns in self._scrub_at_ns.items() if at_ns <= now_ns and s not in self._in_scrub)
        self._in_scrub.update(due)
        return due

    def next_scrub_at_ns(self) -> int | None:
        """When the next slot in doubt may be scrubbed."""
        return min((at_ns for slot, at_ns in self._scrub_at_ns.items() if slot not in self._in_scrub), default=None)

    def defer_scrub(self, slot: SlotIndex, scrub_at_ns: int) -> None:
        """A scrub did not prove the slot clean: it may be tried again from then on."""
        self._expect_quarantine(slot)
        self._in_scrub.discard(slot)
        self._scrub_at_ns[slot] = scrub_at_ns

    def clear(self, slot: SlotIndex) -> None:
        """The slot was re-initialised and proved clean: it is free.

        Raises:
            ServiceError: the slot is not in doubt.
        """
        self._expect_quarantine(slot)
        self._in_scrub.discard(slot)
        del self._scrub_at_ns[slot]
        self._states[slot] = SlotState.FREE
        heappush(self._free, slot)

    def _expect_tenancy(self, lease: Lease) -> None:
        if not self.holds(lease):
            raise ServiceError(f"slot {lease.slot}: generation {lease.generation} is not its tenant")

    def _expect_quarantine(self, slot: SlotIndex) -> None:
        if self._states[slot] is not SlotState.QUARANTINED:
            raise ServiceError(f"slot {slot} is {self._states[slot].value}, not quarantined")
