"""Speech for tests: the files of ``audio_fixtures/``, always there, and the larger shared collection, where it is."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "audio_fixtures"
SPEECH_VARIABLE = "MOORAGE_SPEECH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """One file of ``audio_fixtures/``, as its manifest describes it."""

    path: Path
    text: str
    """What is said; empty for silence. Of whatever case and punctuation."""
    seconds: float
    rate: int
    """Samples a second, per channel."""
    channels: int
    format: str
    """Container and subtype as libsndfile names them: ``WAV/PCM_16``."""
    sha256: str
    speaker: str
    """Synthesiser and voice, or the reader."""
    source: str
    licence: str
    kind: str
    """Synthesised: ``sentence pause command repeat long silence``; real: ``utterance word phrase``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRow:
    """One recording of the shared collection."""

    id: str
    path: Path
    text: str
    seconds: float
    speaker: str


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a tab-separated file with a header line. Quotes are ordinary characters."""
    with open(path, encoding="utf8", newline="") as sheet:
        return list(csv.DictReader(sheet, delimiter="\t", quoting=csv.QUOTE_NONE))


def fixtures(kind: str | None = None) -> list[Fixture]:
    """All fixtures, or those of one kind, in the manifest's order.

    Raises:
        LookupError: no fixture is of that kind, so that a misspelt kind never makes a test run over nothing.
    """
    found = [
        Fixture(
            path=FOLDER / row["file"],
            text=row["text"],
            seconds=float(row["seconds"]),
            rate=int(row["rate"]),
            channels=int(row["channels"]),
            format=row["format"],
            sha256=row["sha256"],
            speaker=row["speaker"],
            source=row["source"],
            licence=row["licence"],
            kind=row["kind"],
        )
        for row in table(FOLDER / "manifest.tsv")
        if kind in (None, row["kind"])
    ]
    if not found:
        raise LookupError(f"no fixture of kind {kind!r}")
    return found


def fixture(name: str) -> Fixture:
    """The one fixture whose file is called so, suffix left out: ``fixture("stop_16k")``.

    Raises:
        LookupError: there is none.
    """
    for found in fixtures():
        if found.path.stem == name:
            return found
    raise LookupError(f"no fixture is called {name!r}")


def shared_speech() -> Path | None:
    """The folder of the shared collection: ``MOORAGE_SPEECH`` or ``../shared/speech`` beside the repository, else None.

    Raises:
        FileNotFoundError: ``MOORAGE_SPEECH`` is set and holds no ``real/manifest.tsv``: a wrong path must not
            silently leave tests out.
    """
    named = os.environ.get(SPEECH_VARIABLE)
    folder = Path(named) if named else ROOT.parent / "shared" / "speech"
    manifest = folder / "real" / "manifest.tsv"
    if manifest.is_file():
        return folder
    if named:
        raise FileNotFoundError(f"{SPEECH_VARIABLE}: {manifest} does not exist")
    return None


def shared_rows(part: str) -> list[SharedRow]:
    """The recordings of one part (``clean``, ``other``, ``accented``, ``long``), none where the collection is not.

    For ``pytest.mark.parametrize``, which an empty list leaves without a test to run.

    Raises:
        LookupError: the collection is there but has no such part.
    """
    folder = shared_speech()
    if folder is None:
        return []
    real = folder / "real"
    found = [
        SharedRow(
            id=row["id"],
            path=real / row["file"],
            text=row["text"],
            seconds=float(row["seconds"]),
            speaker=row["speaker"],
        )
        for row in table(real / "manifest.tsv")
        if row["file"].startswith(f"{part}/")
    ]
    if not found:
        raise LookupError(f"no part {part!r} in {real}")
    return found
