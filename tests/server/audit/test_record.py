"""A record holds what is needed to hear a sequence again, and no more than its bound."""

import numpy as np

from asr_model.transcript import joined
from server.audit import record as module
from server.audit.record import Record
from server.plan import SequenceOptions
from tests.server.audit.rows import S, row, samples


def made(max_samples: int = 1000) -> Record:
    return Record(S, SequenceOptions(), max_samples=max_samples)


def told(record: Record, *, without_end: bool = False) -> str:
    return joined(record.words(without_end=without_end))


def passages(record: Record) -> list[tuple[int, int, bool]]:
    """First sample, number of samples, whether Finalize follows."""
    return [
        (int(each.samples[0]) if each.samples.size else -1, each.samples.size, each.finalize)
        for each in record.passages()
    ]


class TestAudio:
    def test_it_comes_again_cut_at_each_finalize(self) -> None:
        record = made()
        record.send(samples(10))
        record.send(samples(5, 10))
        record.finalize()
        record.finalize()
        record.send(samples(7, 15))
        assert passages(record) == [(0, 15, True), (-1, 0, True), (15, 7, False)]
        assert np.array_equal(np.concatenate([each.samples for each in record.passages()]), samples(22))
        assert not record.is_cut

    def test_it_is_a_copy(self) -> None:
        record, chunk = made(), samples(4)
        record.send(chunk)
        chunk[:] = 9.0
        assert passages(record) == [(0, 4, False)]

    def test_only_the_beginning_is_kept(self) -> None:
        record = made(12)
        record.send(samples(10))
        assert not record.is_cut
        record.send(samples(10, 10))
        assert record.is_cut
        record.finalize()
        record.send(samples(10, 20))
        assert passages(record) == [(0, 12, False)]
        assert record.n_samples == 12

    def test_as_much_as_fits_is_not_cut(self) -> None:
        record = made(10)
        record.send(samples(10))
        record.finalize()
        assert not record.is_cut
        assert passages(record) == [(0, 10, True), (-1, 0, False)]

    def test_finalizes_are_bounded(self) -> None:
        record = made()
        record.send(samples(1))
        for _ in range(module.MAX_MARKS + 1):
            record.finalize()
        assert record.is_cut
        assert sum(each.finalize for each in record.passages()) == module.MAX_MARKS


class TestWords:
    def test_utterances_in_order_with_the_last(self) -> None:
        record = made()
        record.send(samples(30))
        record.finalize()
        for effect in (
            row(0, 10),
            row(10, 20, "one two"),
            row(20, 30, "three", flush=True),
            row(30, 30, "", is_end=True),
        ):
            record.complete_row(effect)
        assert told(record) == "one two three"
        assert record.heard_samples == 30
        assert [(each.first_sample, each.end_sample) for each in record.rows] == [(0, 10), (10, 20), (20, 30), (30, 30)]

    def test_what_end_ended_can_be_left_out(self) -> None:
        record = made()
        record.send(samples(20))
        record.complete_row(row(0, 10, "one"))
        record.complete_row(row(10, 20, "two", is_end=True))
        assert told(record) == "one two"
        assert told(record, without_end=True) == "one"

    def test_what_was_heard_behind_the_kept_audio_is_left_out(self) -> None:
        record = made(20)
        record.send(samples(40))
        record.complete_row(row(0, 10, "one"))
        record.complete_row(row(10, 20, "two"))
        record.complete_row(row(20, 30, "three"))
        record.complete_row(row(30, 40, "four", is_end=True))
        assert told(record) == "one two"
        assert len(record.rows) == 2

    def test_a_flush_whose_mark_is_not_kept_is_left_out(self) -> None:
        record = made(20)
        record.send(samples(20))
        record.send(samples(1))
        record.finalize()  # not kept: the record is cut
        record.complete_row(row(10, 20, "flushed", flush=True))
        assert told(record) == ""

    def test_a_flush_whose_mark_is_kept_stays(self) -> None:
        record = made(20)
        record.send(samples(20))
        record.finalize()
        record.send(samples(1))
        record.complete_row(row(10, 20, "flushed", flush=True))
        assert told(record) == "flushed"
