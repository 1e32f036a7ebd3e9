"""Make the audio fixtures and their manifest again.

    python -m audio_fixtures.build                                   # the synthesised files
    python -m audio_fixtures.build --mini-librispeech FOLDER         # the real ones too; FOLDER holds train-clean-5
    python -m audio_fixtures.build --check                           # build aside and compare, change nothing

Needs ``espeak-ng`` 1.51 and ``flite`` 2.2 (Debian packages of these names) and the project's own environment. With the
same versions of these and of libsndfile every file comes out byte for byte: the two places where libsndfile writes a
time or a random number (float WAV, Ogg) are set to constants. What to make is in ``clips.py``.
"""

import csv
import hashlib
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import typer

from audio_fixtures.clips import (
    CUTS,
    SILENCE_FILE,
    SILENCE_RATE,
    SILENCE_S,
    SYNTHESISED,
    UTTERANCES,
    WARM_UP,
    Cut,
    Synthesised,
    Voice,
)

Audio = npt.NDArray[np.float32]

HERE = Path(__file__).resolve().parent
WARM_UP_FOLDER = HERE.parent / "asr_model" / "weights"
OWN_LICENCE, LIBRISPEECH_LICENCE = "Apache-2.0", "CC BY 4.0"
LIBRISPEECH = "Mini LibriSpeech train-clean-5 (V. Panayotov et al.; LibriVox)"
WORDS_PER_MINUTE = "145"
PEAK = 0.7
OGG_SERIAL = 0x4D6F6F72
CONTAINERS = {".wav": "WAV", ".flac": "FLAC", ".mp3": "MP3", ".opus": "OGG"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the manifest, columns in this order."""

    file: str
    text: str
    seconds: str
    rate: int
    channels: int
    format: str
    sha256: str
    speaker: str
    source: str
    licence: str
    kind: str


def spoken(voice: Voice, text: str) -> tuple[Audio, int]:
    """-> float32 [N] and its rate, as the synthesiser makes it, without the silence at both ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "spoken.wav")
        commands = {
            "espeak-ng": ["espeak-ng", "-v", voice.name, "-s", WORDS_PER_MINUTE, "-w", path, text],
            "flite": ["flite", "-voice", voice.name, "-t", text, "-o", path],
        }
        subprocess.run(commands[voice.engine], check=True)
        audio, rate = soundfile.read(path, dtype="float32")
    loud = np.flatnonzero(np.abs(audio) > 0.01 * np.abs(audio).max())
    margin = rate // 33
    return audio[max(0, loud[0] - margin) : loud[-1] + margin], rate


def signal(clip: Synthesised) -> Audio:
    """-> float32 [N, channels] at the clip's rate."""
    pieces = [np.zeros(round(clip.edge_s * clip.rate), np.float32)]
    for index, part in enumerate(clip.parts):
        if index:
            pieces.append(np.zeros(round(clip.pause_s * clip.rate), np.float32))
        audio, rate = spoken(clip.voice, part)
        resampled = np.asarray(soxr.resample(audio, rate, clip.rate, quality="VHQ"), np.float32)
        pieces.append(resampled * np.float32(PEAK / np.abs(resampled).max()))
    pieces.append(pieces[0])
    return np.concatenate(pieces)[:, None] * np.array(clip.gains, np.float32)


def ogg_checksum(page: bytes) -> int:
    """CRC-32 of RFC 3533: polynomial 0x04C11DB7, not reflected, start and final value 0."""
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1) ^ 0x104C11DB7 if crc & 0x80000000 else crc << 1
    return crc


def without_chance(raw: bytes) -> bytes:
    """The file with libsndfile's time stamp (PEAK chunk of a float WAV) or random Ogg serial number made constant."""
    out = bytearray(raw)
    if raw[:4] == b"RIFF" and (at := raw[:200].find(b"PEAK")) >= 0:
        out[at + 12 : at + 16] = bytes(4)
    at = 0
    while raw[at : at + 4] == b"OggS":
        segments = raw[at + 26]
        end = at + 27 + segments + sum(raw[at + 27 : at + 27 + segments])
        out[at + 14 : at + 18] = struct.pack("<I", OGG_SERIAL)
        out[at + 22 : at + 26] = bytes(4)
        out[at + 22 : at + 26] = struct.pack("<I", ogg_checksum(bytes(out[at:end])))
        at = end
    return bytes(out)


