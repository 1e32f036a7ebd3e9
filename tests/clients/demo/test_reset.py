"""``moorage demo reset`` as people run it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fixtures import ROOT, fixture

CLIPS = ("better_118", "backers_gave_up_3664", "awb_8k_mulaw", "stop_16k")


def demo(*options: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "server", "demo", "reset", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "160", "OMP_NUM_THREADS": "1", "HOME": str(Path.home())},
    )


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """A folder of a few short recordings."""
    lines = ["file\ttext"]
    for name in CLIPS:
        clip = fixture(name)
        shutil.copy(clip.path, tmp_path / clip.path.name)
        lines.append(f"{clip.path.name}\t{clip.text}")
    (tmp_path / "manifest.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.timeout(300)
def test_the_whole_of_it_on_the_light_model(audio: Path, tmp_path: Path) -> None:
    """What it hears is random, so that word errors say nothing; that it is the same at every load is to be seen."""
    own = tmp_path / "own.toml"
    own.write_text('[live]\nmodel = "light-lstm"\n')
    out = tmp_path / "out"
    ran = demo("--quick", "--config", str(own), "--audio", str(audio), "--out", str(out), timeout_s=280)
    assert "Traceback" not in ran.stderr
    assert "needs the sequence batcher" in ran.stderr
    assert "sequence batcher, at every load: word for word what each utterance is alone" in ran.stdout
    assert re.search(r"dynamic batcher, 8 clients: 32 utterances in", ran.stdout)
    assert ran.returncode == (0 if "points were expected" not in ran.stdout else 1)
    assert sorted(path.name for path in out.iterdir()) == ["dynamic.toml", "reset.html", "reset.png", "sequence.toml"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--audio", "nowhere"), 2, "cannot be read as a manifest"),
        (("--config", "nowhere.toml"), 2, "nowhere.toml"),
    ],
)
def test_what_it_cannot_do(options: tuple[str, ...], code: int, words: str, tmp_path: Path) -> None:
    ran = demo(*options, "--quick", "--out", str(tmp_path / "out"), timeout_s=60)
    assert ran.returncode == code
    assert words in ran.stderr + ran.stdout
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_real_live_model(tmp_path: Path) -> None:
    ran = demo("--quick", "--out", str(tmp_path), timeout_s=1700)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    gap = re.search(r"\+(\d+\.\d) points of WER: dynamic against sequence, 31\+ ticks, 8 clients", ran.stdout)
    assert gap is not None
    assert float(gap[1]) >= 10.0
    assert "word for word what each utterance is alone" in ran.stdout
    assert "reset: this instance never heard ticks" in ran.stdout
    assert '+ scheduler = "sequence"' in ran.stdout
    assert (tmp_path / "reset.png").stat().st_size > 10_000
