"""The panels of the dashboard, drawn from a real Prometheus; ``make dashboard`` makes a picture.

A Prometheus scrapes an installed operator while runs go on that somebody else starts, such as
``make soak``. What Grafana would ask for is asked, and each panel is drawn with its title and its
legend; Grafana itself is not involved.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure

from support.monitoring import (
    RATE_INTERVAL,
    Prometheus,
    alert_groups,
    dashboard_panels,
    forwarded,
    prometheus,
)
from support.release import ROOT

TARGET = ROOT / "docs" / "images" / "dashboard.png"
METRICS_PORT = 9090
RATE_SECONDS = 60
POINTS = 120
COLUMNS, STAT_HEIGHT, GRAPH_HEIGHT = 2, 1.0, 2.0
WIDTH_INCHES, DPI = 12, 80
_LABEL = re.compile(r"\{\{(\w+)\}\}")


class Series(NamedTuple):
    """A line of a panel.

    Attributes:
        name: As its legend says it.
        times: Moments of the values.
        values: As many.
    """

    name: str
    times: Sequence[datetime]
    values: Sequence[float]


def series(
    server: Prometheus, panel: Mapping[str, Any], namespace: str, seconds: float
) -> Iterator[Series]:
    """Yield the lines of a panel over the last seconds."""
    now = time.time()
    step = max(seconds / POINTS, 1)
    for target in panel["targets"]:
        asked = target["expr"].replace("$namespace", namespace)
        found = server.get(
            "/api/v1/query_range",
            query=asked.replace(RATE_INTERVAL, f"{RATE_SECONDS}s"),
            start=str(now - seconds), end=str(now), step=str(step),
        )  # fmt: skip
        for each in found["result"]:
            times = [datetime.fromtimestamp(at, UTC) for at, _ in each["values"]]
            values = [float(value) for _, value in each["values"]]
            yield Series(_legend(target, each["metric"]), times, values)


def _legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    return _LABEL.sub(lambda match: labels.get(match[1], ""), target.get("legendFormat", ""))


def draw_graph(axes: Axes, panel: Mapping[str, Any], lines: Sequence[Series]) -> None:
    """Draw a panel with lines over time."""
    for each in lines:
        axes.plot(each.times, each.values, label=each.name, linewidth=1.2)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if len(lines) > 1 or (lines and lines[0].name):
        axes.legend(fontsize=6, ncols=2, loc="upper left")
    _title(axes, panel, is_empty=not lines)


def draw_stat(axes: Axes, panel: Mapping[str, Any], lines: Sequence[Series]) -> None:
    """Draw a panel with the newest values as numbers."""
    texts = (f"{each.values[-1]:.3g} {each.name}".strip() for each in lines)
    axes.text(0.5, 0.4, ", ".join(texts), fontsize=16, ha="center", va="center")
    axes.set_axis_off()
    _title(axes, panel, is_empty=not lines)


def _title(axes: Axes, panel: Mapping[str, Any], *, is_empty: bool) -> None:
    unit = panel["fieldConfig"]["defaults"].get("unit", "short")
    shown = panel["title"] if unit == "short" else f"{panel['title']} ({unit})"
    axes.set_title(f"{shown}: nothing yet" if is_empty else shown, fontsize=9, loc="left")


def draw(server: Prometheus, namespace: str, seconds: float, target: Path) -> None:
    """Draw all panels into one picture."""
    panels = dashboard_panels()
    stats = [panel for panel in panels if panel["type"] == "stat"]
    graphs = [panel for panel in panels if panel["type"] != "stat"]
    rows = -(-len(graphs) // COLUMNS)
    heights = [STAT_HEIGHT, *[GRAPH_HEIGHT] * rows]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(1 + rows, COLUMNS * len(stats), height_ratios=heights)
    for number, panel in enumerate(stats):
        cells = grid[0, number * COLUMNS : (number + 1) * COLUMNS]
        draw_stat(figure.add_subplot(cells), panel, [*series(server, panel, namespace, seconds)])
    for number, panel in enumerate(graphs):
        row, column = divmod(number, COLUMNS)
        cells = grid[1 + row, column * len(stats) : (column + 1) * len(stats)]
        draw_graph(figure.add_subplot(cells), panel, [*series(server, panel, namespace, seconds)])
    figure.savefig(target, dpi=DPI)


def main() -> None:
    """Scrape for a while, then draw."""
    parser = argparse.ArgumentParser(prog="python -m browser.panels", description=__doc__)
    parser.add_argument("--namespace", default="securebench")
    parser.add_argument("--pod", default="securebench-0", help="the operator's")
    parser.add_argument("--seconds", type=float, default=600)
    chosen = parser.parse_args()
    with (
        TemporaryDirectory() as folder,
        forwarded(chosen.namespace, chosen.pod, METRICS_PORT) as address,
        prometheus(
            Path(folder), address, chosen.namespace, alert_groups(chosen.namespace)
        ) as server,
    ):
        server.wait("up", 1)
        time.sleep(chosen.seconds)
        draw(server, chosen.namespace, chosen.seconds, TARGET)


if __name__ == "__main__":
    main()
