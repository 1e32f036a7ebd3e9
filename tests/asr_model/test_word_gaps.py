"""Where long utterances are cut: between words, in the deepest gap that is known, and nothing shown is taken back."""

import torch

from asr_model.contract import State
from asr_model.live import utterance_memory
from asr_model.live.settings import LiveSettings
from asr_model.live.slot_state import declare
from asr_model.live.word_gaps import best_gaps
from asr_model.moonshine.dimensions import START

SLOT = torch.tensor([0])
SETTINGS = LiveSettings(max_utterance_s=9.6)
OPENS = torch.zeros(100, dtype=torch.bool)
OPENS[10:20] = True
"""Tokens 10 to 19 begin words, 20 to 29 go on with them."""
SPEECH_DB = -25.0


def slot_of(tokens: list[int], centres: list[int], draft: list[int], draft_centres: list[int], *, size: int) -> State:
    """A slot in the midst of loud speech that has committed ``tokens``."""
    state = {
        name: torch.full((1, *tensor.shape), tensor.initial, dtype=tensor.dtype)
        for name, tensor in declare(SETTINGS).items()
    }
    n, m = len(tokens) + 1, len(draft)
    state["tokens"][0, 1:n] = torch.tensor(tokens)
    state["token_centres"][0, 1:n] = torch.tensor(centres, dtype=torch.float32)
    state["token_frames"][0, 1:n] = torch.tensor(centres)
    state["draft"][0, :m] = torch.tensor(draft, dtype=torch.long)
    state["draft_centres"][0, :m] = torch.tensor(draft_centres, dtype=torch.float32)
    state["draft_frames"][0, :m] = torch.tensor(draft_centres, dtype=torch.long)
    state["token_count"][0], state["draft_size"][0], state["memory_size"][0] = n, m, size
    state["memory_level"][0, :size], state["memory_speech"][0, :size] = SPEECH_DB, 1.0
    return state


def quieten(state: State, position: int, level_db: float) -> None:
    """A gap of 168 ms around the start of a frame."""
    state["memory_level"][0, position - 5 : position + 2] = level_db
    state["memory_speech"][0, position - 5 : position + 2] = 0.0


WORDS, CENTRES = [10, 20, 11, 12, 21, 13], [10, 20, 100, 200, 210, 300]


def test_the_deepest_gap_before_a_word_committed_in_this_step_is_chosen() -> None:
    state = slot_of(WORDS, CENTRES, [14], [350], size=380)
    for position, level_db in ((99, -70.0), (197, -45.0), (298, -55.0), (348, -50.0)):
        quieten(state, position, level_db)
    gaps = best_gaps(SLOT, OPENS, torch.tensor([4]), SETTINGS, state)
    assert (int(gaps.position), int(gaps.token), bool(gaps.is_wanted)) == (298, 6, True)


def test_the_gap_before_the_draft_counts_and_the_deepest_place_in_a_word_does_not() -> None:
    state = slot_of(WORDS, CENTRES, [14], [350], size=380)
    quieten(state, 250, -90.0)
    quieten(state, 349, -50.0)
    gaps = best_gaps(SLOT, OPENS, torch.tensor([7]), SETTINGS, state)
    assert (int(gaps.position), int(gaps.token), bool(gaps.is_wanted)) == (349, 7, True)


def test_words_before_the_cut_are_context_and_told_ends_between_the_words_at_it() -> None:
    state = slot_of([10, 11, 20, 12, 13], [100, 200, 206, 240, 280], [14], [350], size=380)
    quieten(state, 278, -70.0)
    gaps = best_gaps(SLOT, OPENS, torch.tensor([2]), SETTINGS, state)
    assert (int(gaps.position), int(gaps.token), int(gaps.told)) == (278, 5, 260)
    assert int(gaps.context_token) == 4
    assert 230 <= int(gaps.context) <= 239


