"""Who is audited, when, and what follows: all with time as an argument."""

from dataclasses import replace

import pytest

from server.audit import auditor as module
from server.audit.auditor import AuditLoad, Auditor, AuditSettings, Replay, is_chosen
from server.audit.comparison import Outcome
from server.ids import SequenceId
from server.plan import SequenceOptions
from tests.server.audit.rows import S, row, samples

SETTINGS = AuditSettings(share=1.0, max_audio_s=1.0, alarm_s=10.0, rounding_margins={"float32": 0.01})
ROOM = AuditLoad(free_slots=2, waiting=0)
N_SLOTS = 4
SECOND = 1_000_000_000


def made(settings: AuditSettings = SETTINGS) -> Auditor:
    auditor = Auditor(settings)
    auditor.begin("float32", N_SLOTS)
    return auditor


def heard(auditor: Auditor, said: str, sequence_id: SequenceId = S, margin: float = 1.0, at_ns: int = 0) -> None:
    """A whole sequence of a hundred samples."""
    auditor.opened(sequence_id, SequenceOptions(endpoint_silence_ms=500))
    auditor.sent(sequence_id, samples(100))
    auditor.row(row(0, 100, said, is_end=True, sequence_id=sequence_id, margin=margin))
    auditor.closed(sequence_id, at_ns, is_whole=True)


def replayed(auditor: Auditor, said: str, margin: float = 1.0) -> Replay:
    replay = auditor.next_replay(ROOM)
    assert replay is not None
    auditor.row(row(0, 100, said, is_end=True, sequence_id=replay.replay_id, margin=margin))
    return replay


class TestChoice:
    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
    def test_about_the_share_and_always_the_same(self, share: float) -> None:
        ids = [SequenceId(f"sequence-{number}") for number in range(2000)]
        chosen = [is_chosen(each, share) for each in ids]
        assert abs(sum(chosen) / 2000 - share) < 0.03
        assert chosen == [is_chosen(each, share) for each in ids]

    def test_none_with_a_share_of_nothing(self) -> None:
        auditor = made(replace(SETTINGS, share=0.0))
        heard(auditor, "one")
        assert not auditor.is_holding
        assert auditor.stats(0).recording == 0

    def test_those_recorded_at_once_are_bounded(self) -> None:
        auditor = made()
        for number in range(module.MAX_RECORDING + 3):
            auditor.opened(SequenceId(f"s{number}"))
        assert auditor.stats(0).recording == module.MAX_RECORDING
        assert auditor.stats(0).outcomes == {"dropped": 3}


class TestRecording:
    @pytest.mark.parametrize("is_whole", [True, False])
    def test_only_what_was_answered_to_its_end(self, is_whole: bool) -> None:
        auditor = made()
        auditor.opened(S)
        auditor.sent(S, samples(10))
        auditor.closed(S, 0, is_whole=is_whole)
        assert auditor.is_holding is is_whole
        assert auditor.stats(0).recording == 0

    def test_nothing_that_held_no_audio(self) -> None:
        auditor = made()
        auditor.opened(S)
        auditor.closed(S, 0, is_whole=True)
        assert not auditor.is_holding

    def test_the_oldest_gives_way(self) -> None:
        auditor = made()
        for number in range(module.MAX_WAITING + 2):
            heard(auditor, "one", SequenceId(f"s{number}"))
        assert auditor.stats(0).waiting == module.MAX_WAITING
        assert auditor.stats(0).outcomes == {"dropped": 2}
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        assert replay.record.sequence_id == "s2"

    def test_what_is_sent_and_asked_comes_again(self) -> None:
        auditor = made()
        auditor.opened(S, SequenceOptions(endpoint_silence_ms=500))
        auditor.sent(S, samples(10))
        auditor.finalized(S)
        auditor.sent(S, samples(5, 10))
        auditor.closed(S, 0, is_whole=True)
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        assert [(each.samples.size, each.finalize) for each in replay.record.passages()] == [(10, True), (5, False)]
        assert replay.record.options.endpoint_silence_ms == 500
        assert S in replay.replay_id

    def test_it_keeps_as_much_as_it_may(self) -> None:
        auditor = made()
        auditor.opened(S)
        auditor.sent(S, samples(20_000))
        auditor.closed(S, 0, is_whole=True)
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        assert replay.record.n_samples == 16_000


