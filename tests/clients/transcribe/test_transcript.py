"""The record of a file: what JSON says of its utterances."""

from asr_model.transcript import UtteranceEnd, Word
from clients.transcribe.transcript import file_record
from server.events import StepInfo, UtteranceFinal
from server.ids import InstanceIndex, SequenceId, SlotIndex


def utterance(
    number: int, start_s: float, end_s: float, final: tuple[Word, ...], live: tuple[Word, ...]
) -> UtteranceFinal:
    return UtteranceFinal(
        sequence_id=SequenceId("s"),
        utterance=number,
        cause=UtteranceEnd.ENDPOINT,
        start_s=start_s,
        end_s=end_s,
        words=final,
        live_words=live,
        step=StepInfo(instance=InstanceIndex(0), slot=SlotIndex(0), batch_size=1, queue_ms=0.0, step_ms=0.0),
    )


def word(text: str, start_s: float = 0.1) -> Word:
    return Word(text=text, start_s=start_s, end_s=start_s + 0.2, confidence=0.98765)


def test_segments_have_both_texts_and_the_words_of_the_final_one() -> None:
    finals = [
        utterance(0, 0.0, 1.5, (word("Hello,"), word("world.", 0.41237)), (word("hallo"),)),
        utterance(1, 1.5, 2.0, (), ()),  # nothing was said
        utterance(2, 2.0, 3.0, (), (word("hm", 2.5),)),  # the final model heard nothing
        utterance(3, 3.0, 4.25, (word("Bye.", 3.5),), ()),
    ]
    assert file_record("a.wav", 4.25, finals) == {
        "file": "a.wav",
        "seconds": 4.25,
        "text": "Hello, world. Bye.",
        "live_text": "hallo hm",
        "segments": [
            {
                "start": 0.0,
                "end": 1.5,
                "text": "Hello, world.",
                "live_text": "hallo",
                "words": [
                    {"word": "Hello,", "start": 0.1, "end": 0.3, "confidence": 0.988},
                    {"word": "world.", "start": 0.412, "end": 0.612, "confidence": 0.988},
                ],
            },
            {"start": 2.0, "end": 3.0, "text": "", "live_text": "hm", "words": []},
            {
                "start": 3.0,
                "end": 4.25,
                "text": "Bye.",
                "live_text": "",
                "words": [{"word": "Bye.", "start": 3.5, "end": 3.7, "confidence": 0.988}],
            },
        ],
    }


def test_an_error_stands_beside_what_came_before_it() -> None:
    record = file_record("a.wav", 1.5, [utterance(0, 0.0, 1.5, (word("Hello"),), ())], "is truncated")
    assert (record["text"], record["error"]) == ("Hello", "is truncated")
    assert file_record("b.wav", 0.0, (), "no such file")["segments"] == []
