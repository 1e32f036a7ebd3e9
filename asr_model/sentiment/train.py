"""Trains the sentiment classifier: ``python -m asr_model.sentiment.train FOLDER``.

FOLDER holds ``rt-polarity.pos`` and ``rt-polarity.neg`` (B. Pang and L. Lee, Seeing stars, ACL 2005; 5,331 sentences of
film reviews each, latin-1) and ``amazon_cells_labelled.txt``, ``yelp_labelled.txt``, ``imdb_labelled.txt`` (D. Kotzias
and others, From group to individual labels, KDD 2015, CC BY 4.0; 1,000 sentences of reviews each). Logistic regression
on features scaled by their naive Bayes log-count ratio (S. Wang and C. Manning, Baselines and bigrams, ACL 2012). Tells
what ten folds have right, then fits the weights to everything.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from asr_model.sentiment.features import BUCKETS, buckets_of, words_of

SEED: Final = 20_051
FOLDS: Final = 10
LABELLED: Final = ("amazon_cells", "yelp", "imdb")
SMOOTHING: Final = 1.0
DECAY: Final = 3e-4
"""Weight of the squared weights in the loss."""
ITERATIONS: Final = 40
WEIGHTS: Final = Path(__file__).parents[1] / "weights" / "sentiment.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A fitted model: the score of a text is the sum of its features' weights and the bias."""

    weights: Tensor
    """float32 [BUCKETS]"""
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Labelled sentences as bags of buckets."""

    bags: list[list[int]]
    labels: Tensor
    """float32 [N]: 1 positive, 0 negative."""
    sources: list[str]
    """The set that each is of."""

    def part(self, index: list[int]) -> "Corpus":
        """The sentences at these places."""
        return Corpus(
            bags=[self.bags[i] for i in index], labels=self.labels[index], sources=[self.sources[i] for i in index]
        )


def read_corpus(folder: Path) -> Corpus:
    """All files, every different sentence once."""
    sentences: dict[str, tuple[float, str]] = {}
    for name, label in (("rt-polarity.pos", 1.0), ("rt-polarity.neg", 0.0)):
        for line in (folder / name).read_text(encoding="latin-1").split("\n"):
            sentences.setdefault(" ".join(words_of(line)), (label, "films"))
    for name in LABELLED:
        for line in (folder / f"{name}_labelled.txt").read_text(encoding="utf-8").split("\n"):
            text, tab, mark = line.rpartition("\t")
            if tab:
                sentences.setdefault(" ".join(words_of(text)), (float(mark), name))
    sentences.pop("", None)
    found = list(sentences.values())
    return Corpus(
        bags=[buckets_of(text) for text in sentences],
        labels=torch.tensor([label for label, _ in found]),
        sources=[source for _, source in found],
    )


def fit(corpus: Corpus) -> Classifier:
    """The classifier of these sentences; the same for the same sentences."""
    ratio = _log_count_ratio(corpus)
    ids, offsets = _flat(corpus.bags)
    weights = torch.zeros(BUCKETS, 1, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")
    sign = 2 * corpus.labels - 1

    def loss() -> Tensor:
        optimiser.zero_grad()
        scores = embedding_bag(ids, ratio * weights, offsets, mode="sum")[:, 0] + bias
        value = softplus(-sign * scores).mean() + DECAY * weights.square().sum()
        torch.autograd.backward(value)
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]  # torch has no types for it
    return Classifier(weights=(ratio * weights).detach()[:, 0], bias=float(bias.detach()))


def hits(classifier: Classifier, corpus: Corpus) -> list[bool]:
    """Of each sentence: whether its sign is right."""
    ids, offsets = _flat(corpus.bags)
    scores = embedding_bag(ids, classifier.weights[:, None], offsets, mode="sum")[:, 0] + classifier.bias
    right: list[bool] = ((scores > 0) == (corpus.labels > 0.5)).tolist()
    return right


def cross_validate(corpus: Corpus) -> dict[str, float]:
    """By set: share of sentences that a classifier which has not seen them has right, in ten folds."""
    order = torch.randperm(len(corpus.bags), generator=torch.Generator().manual_seed(SEED)).tolist()
    right: dict[str, list[bool]] = {}
    for fold in range(FOLDS):
        held = sorted(order[fold::FOLDS])
        seen = sorted(set(order) - set(held))
        part = corpus.part(held)
        for source, hit in zip(part.sources, hits(fit(corpus.part(seen)), part), strict=True):
            right.setdefault(source, []).append(hit)
    return {source: sum(found) / len(found) for source, found in sorted(right.items())}


def save(classifier: Classifier, path: Path) -> None:
    """Weights as float16: a text's score changes by less than a thousandth."""
    np.savez_compressed(path, weights=classifier.weights.half().numpy(), bias=np.float32(classifier.bias))


def _log_count_ratio(corpus: Corpus) -> Tensor:
    """float32 [BUCKETS, 1]: how much more often a feature stands in positive sentences; 0 where it stands in none."""
    counts = torch.zeros(2, BUCKETS)
    for bag, label in zip(corpus.bags, corpus.labels.tolist(), strict=True):
        counts[int(label), bag] += 1
    smoothed = counts + SMOOTHING
    ratio = (smoothed[1] / smoothed[1].sum() / (smoothed[0] / smoothed[0].sum())).log()
    return torch.where(counts.sum(0) > 0, ratio, torch.zeros(()))[:, None]


def _flat(bags: list[list[int]]) -> tuple[Tensor, Tensor]:
    sizes = torch.tensor([0, *(len(bag) for bag in bags[:-1])])
    return torch.tensor([bucket for bag in bags for bucket in bag]), sizes.cumsum(0)


def main() -> None:
    """Cross-validates, fits, saves; prints what it saw."""
    corpus = read_corpus(Path(sys.argv[1]))
    print(f"{len(corpus.bags)} sentences; right in {FOLDS} folds, by set:")  # noqa: T201
    for source, share in cross_validate(corpus).items():
        print(f"  {source}: {100 * share:.1f} %")  # noqa: T201
    save(fit(corpus), WEIGHTS)
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