def test_a_stop_within_a_word_is_too_short_for_a_gap() -> None:
    state = slot_of([10, 11], [20, 100], [12], [200], size=230)
    state["memory_level"][0, 197:201] = -60.0
    assert not bool(best_gaps(SLOT, OPENS, torch.tensor([3]), SETTINGS, state).is_wanted)
    quieten(state, 200, -60.0)
    assert bool(best_gaps(SLOT, OPENS, torch.tensor([3]), SETTINGS, state).is_wanted)


def test_a_word_read_from_before_the_words_before_it_is_no_place_to_cut() -> None:
    state = slot_of(WORDS, CENTRES, [14], [150], size=380)
    quieten(state, 148, -90.0)
    gaps = best_gaps(SLOT, OPENS, torch.tensor([7]), SETTINGS, state)
    assert (int(gaps.token), bool(gaps.is_wanted)) == (7, False)
    assert int(gaps.position) > 300


def test_the_longer_the_utterance_the_shallower_a_gap_will_do() -> None:
    wanted = []
    for size in range(150, 400, 10):
        state = slot_of([10, 11], [20, 100], [12], [140], size=size)
        quieten(state, 139, SPEECH_DB - 18.0)
        wanted.append(bool(best_gaps(SLOT, OPENS, torch.tensor([3]), SETTINGS, state).is_wanted))
    assert wanted == sorted(wanted)
    assert 0.5 < wanted.index(True) / len(wanted) < 0.8


def test_without_a_gap_none_is_wanted_before_the_very_end() -> None:
    assert not bool(
        best_gaps(SLOT, OPENS, torch.tensor([2]), SETTINGS, slot_of(WORDS, CENTRES, [14], [350], size=380)).is_wanted
    )


def test_without_a_word_behind_it_the_quietest_place_after_the_last_word_is_told() -> None:
    state = slot_of(WORDS, CENTRES, [], [], size=380)
    state["memory_level"][0, 310:320] = -60.0
    gaps = best_gaps(SLOT, OPENS, torch.tensor([7]), SETTINGS, state)
    assert (int(gaps.token), bool(gaps.is_wanted)) == (7, False)
    assert 310 <= int(gaps.position) <= 320


def test_words_behind_a_cut_come_first_in_the_draft() -> None:
    state = slot_of(WORDS, CENTRES, [14, 22], [350, 360], size=380)
    state["draft_votes"][0, :2] = torch.tensor([2, 1])
    utterance_memory.carry_over(SLOT, torch.tensor([4]), 2, state)
    assert int(state["token_count"]) == 4
    assert state["draft"][0, : int(state["draft_size"])].tolist() == [12, 21, 13, 14, 22]
    assert state["draft_centres"][0, :5].tolist() == [200, 210, 300, 350, 360]
    assert state["draft_votes"][0, :5].tolist() == [2, 2, 2, 2, 1]


def test_more_than_the_draft_holds_is_left_to_be_read_again() -> None:
    width = SETTINGS.draft_tokens
    state = slot_of([10] * (width + 5), list(range(width + 5)), [14], [350], size=380)
    utterance_memory.carry_over(SLOT, torch.tensor([2]), 2, state)
    assert int(state["draft_size"]) == width
    assert set(state["draft"][0].tolist()) == {10}


def test_a_passage_begins_behind_what_was_read_and_keeps_the_draft() -> None:
    state = slot_of(WORDS, CENTRES, [14, 22], [350, 360], size=380)
    state["memory_base"][0] = 1000
    utterance_memory.begin_passage(SLOT, torch.tensor([365]), state)
    assert state["tokens"][0, 1:10].tolist() == [*WORDS, 14, 22, START]
    assert (int(state["token_count"]), int(state["passage_token"]), int(state["draft_size"])) == (10, 9, 0)
    assert (int(state["passage_frame"]), int(state["first_frame"]), int(state["heard"])) == (1366, 0, 365)
