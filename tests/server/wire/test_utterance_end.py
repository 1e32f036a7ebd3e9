"""UtteranceEnd: a gap after the last word, told once, never before the final with that word."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from asr_model.transcript import UtteranceEnd
from server.events import Partial, UtteranceFinal
from server.wire.utterance_end import LastWordWatch
from tests.support.wire import final, partial

GAP_MS = 1000


def watched(*events: Partial | UtteranceFinal) -> list[tuple[int, float]]:
    """Which event made the watch tell which last word."""
    watch = LastWordWatch(GAP_MS)
    told = []
    for index, event in enumerate(events):
        if isinstance(event, Partial):
            answers = [watch.on_partial(event)]
        else:
            answers = [watch.before_final(event), watch.after_final(event)]
        told += [(index, answer) for answer in answers if answer is not None]
    return told


class TestGap:
    def test_the_example_of_the_documentation(self) -> None:
        """Words to 1.2 s, then silence: told at 2.2 s, after the final."""
        assert watched(
            partial("hello", covered_s=0.72),
            final("hello there", UtteranceEnd.ENDPOINT, (0.0, 1.0)),
            partial("", utterance=1, start_s=1.0, covered_s=1.92),
            partial("", utterance=1, start_s=1.0, covered_s=2.16),
        ) == [(3, 1.0)]

    def test_once_per_last_word(self) -> None:
        assert watched(
            final("one", UtteranceEnd.ENDPOINT, (0.0, 0.5)),
            *[partial("", utterance=1, start_s=0.5, covered_s=at / 4) for at in range(4, 20)],
            final("two", UtteranceEnd.ENDPOINT, (5.0, 5.5), utterance=1),
            *[partial("", utterance=2, start_s=5.5, covered_s=at / 4) for at in range(24, 40)],
        ) == [(3, 0.5), (20, 5.5)]

    def test_never_before_the_final(self) -> None:
        assert watched(
            partial("one", covered_s=0.5),
            partial("one", covered_s=3.0),
            partial("", utterance=1, start_s=3.0, covered_s=6.0),
            final("one", UtteranceEnd.ENDPOINT, (0.0, 3.0)),
        ) == [(3, 0.5)]

    def test_words_that_go_on_are_no_gap(self) -> None:
        assert (
            watched(
                final("one", UtteranceEnd.LENGTH, (0.0, 0.5)),
                partial("two", utterance=1, start_s=0.5, covered_s=1.0),
                partial("two three four", utterance=1, start_s=0.5, covered_s=2.5),
                final("two three four", UtteranceEnd.ENDPOINT, (0.5, 2.0), utterance=1),
            )
            == []
        )

    def test_a_hypothesis_that_is_taken_back_was_silence(self) -> None:
        assert watched(
            final("one", UtteranceEnd.ENDPOINT, (0.0, 0.5)),
            partial("", "two", utterance=1, start_s=0.5, covered_s=1.0),
            partial("", utterance=1, start_s=0.5, covered_s=2.0),
        ) == [(2, 0.5)]

    def test_a_final_that_comes_late_looks_at_what_followed(self) -> None:
        late = final("one", UtteranceEnd.ENDPOINT, (0.0, 0.5))
        soon = partial("two", utterance=1, start_s=1.25, covered_s=4.0)
        later = partial("two", utterance=1, start_s=1.5, covered_s=4.0)
        assert watched(soon, late) == []
        assert watched(later, late) == [(1, 0.5)]

    def test_words_that_no_interim_result_has_shown(self) -> None:
        """Interim results of a slow reader are merged: those of utterance 1 were never seen."""
        unseen = partial("three", utterance=2, start_s=5.0, covered_s=5.5)
        first = final("one", UtteranceEnd.ENDPOINT, (0.0, 0.5))
        assert watched(first, unseen, final("two", UtteranceEnd.ENDPOINT, (1.0, 1.5), utterance=1)) == [(2, 1.5)]
        assert watched(first, unseen, final("two", UtteranceEnd.ENDPOINT, (2.0, 2.5), utterance=1)) == [
            (2, 0.5),
            (2, 2.5),
        ]
        assert watched(first, unseen, final("", UtteranceEnd.ENDPOINT, (1.0, 1.5), utterance=1)) == [(2, 0.5)]

    def test_finals_without_words(self) -> None:
        assert watched(final("", UtteranceEnd.FINALIZE, (0.0, 9.0))) == []
        assert watched(
            final("one", UtteranceEnd.FINALIZE, (0.0, 0.5)), final("", UtteranceEnd.FINALIZE, (0.5, 2.0), utterance=1)
        ) == [(1, 0.5)]

    def test_at_the_end_of_the_audio(self) -> None:
        assert watched(final("one", UtteranceEnd.END, (0.0, 0.5))) == []
        spoken = final("one", UtteranceEnd.ENDPOINT, (0.0, 0.5))
        assert watched(spoken, final("", UtteranceEnd.END, (0.5, 1.5), utterance=1)) == [(1, 0.5)]


@st.composite
def histories(draw: st.DrawFn) -> list[Partial | UtteranceFinal]:
    """Utterances with and without words, finals that come late, interim results that are left out."""
    events: list[Partial | UtteranceFinal] = []
    waiting: list[UtteranceFinal] = []
    at_s = 0.0
    for utterance in range(draw(st.integers(1, 5))):
        lead_s, n_words, tail_s = draw(st.integers(0, 6)) / 2, draw(st.integers(0, 3)), draw(st.integers(0, 6)) / 2
        first_s = at_s + lead_s
        for seen in range(n_words + 1):
            if draw(st.booleans()):
                text = " ".join(["w"] * seen)
                events.append(partial(text, utterance=utterance, start_s=first_s, covered_s=first_s + seen / 2))
        end_s = first_s + n_words / 2 + tail_s
        # support's final places its words from the start of the span
        waiting.append(final(" ".join(["w"] * n_words), UtteranceEnd.ENDPOINT, (first_s, end_s), utterance=utterance))
        while waiting and draw(st.sampled_from([True, False])):
            events.append(waiting.pop(0))
        at_s = end_s
    return events + waiting


class TestAnyHistory:
    @given(histories())
    @settings(deadline=None)
    def test_each_gap_is_told_once_after_its_final_and_no_other_is(
        self, events: list[Partial | UtteranceFinal]
    ) -> None:
        finals = [(index, event) for index, event in enumerate(events) if isinstance(event, UtteranceFinal)]
        spoken = [(index, event) for index, event in finals if event.words]
        ends = {event.words[-1].end_s: index for index, event in spoken}
        told = watched(*events)
        assert len({end for _, end in told}) == len(told)
        assert [end for _, end in told] == sorted(end for _, end in told)
        for index, end in told:
            assert end in ends
            assert index >= ends[end]
        for (_, event), (_, following) in pairwise(spoken):
            gap_s = following.words[0].start_s - event.words[-1].end_s
            assert (event.words[-1].end_s in {end for _, end in told}) == (gap_s >= GAP_MS / 1000)
