"""The table as a picture: a panel for each length, a line for each scheduler over the load. The one place that loads
matplotlib, which is an extra: without it there is no picture, and all else is as it was.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clients.demo.outcome import CellKey, Outcome, SchedulerName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Final[Mapping[SchedulerName, str]] = {SchedulerName.DYNAMIC: "#c1272d", SchedulerName.SEQUENCE: "#0b6e4f"}
MARKERS: Final[Mapping[SchedulerName, str]] = {SchedulerName.DYNAMIC: "o", SchedulerName.SEQUENCE: "s"}
PANEL_INCHES: Final = (3.1, 3.4)
DOTS_PER_INCH: Final = 144
LEAST_TOP_PERCENT: Final = 20.0
HEADROOM: Final = 1.08


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture in two forms."""

    png: bytes
    svg: str
    """An ``<svg>`` element, to be put into a page."""


def draw(outcome: Outcome) -> Chart | None:
    """The picture; None: matplotlib is not installed."""
    try:
        figure = figure_of(outcome)
    except ImportError:
        return None
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=DOTS_PER_INCH)
    figure.savefig(svg, format="svg", metadata={"Date": None})
    drawn = svg.getvalue().decode()
    return Chart(png=png.getvalue(), svg=drawn[drawn.index("<svg") :])


def figure_of(outcome: Outcome) -> "Figure":
    """The picture, not drawn yet: panels share their axis of error rates, from 0 to above the highest.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(outcome.lengths), height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(outcome.lengths), sharey=True, squeeze=False)[0]
    places, highest = range(len(outcome.loads)), LEAST_TOP_PERCENT
    for panel, length in zip(panels, outcome.lengths, strict=True):
        for scheduler in outcome.schedulers:
            keys = [CellKey(scheduler=scheduler, clients=clients, length=length) for clients in outcome.loads]
            rates = [outcome.cell(key).errors.percent for key in keys]
            highest = max(highest, *rates)
            label = f"{scheduler.value} batcher"
            panel.plot(places, rates, color=COLOURS[scheduler], marker=MARKERS[scheduler], label=label)
        panel.set_title(f"{length.value} ticks")
        panel.set_xticks(list(places), [str(clients) for clients in outcome.loads])
        panel.set_xlabel("clients at once")
        panel.grid(axis="y", alpha=0.3)
    panels[0].set_ylim(0.0, HEADROOM * highest)
    panels[0].set_ylabel("WER of the live text, %")
    panels[0].legend(frameon=False)
    figure.suptitle("The same model, the same audio: only the scheduler differs")
    return figure
