"""What a codec process cannot do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PREAMBLE = "import io, os, resource, socket, av, numpy\nfrom server.codec.process import confine\nconfine(4)\n"


def confined(script: str) -> str:
    """What a script prints in a process that is confined as a codec process is."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/passwd')",
        "open('/tmp/moorage-codec-test', 'w')",
        "socket.socket()",
        "os.pipe()",
        "av.open('/etc/passwd')",
        "av.open('http://127.0.0.1:1/a.m3u8')",
        "av.open('concat:/etc/passwd')",
    ],
)
def test_nothing_can_be_opened(attempt: str) -> None:
    script = f"try:\n    {attempt}\nexcept Exception as error:\n    print('refused')\nelse:\n    print('opened')\n"
    assert confined(script) == "refused"


def test_a_playlist_is_not_followed_even_with_its_demuxer() -> None:
    script = (
        "text = b'ffconcat version 1.0\\nfile /etc/passwd\\n'\n"
        "try:\n    av.open(io.BytesIO(text), format='concat', options={'safe': '0'}).decode()\n"
        "except Exception as error:\n    print('refused')\n"
    )
    assert confined(script) == "refused"


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded where /proc tells what is used already")
def test_memory_is_bounded() -> None:
    script = (
        "kept = []\n"
        "try:\n"
        "    for _ in range(64):\n"
        "        kept.append(bytes(16 << 20))\n"
        "except MemoryError:\n"
        "    print(len(kept))\n"
    )
    assert 8 <= int(confined(script)) <= 24


def test_it_gives_way_and_leaves_no_core() -> None:
    niceness = min(19, os.nice(0) + 5)
    assert confined("print(os.nice(0), resource.getrlimit(resource.RLIMIT_CORE))") == f"{niceness} (0, 0)"


def test_no_torch() -> None:
    assert confined("import sys, server.codec.process; print('torch' in sys.modules)") == "False"
