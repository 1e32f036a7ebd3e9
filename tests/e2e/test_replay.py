"""``moorage serve`` and ``moorage replay`` as a user runs them, with the real models on real speech."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from clients.word_error_rate import word_errors
from tests.support.fixtures import ROOT, fixtures

MOORAGE = (sys.executable, "-m", "server")


@pytest.fixture
def address() -> Iterator[str]:
    """Of a service that runs in processes of its own."""
    command = [*MOORAGE, "serve", "--port", "0", "--live-slots", "4"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
        assert service.stdout is not None
        try:
            lines: list[str] = []
            for line in service.stdout:
                lines.append(line)
                found = re.search(r"listening +(ws://[^/]+)/", line)
                if found is not None:
                    break
            else:
                pytest.fail("the service did not start:\n" + "".join(lines))
            rest = threading.Thread(target=service.stdout.read)  # so that it never waits for a full pipe
            rest.start()
            yield found.group(1)
        finally:
            service.terminate()
            service.wait(timeout=60)
        rest.join()


@pytest.mark.timeout(600)
def test_replay_prints_text_word_errors_and_latency(address: str) -> None:
    speech = fixtures("utterance")[:3]
    command = [*MOORAGE, "replay", *(str(each.path) for each in speech), "--streams", "4", "--url", address]
    replay = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert (replay.returncode, replay.stderr) == (0, "")
    for each in speech:
        finals = re.findall(rf"^{re.escape(each.path.name)} +[\d.]+ s +(.*)$", replay.stdout, re.MULTILINE)
        assert finals, replay.stdout
        report = replay.stdout.split(f"{each.path.name} ─", 1)[1]
        text = re.search(r"^final (.*)$", report, re.MULTILINE)  # one reading, although the first file was played twice
        live = re.search(r"^live  (.*)$", report, re.MULTILINE)
        assert text is not None, replay.stdout
        assert live is not None, replay.stdout
        assert word_errors(each.text, text.group(1)).percent <= 15
        assert word_errors(each.text, live.group(1)).percent <= 40
    assert re.search(r"final .*\d+\.\d\d %", replay.stdout)
    assert re.search(r"live .*\d+\.\d\d %", replay.stdout)
    ticks = sum(int((each.seconds + 1.5 - 0.032) / 0.24) for each in (*speech, speech[0]))
    counted = re.search(r"step latency .* (\d+) ticks", replay.stdout)
    assert counted is not None, replay.stdout
    assert int(counted.group(1)) == pytest.approx(ticks, abs=3)
    assert "had no result" not in replay.stdout
    for row, unit in (
        ("word delay to the first partial", "words"),
        ("word delay to the commit", "words"),
        ("final delay, at (?:an endpoint|the end of the stream)", "utterances"),
    ):
        assert re.search(rf"{row} .* [1-9]\d* {unit}", replay.stdout), replay.stdout
