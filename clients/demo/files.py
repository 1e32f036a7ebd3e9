"""The files that the demonstration leaves: a page, a picture, both configurations."""

from pathlib import Path
from typing import Final

from clients.demo.chart import draw
from clients.demo.outcome import Outcome, Verdict
from clients.demo.page import page
from clients.demo.settings import DemoConfig
from server.errors import BadParameter

PAGE: Final = "reset.html"
PICTURE: Final = "reset.png"


def write_files(folder: Path, outcome: Outcome, verdict: Verdict, configs: tuple[DemoConfig, DemoConfig]) -> list[Path]:
    """Write them all, and return what was written; the picture is left out where matplotlib is not installed.

    Raises:
        BadParameter: The folder cannot be written to.
    """
    chart = draw(outcome)
    files: dict[str, bytes] = {
        PAGE: page(outcome, verdict, configs, chart.svg if chart is not None else None).encode(),
        **{config.file_name: config.text.encode() for config in configs},
    }
    if chart is not None:
        files[PICTURE] = chart.png
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
            written.append(folder / name)
    except OSError as error:
        raise BadParameter(f"{folder}: cannot be written to: {error}") from error
    return written
