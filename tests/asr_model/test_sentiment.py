"""The sentiment classifier: what it says, that rows are independent, and that its training finds what is there."""

from pathlib import Path

import numpy as np
import pytest
import torch

from asr_model.contract import Scheduler, TensorBatch
from asr_model.sentiment.features import MAX_WORDS, buckets_of, words_of
from asr_model.sentiment.model import SentimentModel, build
from asr_model.sentiment.train import Corpus, cross_validate, fit, hits, read_corpus, save
from asr_model.transcript import Sentiment

CPU = torch.device("cpu")
GOOD = (
    "I love this, it works beautifully.",
    "Thank you so much, great service!",
    "That was a wonderful evening, we enjoyed every minute.",
    "The food is delicious and the staff are friendly.",
    "An excellent phone, I am very happy with it.",
    "What a charming and funny film.",
    "Best purchase I have made this year.",
    "Everything went well, I recommend it to everyone.",
)
BAD = (
    "This is terrible and I want my money back.",
    "The call was a waste of time.",
    "It broke after two days, very disappointing.",
    "The room was dirty and the service was awful.",
    "A boring, stupid film with bad acting.",
    "I will never buy from them again.",
    "The worst customer support I have ever had.",
    "It does not work and nobody helps.",
)


@pytest.fixture(scope="module")
def model() -> SentimentModel:
    return build({}, CPU)


def batch_of(*texts: str) -> TensorBatch:
    flags = torch.zeros(len(texts), dtype=torch.bool)
    return TensorBatch(
        inputs={"TEXT": np.array([[text.encode()] for text in texts], dtype=object)},
        lengths={},
        slots=torch.empty(0, dtype=torch.int64),
        start=flags,
        end=flags,
        ready=~flags,
        correlation_ids=(),
    )


def scores_of(model: SentimentModel, *texts: str) -> list[float]:
    scores = torch.as_tensor(model.run_tensors(batch_of(*texts))["SCORE"])
    return [float(score) for score in scores[:, 0]]


def test_it_tells_good_from_bad(model: SentimentModel) -> None:
    good, bad = scores_of(model, *GOOD), scores_of(model, *BAD)

    assert sum(score > 0 for score in good) >= 7
    assert sum(score < 0 for score in bad) >= 7


def test_a_text_says_the_same_in_whatever_company(model: SentimentModel) -> None:
    texts = (*GOOD, "", *BAD, "zzzz qqqq")
    alone = [scores_of(model, text)[0] for text in texts]

    assert scores_of(model, *texts) == pytest.approx(alone, abs=1e-6)
    assert scores_of(model, *reversed(texts)) == pytest.approx(alone[::-1], abs=1e-6)


def test_labels_are_those_of_the_scores(model: SentimentModel) -> None:
    outputs = model.run_tensors(batch_of(GOOD[0], BAD[1], ""))

    assert np.asarray(outputs["LABEL"])[:, 0].tolist() == [b"positive", b"negative", b"neutral"]
    assert [Sentiment.of(score).label for score in (0.34, 0.33, -0.33, -0.34)] == [
        "positive",
        "neutral",
        "neutral",
        "negative",
    ]


def test_it_declares_that_it_keeps_nothing(model: SentimentModel) -> None:
    assert model.spec.scheduler is Scheduler.DYNAMIC
    assert not model.spec.state
    assert not model.spec.listens


def test_text_that_is_not_utf_8_is_read_as_far_as_it_goes(model: SentimentModel) -> None:
    broken = batch_of("x")
    whole = scores_of(model, "great service")[0]

    inputs = {"TEXT": np.array([[b"great \xff service"]], dtype=object)}
    outputs = model.run_tensors(
        TensorBatch(
            inputs=inputs,
            lengths={},
            slots=broken.slots,
            start=broken.start,
            end=broken.end,
            ready=broken.ready,
            correlation_ids=(),
        )
    )

    assert float(torch.as_tensor(outputs["SCORE"])[0, 0]) == pytest.approx(whole)


def test_words_are_those_that_a_transcript_has() -> None:
    assert words_of("It DOESN’T work – 24 times!") == ["it", "doesn't", "work", "24", "times"]
    assert len(words_of("so " * 3 * MAX_WORDS)) == MAX_WORDS
    assert buckets_of("good good good") == sorted(set(buckets_of("good good")))
    assert buckets_of("dog bites man") != buckets_of("man bites dog")


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_weights_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "weights.npz"
    if content is None:
        np.savez(path, weights=np.zeros(3, dtype=np.float16), bias=np.float32(0))
    else:
        path.write_bytes(content)

    with pytest.raises(ValueError, match="sentiment weights"):
        build({"weights": str(path)}, CPU)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="no option colour; it has weights"):
        build({"colour": "red"}, CPU)


def test_training_finds_the_words_that_tell(tmp_path: Path) -> None:
    for name, word in (("pos", "lovely"), ("neg", "nasty")):
        lines = [f"a {word} thing number {number}" for number in range(40)]
        (tmp_path / f"rt-polarity.{name}").write_text("\n".join(lines), encoding="latin-1")
    for name in ("amazon_cells", "yelp", "imdb"):
        lines = [f"{name} {word} {number}\t{mark}" for number in range(20) for word, mark in (("good", 1), ("bad", 0))]
        (tmp_path / f"{name}_labelled.txt").write_text("\n".join(lines) + "\nno mark here\n")
    corpus = read_corpus(tmp_path)

    classifier = fit(corpus)
    save(classifier, tmp_path / "weights.npz")
    model = build({"weights": str(tmp_path / "weights.npz")}, CPU)

    assert len(corpus.bags) == 80 + 3 * 40
    assert all(hits(classifier, corpus))
    assert cross_validate(corpus) == {"amazon_cells": 1.0, "films": 1.0, "imdb": 1.0, "yelp": 1.0}
    lovely, nasty = scores_of(model, "lovely", "nasty")
    assert lovely > 0.3
    assert nasty < -0.3


def test_labels_that_say_nothing_teach_nothing() -> None:
    bags = [buckets_of("alpha"), buckets_of("beta")] * 2
    corpus = Corpus(bags=bags, labels=torch.tensor([1.0, 1.0, 0.0, 0.0]), sources=["films"] * 4)

    assert fit(corpus).weights.abs().max() < 1e-3
