"""Which sequences are audited, when their audio is decoded again, and what has come of it. Pure: no asyncio, no clock.

opened / sent / finalized / row / closed     from the engine, of every sequence; cheap for those not chosen
next_replay -> Replay                        when there may be capacity; at most one is out
drop_late                                    now and then while some wait
finished / given_up                          exactly one of them for each replay
"""

import hashlib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from server.audit.comparison import Outcome, Verdict, compare
from server.audit.record import Record
from server.effects import RowCompleted
from server.ids import SequenceId
from server.plan import NOTHING_ASKED, Samples, SequenceOptions

SAMPLE_RATE: Final = 16_000
MAX_RECORDING: Final = 32
"""Live sequences recorded at once; at a minute of audio they take 123 MB together."""
MAX_WAITING: Final = 8
"""Records that wait for capacity; the oldest gives way, for the newest tells most of how things are."""
MAX_KEPT_S: Final = 600
"""Time after its end for which a sequence is kept at most: what finds no idle time is dropped."""
MAX_ATTEMPTS: Final = 3
"""Times that an audit may make room for a client before it is dropped."""
REPLAY_PREFIX: Final = "audit-"
LEAST_SLOTS: Final = 2
"""With fewer, there is never one for an audit beside one for a client."""
DROPPED, FAILED = "dropped", "failed"
AUDIT_OUTCOMES: Final = (*(outcome.value for outcome in Outcome), DROPPED, FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """How much is audited."""

    share: float = 0.0
    """Part of the sequences, 0 to 1."""
    max_audio_s: float = 60.0
    """Audio of a sequence that is kept and audited, from its beginning."""
    alarm_s: float = 600.0
    """Time after a mismatch in which the alarm stands."""
    shows_words: bool = True
    """Whether the log line about a difference has both texts."""
    rounding_margins: Mapping[str, float] = field(default_factory=dict)
    """By number format of the model: lead of a token's logit below which rounding may choose another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLoad:
    """How busy the service is."""

    free_slots: int
    waiting: int
    """Sequences that wait for a slot."""

    @property
    def has_room(self) -> bool:
        """Whether an audit may take a slot: never the last one, and none that somebody waits for."""
        return self.free_slots >= LEAST_SLOTS and not self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditStats:
    """A snapshot."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    """``same``, ``tie``, ``mismatch``; ``dropped`` for want of capacity; ``failed``."""
    recording: int = 0
    waiting: int = 0
    running: int = 0
    """Replays that have a slot now."""
    alarm: str | None = None
    """Why the texts are not to be trusted now."""


@dataclass(slots=True, kw_only=True, eq=False)
class Replay:
    """A record that is being decoded again."""

    replay_id: SequenceId
    record: Record
    alone: Record
    """What is heard this time."""
    attempt: int
    generation: int
    """Of the live model when it began."""
    drop_at_ns: int
    """The audio is kept no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A record that waits for capacity."""

    record: Record
    attempts: int
    """So far."""
    drop_at_ns: int


class Auditor:
    """Chooses, keeps, compares.

    Args:
        settings: How much is audited.
    """

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._max_samples = round(settings.max_audio_s * SAMPLE_RATE)
        self._recording: dict[SequenceId, Record] = {}
        self._waiting: deque[_Waiting] = deque()
        self._running: Replay | None = None
        self._n_replays = 0
        self._outcomes: Counter[str] = Counter()
        self._alarm: tuple[int, str] | None = None
        self._rounding_margin = 0.0
        self._generation = 0
        self._has_slots = False

    @property
    def settings(self) -> AuditSettings:
        """As they were given."""
        return self._settings

    @property
    def is_holding(self) -> bool:
        """Whether there is something that waits to be replayed."""
        return bool(self._waiting)

    @property
    def is_possible(self) -> bool:
        """Whether the model has the slots that audits need; without, nothing is recorded."""
        return self._has_slots

    def begin(self, precision: str, n_slots: int) -> None:
        """A model begins, perhaps in the place of another: what that one was heard to say is nothing to compare with.

        Args:
            precision: Its number format.
            n_slots: All its slots.
        """
        self._generation += 1
        self._has_slots = n_slots >= LEAST_SLOTS
        self._rounding_margin = self._settings.rounding_margins.get(precision, 0.0)
        if dropped := len(self._recording) + len(self._waiting):
            self._outcomes[DROPPED] += dropped
        self._recording.clear()
        self._waiting.clear()

    # Of live sequences

    def opened(self, sequence_id: SequenceId, options: SequenceOptions | None = None) -> None:
        """A sequence began; it is recorded if it is chosen."""
        if not self._has_slots or not is_chosen(sequence_id, self._settings.share):
            return
        if len(self._recording) >= MAX_RECORDING:
            self._outcomes[DROPPED] += 1
            return
        self._recording[sequence_id] = Record(sequence_id, options or NOTHING_ASKED, max_samples=self._max_samples)

    def sent(self, sequence_id: SequenceId, samples: Samples) -> None:
        """It took samples: float32 [N]."""
        if (record := self._recording.get(sequence_id)) is not None:
            record.send(samples)

    def finalized(self, sequence_id: SequenceId) -> None:
        """It took a Finalize."""
        if (record := self._recording.get(sequence_id)) is not None:
            record.finalize()

    def row(self, effect: RowCompleted) -> None:
        """A row ran, of a live sequence or of the replay."""
        if (record := self._recording.get(effect.row.sequence_id)) is not None:
            record.complete_row(effect)
        elif self._running is not None and self._running.replay_id == effect.row.sequence_id:
            self._running.alone.complete_row(effect)

    def closed(self, sequence_id: SequenceId, now_ns: int, *, is_whole: bool) -> None:
        """It is over. Only one that was answered to its end can be compared."""
        record = self._recording.pop(sequence_id, None)
        if record is None or not is_whole or not record.n_samples:
            return
        if len(self._waiting) == MAX_WAITING:
            self._waiting.popleft()
            self._outcomes[DROPPED] += 1
        drop_at_ns = now_ns + MAX_KEPT_S * 1_000_000_000
        self._waiting.append(_Waiting(record=record, attempts=0, drop_at_ns=drop_at_ns))

    # Replays

    def next_replay(self, load: AuditLoad) -> Replay | None:
        """The record to decode now; None: there is none, one is out already, or the service has no room for it."""
        if not self._waiting or self._running is not None or not load.has_room:
            return None
        next_one = self._waiting.popleft()
        record = next_one.record
        self._n_replays += 1
        replay_id = SequenceId(f"{REPLAY_PREFIX}{self._n_replays}-{record.sequence_id}")
        self._running = Replay(
            replay_id=replay_id,
            record=record,
            alone=record.again(replay_id),
            attempt=next_one.attempts + 1,
            generation=self._generation,
            drop_at_ns=next_one.drop_at_ns,
        )
        return self._running

    def drop_late(self, now_ns: int) -> None:
        """What has waited for too long is kept no longer."""
        kept = [each for each in self._waiting if now_ns < each.drop_at_ns]
        if dropped := len(self._waiting) - len(kept):
            self._outcomes[DROPPED] += dropped
            self._waiting = deque(kept)

    def finished(self, replay: Replay, now_ns: int) -> Verdict:
        """The replay was answered to its end."""
        self._take_back(replay)
        record = replay.record
        told = record.words(without_end=record.is_cut)
        alone = replay.alone.words(without_end=record.is_cut)
        verdict = compare(told, alone, self._rounding_margin)
        self._outcomes[verdict.outcome.value] += 1
        if verdict.outcome is Outcome.MISMATCH:
            reason = f"audit: sequence {record.sequence_id} was told what its audio alone does not say"
            self._alarm = (now_ns + round(self._settings.alarm_s * 1e9), reason)
        return verdict

    def given_up(self, replay: Replay, *, made_room: bool) -> None:
        """The replay did not come to its end: it failed, or made room; then it is tried again, unless another model has
        come."""
        self._take_back(replay)
        if made_room and replay.attempt < MAX_ATTEMPTS and replay.generation == self._generation:
            again = _Waiting(record=replay.record, attempts=replay.attempt, drop_at_ns=replay.drop_at_ns)
            self._waiting.appendleft(again)
        else:
            self._outcomes[DROPPED if made_room else FAILED] += 1

    def alarm(self, now_ns: int) -> str | None:
        """Why nobody should trust the texts; None: no audit of late found a difference."""
        if self._alarm is None or now_ns >= self._alarm[0]:
            return None
        return self._alarm[1]

    def stats(self, now_ns: int) -> AuditStats:
        """A snapshot."""
        return AuditStats(
            outcomes=dict(self._outcomes),
            recording=len(self._recording),
            waiting=len(self._waiting),
            running=int(self._running is not None),
            alarm=self.alarm(now_ns),
        )

    def _take_back(self, replay: Replay) -> None:
        assert self._running is replay, "a replay ends once"
        self._running = None


def is_chosen(sequence_id: SequenceId, share: float) -> bool:
    """Whether a sequence is among that part of all; always the same for the same id."""
    digest = hashlib.blake2b(str(sequence_id).encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64