class TestRoom:
    @pytest.mark.parametrize(
        ("load", "has_room"),
        [
            (AuditLoad(free_slots=2, waiting=0), True),
            (AuditLoad(free_slots=1, waiting=0), False),
            (AuditLoad(free_slots=0, waiting=0), False),
            (AuditLoad(free_slots=9, waiting=1), False),
        ],
    )
    def test_never_the_last_slot_nor_before_who_waits(self, load: AuditLoad, has_room: bool) -> None:
        auditor = made()
        heard(auditor, "one")
        assert (auditor.next_replay(load) is not None) is has_room
        assert auditor.is_holding is not has_room

    @pytest.mark.parametrize("n_slots", [0, 1, 2])
    def test_with_no_slot_to_spare_nothing_is_kept(self, n_slots: int) -> None:
        auditor = Auditor(SETTINGS)
        auditor.begin("float32", n_slots)
        auditor.opened(S)
        assert auditor.is_possible is (n_slots == 2)
        assert auditor.stats(0).recording == int(n_slots == 2)
        assert auditor.stats(0).outcomes == {}

    def test_another_model_may_have_the_slots(self) -> None:
        auditor = Auditor(SETTINGS)
        auditor.begin("float32", 1)
        auditor.begin("float32", 2)
        heard(auditor, "one")
        assert auditor.is_holding

    def test_what_waits_for_too_long_is_dropped(self) -> None:
        auditor = made()
        for number in range(3):
            heard(auditor, "one", SequenceId(f"s{number}"), at_ns=number * SECOND)
        late_ns = module.MAX_KEPT_S * SECOND
        auditor.drop_late(late_ns - 1)
        assert (auditor.stats(0).waiting, auditor.stats(0).outcomes) == (3, {})
        auditor.drop_late(late_ns + SECOND)
        assert (auditor.stats(0).waiting, auditor.stats(0).outcomes) == (1, {"dropped": 2})
        auditor.drop_late(late_ns + 2 * SECOND)
        assert (auditor.stats(0).waiting, auditor.stats(0).outcomes) == (0, {"dropped": 3})

    def test_one_that_made_room_is_kept_no_longer_for_it(self) -> None:
        auditor = made()
        heard(auditor, "one")
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        auditor.given_up(replay, made_room=True)
        auditor.drop_late(module.MAX_KEPT_S * SECOND)
        assert auditor.stats(0).outcomes == {"dropped": 1}

    def test_one_at_a_time(self) -> None:
        auditor = made()
        heard(auditor, "one")
        heard(auditor, "two", SequenceId("t"))
        replay = replayed(auditor, "one")
        assert (auditor.stats(0).running, auditor.stats(0).waiting) == (1, 1)
        assert auditor.next_replay(ROOM) is None
        auditor.finished(replay, 0)
        assert auditor.stats(0).running == 0
        assert auditor.next_replay(ROOM) is not None

    def test_one_that_made_room_comes_again_first(self) -> None:
        auditor = made()
        heard(auditor, "one")
        heard(auditor, "two", SequenceId("t"))
        for attempt in range(1, module.MAX_ATTEMPTS + 1):
            replay = auditor.next_replay(ROOM)
            assert replay is not None
            assert (replay.record.sequence_id, replay.attempt) == (S, attempt)
            assert not replay.alone.rows, "nothing is left of the attempt before"
            auditor.row(row(0, 100, "tw", sequence_id=replay.replay_id))
            auditor.given_up(replay, made_room=True)
        assert auditor.stats(0).outcomes == {"dropped": 1}
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        assert replay.record.sequence_id == "t"

    def test_one_that_failed_does_not(self) -> None:
        auditor = made()
        heard(auditor, "one")
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        auditor.given_up(replay, made_room=False)
        assert auditor.stats(0).outcomes == {"failed": 1}
        assert not auditor.is_holding


