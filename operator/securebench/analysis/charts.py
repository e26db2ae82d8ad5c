"""Charts of a report as inline SVG, drawn by matplotlib.

A report's content security policy allows no style attributes, and its colours follow the reader's
light or dark mode: styles become presentation attributes, and colours CSS variables.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.style import context
from matplotlib.ticker import MaxNLocator

from securebench.analysis.overview import Group
from securebench.analysis.visible import visible

_SVG = "http://www.w3.org/2000/svg"
_TEXT, _BAR, _LINE = "#010101", "#020202", "#030303"
_COLOURS = {_TEXT: "var(--text)", _BAR: "var(--accent)", _LINE: "var(--rule)"}
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "securebench",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _TEXT,
    "text.parse_math": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
}
_WIDTH_INCHES = 6.4
_ROW_INCHES = 0.32
_BINS = 24
_NAME_CHARACTERS = 40


def histogram(values: Sequence[float], label: str) -> str:
    """Draw how often values occur; ``label`` says what they are and their unit."""

    def draw(axes: Axes) -> None:
        axes.hist(values, bins=_BINS, color=_BAR)
        axes.set_xlabel(label)
        axes.set_ylabel("attempts")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))

    return _drawn(draw, 2.2, f"Histogram: {label}")


def bars(counts: Mapping[str, int], label: str) -> str:
    """Draw counts as horizontal bars, the first on top."""

    def draw(axes: Axes) -> None:
        shown = axes.barh(range(len(counts)), list(counts.values()), color=_BAR)
        axes.bar_label(shown, padding=3)
        _name_rows(axes, counts)
        axes.set_xlabel(label)

    return _drawn(draw, 0.8 + _ROW_INCHES * len(counts), f"Bars: {label}")


def scores(groups: Sequence[Group]) -> str:
    """Draw the score of each group with its interval, from 0 to 100 %."""
    shown = [(group.name, group.score) for group in groups if group.score is not None]

    def draw(axes: Axes) -> None:
        for row, (_, score) in enumerate(shown):
            spread = [[100 * (score.value - score.low)], [100 * (score.high - score.value)]]
            axes.errorbar([100 * score.value], [row], xerr=spread, fmt="o", color=_BAR, capsize=3)
        _name_rows(axes, [name for name, _ in shown])
        axes.set_xlim(-2, 102)
        axes.set_xlabel("passed, % with 95 % interval")

    return _drawn(draw, 0.8 + _ROW_INCHES * len(shown), "Scores with intervals")


def _name_rows(axes: Axes, names: Iterable[str]) -> None:
    """Name rows 0, 1 … from the top; the font has no other characters than these for sure."""
    shown = [_label(name) for name in names]
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.5, -0.5)


def _label(name: str) -> str:
    return visible(name).encode("ascii", "backslashreplace").decode()[:_NAME_CHARACTERS]


def _drawn(draw: Callable[[Axes], None], height: float, title: str) -> str:
    with context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        draw(figure.subplots())
        out = StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(out.getvalue(), title)


def _inline(document: str, title: str) -> str:
    """Return matplotlib's document as an element of a page, without styles and metadata."""
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ET.fromstring(document)  # noqa: S314 - matplotlib wrote it
    for parent in root.iter():
        for child in list(parent):
            if child.tag in {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}:
                parent.remove(child)
        _styles_to_attributes(parent)
    root.set("role", "img")
    root.set("aria-label", title)
    text = ET.tostring(root, encoding="unicode")
    for sentinel, colour in _COLOURS.items():
        text = text.replace(sentinel, colour)
    return text


def _styles_to_attributes(element: ET.Element) -> None:
    for declaration in (element.attrib.pop("style", "")).split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            element.set(name.strip(), value.strip())