def write(path: Path, audio: npt.NDArray[np.generic], rate: int, subtype: str) -> None:
    """Write [N, channels] in the container that the path's suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, audio, rate, subtype=subtype, format=CONTAINERS[path.suffix])
    path.write_bytes(without_chance(path.read_bytes()))


def row(root: Path, file: str, text: str, credit: tuple[str, str, str, str]) -> Row:
    """The manifest line of a file that lies under root. credit: speaker, source, licence, kind."""
    path = root / file
    info = soundfile.info(path)
    speaker, source, licence, kind = credit
    return Row(
        file=file,
        text=text,
        seconds=f"{info.frames / info.samplerate:.3f}",
        rate=info.samplerate,
        channels=info.channels,
        format=f"{info.format}/{info.subtype}",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        speaker=speaker,
        source=source,
        licence=licence,
        kind=kind,
    )


def synthesise(root: Path) -> Iterator[Row]:
    """Write the synthesised files under root."""
    for clip in SYNTHESISED:
        write(root / clip.file, signal(clip), clip.rate, clip.subtype)
        voice = f"{clip.voice.engine} {clip.voice.name}"
        yield row(root, clip.file, clip.text, (voice, "synthesised for this project", OWN_LICENCE, clip.kind))
    write(root / SILENCE_FILE, np.zeros((round(SILENCE_S * SILENCE_RATE), 1), np.int16), SILENCE_RATE, "PCM_16")
    yield row(root, SILENCE_FILE, "", ("none", "made for this project", OWN_LICENCE, "silence"))


def transcript(folder: Path, utterance: str) -> str:
    """The text of an utterance, as the corpus has it.

    Raises:
        LookupError: the chapter's list does not name the utterance.
    """
    for line in (folder / f"{utterance.rpartition('-')[0]}.trans.txt").read_text(encoding="utf8").splitlines():
        key, _, text = line.partition(" ")
        if key == utterance:
            return text
    raise LookupError(utterance)


def cut(source: Path, piece: Cut, target: Path) -> None:
    """Copy the samples between two times, unchanged."""
    audio, rate = soundfile.read(source, dtype="int16", always_2d=True)
    write(target, audio[piece.start_ms * rate // 1000 : piece.end_ms * rate // 1000], rate, "PCM_16")


def real(root: Path, corpus: Path) -> Iterator[Row]:
    """Copy the real utterances as they are, and cut words and phrases from them."""
    for utterance, reader in UTTERANCES.items():
        speaker, chapter, _ = utterance.split("-")
        folder = corpus / speaker / chapter
        file = f"real/utterance/{utterance}.flac"
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / f"{utterance}.flac", root / file)
        credit = (f"LibriVox reader {speaker}, {reader}", LIBRISPEECH, LIBRISPEECH_LICENCE)
        yield row(root, file, transcript(folder, utterance), (*credit, "utterance"))
        for piece in CUTS:
            if piece.utterance == utterance:
                cut(root / file, piece, root / piece.file)
                yield row(root, piece.file, piece.text, (*credit, piece.kind))


def build(root: Path, corpus: Path | None) -> list[Row]:
    """Write the files under root. Without a corpus only the synthesised ones."""
    rows = list(synthesise(root))
    return rows + list(real(root, corpus)) if corpus is not None else rows


def saved(manifest: Path) -> dict[str, tuple[str, ...]]:
    """The manifest's lines by file, empty if there is none yet."""
    if not manifest.exists():
        return {}
    with open(manifest, encoding="utf8", newline="") as sheet:
        lines = list(csv.reader(sheet, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return {line[0]: tuple(line) for line in lines}


def main(
    mini_librispeech: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder that holds train-clean-5, or is it.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Compare with what is here; change nothing.")] = False,
) -> None:
    """Build the fixtures aside, compare them with the manifest, and put them in place."""
    corpus = mini_librispeech
    if corpus is not None and (corpus / "train-clean-5").is_dir():
        corpus = corpus / "train-clean-5"
    before = saved(HERE / "manifest.tsv")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lines = {line.file: tuple(str(value) for value in astuple(line)) for line in build(root, corpus)}
        warm_up = root / WARM_UP.file
        write(warm_up, signal(WARM_UP), WARM_UP.rate, WARM_UP.subtype)
        changed = [file for file, line in lines.items() if before.get(file) != line]
        kept = WARM_UP_FOLDER / WARM_UP.file
        if not kept.exists() or kept.read_bytes() != warm_up.read_bytes():
            changed.append(WARM_UP.file)
        typer.echo(f"{len(lines) + 1} files built, {len(changed)} differ from what is here: {' '.join(changed) or '-'}")
        if check:
            raise typer.Exit(1 if changed else 0)
        for file in lines:
            (HERE / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, HERE / file)
        shutil.copyfile(warm_up, kept)
    write_manifest(lines if corpus is not None else lines | {k: v for k, v in before.items() if k.startswith("real/")})


def write_manifest(lines: dict[str, tuple[str, ...]]) -> None:
    """One header line, then one line a file."""
    with open(HERE / "manifest.tsv", "w", encoding="utf8", newline="") as sheet:
        rows = csv.writer(sheet, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
        rows.writerow([field.name for field in fields(Row)])
        rows.writerows(lines.values())


if __name__ == "__main__":
    typer.run(main)