class TestVerdict:
    @pytest.mark.parametrize(
        ("said", "margin", "outcome"),
        [("one two", 1.0, Outcome.SAME), ("one six", 1.0, Outcome.MISMATCH), ("one six", 0.001, Outcome.TIE)],
    )
    def test_it_is_counted(self, said: str, margin: float, outcome: Outcome) -> None:
        auditor = made()
        heard(auditor, "one two", margin=margin)
        verdict = auditor.finished(replayed(auditor, said, margin), 0)
        assert verdict.outcome is outcome
        assert auditor.stats(0).outcomes == {outcome.value: 1}
        assert (auditor.stats(0).alarm is not None) is (outcome is Outcome.MISMATCH)

    def test_the_beginning_of_a_long_sequence(self) -> None:
        auditor = made()
        auditor.opened(S)
        auditor.sent(S, samples(20_000))
        for effect in (row(0, 8_000, "one"), row(8_000, 16_000), row(16_000, 20_000, "two three", is_end=True)):
            auditor.row(effect)
        auditor.closed(S, 0, is_whole=True)
        replay = auditor.next_replay(ROOM)
        assert replay is not None
        for effect in (row(0, 8_000, "one"), row(8_000, 16_000), row(16_000, 16_000, "tw", is_end=True)):
            auditor.row(replace(effect, row=replace(effect.row, sequence_id=replay.replay_id)))
        assert auditor.finished(replay, 0).outcome is Outcome.SAME

    def test_the_alarm_stands_for_its_time_after_the_last_mismatch(self) -> None:
        auditor = made()
        assert auditor.alarm(0) is None
        for number, at_ns in enumerate((0, 5 * SECOND)):
            heard(auditor, "one", SequenceId(f"s{number}"))
            auditor.finished(replayed(auditor, "two"), at_ns)
        assert auditor.alarm(15 * SECOND - 1) == "audit: sequence s1 was told what its audio alone does not say"
        assert auditor.alarm(15 * SECOND) is None

    def test_an_audit_that_finds_nothing_ends_no_alarm(self) -> None:
        auditor = made()
        heard(auditor, "one")
        auditor.finished(replayed(auditor, "two"), 0)
        heard(auditor, "one")
        auditor.finished(replayed(auditor, "one"), SECOND)
        assert auditor.alarm(SECOND) is not None


class TestAnotherModel:
    def test_what_the_one_before_said_is_not_compared(self) -> None:
        auditor = made()
        heard(auditor, "one")
        auditor.opened(SequenceId("t"))
        auditor.begin("float32", N_SLOTS)
        assert not auditor.is_holding
        auditor.sent(SequenceId("t"), samples(10))
        auditor.closed(SequenceId("t"), 0, is_whole=True)
        assert not auditor.is_holding
        assert auditor.stats(0).outcomes == {"dropped": 2}

    def test_a_replay_that_is_out_comes_to_its_verdict(self) -> None:
        auditor = made()
        heard(auditor, "one")
        replay = replayed(auditor, "one")
        auditor.begin("bfloat16", N_SLOTS)
        assert auditor.finished(replay, 0).outcome is Outcome.SAME

    def test_a_replay_that_makes_room_for_it_is_not_tried_again(self) -> None:
        auditor = made()
        heard(auditor, "one")
        replay = replayed(auditor, "one")
        auditor.begin("float32", N_SLOTS)
        auditor.given_up(replay, made_room=True)
        assert not auditor.is_holding
        assert auditor.stats(0).outcomes == {"dropped": 1}

    def test_the_margin_is_that_of_its_number_format(self) -> None:
        for precision, outcome in (("float32", Outcome.TIE), ("bfloat16", Outcome.MISMATCH)):
            auditor = Auditor(SETTINGS)
            auditor.begin(precision, N_SLOTS)
            heard(auditor, "one", margin=0.001)
            assert auditor.finished(replayed(auditor, "two", 0.001), 0).outcome is outcome
