"""A report or a comparison as one HTML file, without network or server.

Charts are inline SVG, drawn by matplotlib. The page's content security policy allows no style
attributes, and its colours follow the reader's light or dark mode. Therefore styles become
presentation attributes, and colours CSS variables.
"""

from __future__ import annotations

import base64
import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.style import context
from matplotlib.ticker import MaxNLocator

from securebench.analysis.comparison import Comparison, Noise, conclusion, noise
from securebench.analysis.results import (
    Entry,
    Group,
    Overview,
    ResultSet,
    excerpt,
    overview,
    provenance_sentence,
    visible,
)
from securebench.client.result_folder import read_records
from securebench.json_values import text_at
from securebench.run.records.reading import Record, RecordKey, record_key

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


QUOTES_CHARACTERS = 12_000_000
"""All quotes of a page together, so that a browser opens it within two seconds."""

QUOTE_MOST, QUOTE_LEAST = 8_000, 400
"""Limits of one quote; between them, the fewer attempts did not pass, the longer their quotes."""

_QUOTES_PER_ATTEMPT = 5


class Quote(NamedTuple):
    """A text of a record."""

    title: str
    text: str


class Attempt(NamedTuple):
    """An attempt that did not pass, with its texts.

    Args:
        anchor: Id of its element.
        quotes: Texts of its record; empty where the page has no room for more.
        is_full: Whether the page had no room for them.
    """

    anchor: str
    entry: Entry
    quotes: tuple[Quote, ...]
    is_full: bool


class QuoteBudget:
    """What is left for the quotes of a page.

    Args:
        attempts: That did not pass, of all its runs.
    """

    def __init__(self, attempts: int) -> None:
        share = QUOTES_CHARACTERS // (_QUOTES_PER_ATTEMPT * max(1, attempts))
        self.limit = min(QUOTE_MOST, max(QUOTE_LEAST, share))
        self._left = QUOTES_CHARACTERS

    def take(self, quotes: Iterable[Quote]) -> bool:
        """Return whether quotes fit, and keep room for them if so."""
        size = sum(len(quote.text) for quote in quotes)
        if size > self._left:
            return False
        self._left -= size
        return True


class Charts(NamedTuple):
    """SVG elements; empty where there is nothing to draw."""

    breakdowns: Sequence[Markup]
    outcomes: Markup
    seconds: Markup
    tokens: Markup


class ReportSection(NamedTuple):
    """The part of a report about one run."""

    results: ResultSet
    figures: Overview
    charts: Charts
    trust: str
    noise: Noise
    attempts: Iterable[Attempt]
    anchors: Callable[[Entry], str]


def report_page(runs: Iterable[ResultSet], made_at: datetime) -> Iterator[str]:
    """Yield the pieces of a report.

    Args:
        runs: What it shows; each is read once more for the texts of what did not pass.
        made_at: Shown at its foot.
    """
    shown = list(runs)
    budget = QuoteBudget(sum(entry.passed is not True for each in shown for entry in each.entries))
    sections = [_section(number, each, budget) for number, each in enumerate(shown, start=1)]
    return _rendered("report.html", sections=sections, made_at=made_at, groups=_groups)


def comparison_page(comparisons: Iterable[Comparison], made_at: datetime) -> Iterator[str]:
    """Yield the pieces of a page that compares runs with the first of them."""
    return _rendered(
        "comparison.html",
        comparisons=[(each, conclusion(each)) for each in comparisons],
        made_at=made_at,
    )


def _section(number: int, results: ResultSet, budget: QuoteBudget) -> ReportSection:
    def anchor(entry: Entry) -> str:
        key = f"{entry.task_id}\n{entry.attempt}".encode("utf-8", "surrogatepass")
        return f"r{number}-{hashlib.sha256(key).hexdigest()[:16]}"

    figures = overview(results)
    return ReportSection(
        results=results,
        figures=figures,
        charts=_charts(results, figures),
        trust=provenance_sentence(results.provenance),
        noise=noise(results),
        attempts=_attempts(results, anchor, budget),
        anchors=anchor,
    )


def _groups(entry: Entry) -> str:
    """Return what an attempt is filtered by: a line each."""
    difficulty = [f"difficulty {entry.difficulty}"] if entry.difficulty else []
    lines = [f"family {entry.family}", *difficulty, *(f"tag {tag}" for tag in entry.tags)]
    return "\n".join(line.replace("\n", " ") for line in lines)


def _charts(results: ResultSet, figures: Overview) -> Charts:
    tokens = [entry.tokens.total for entry in results.entries if entry.tokens is not None]
    seconds = [entry.seconds for entry in results.entries if entry.launches]
    return Charts(
        breakdowns=[Markup(scores(each.groups)) for each in figures.breakdowns],  # noqa: S704
        outcomes=Markup(bars(figures.outcomes, "attempts")),  # noqa: S704
        seconds=Markup(histogram(seconds, "seconds per attempt") if seconds else ""),  # noqa: S704
        tokens=Markup(histogram(tokens, "tokens per attempt") if tokens else ""),  # noqa: S704
    )


def _attempts(
    results: ResultSet, anchor: Callable[[Entry], str], budget: QuoteBudget
) -> Iterator[Attempt]:
    entries = {
        RecordKey(entry.task_id, entry.attempt): entry
        for entry in results.entries
        if entry.passed is not True
    }
    for record in read_records(results.path):
        entry = entries.get(record_key(record))
        if entry is not None:
            quotes = tuple(_quotes(record, budget.limit))
            fits = budget.take(quotes)
            yield Attempt(anchor(entry), entry, quotes if fits else (), not fits)


def _quotes(record: Record, limit: int) -> Iterator[Quote]:
    found = (
        ("What the agent was given", _prompt(record)),
        ("What the agent printed", _streams(record, "producer")),
        ("What it handed in", _candidate(record)),
        ("What the check said", _streams(record, "verifier")),
        ("Why it did not pass", text_at(record, "failure_message")),
    )
    for title, text in found:
        if text.strip():
            yield Quote(title, excerpt(text, limit))


def _prompt(record: Record) -> str:
    resources = record.get("resource_summary")
    public = [
        f"{each.get('name')}: {each['value']}"
        for each in (resources if isinstance(resources, list) else ())
        if isinstance(each, dict) and "value" in each
    ]
    return "\n\n".join(public)


def _candidate(record: Record) -> str:
    for name in ("candidate_text", "candidate_patch"):
        if text_at(record, name):
            return text_at(record, name)
    workspace = record.get("candidate_workspace")
    return "" if workspace is None else f"workspace: {workspace}"


def _streams(record: Record, who: str) -> str:
    parts = (text_at(record, f"{who}_{stream}") for stream in ("stdout", "stderr"))
    return "\n".join(part for part in parts if part.strip())


def _rendered(template: str, **values: object) -> Iterator[str]:
    page = _environment()
    static = Path(__file__).parent / "templates"
    style, script = ((static / name).read_text() for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
        " base-uri 'none'; form-action 'none'"
    )
    return page.get_template(template).generate(
        policy=policy,
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        **values,
    )


def _environment() -> Environment:
    page = Environment(
        loader=PackageLoader("securebench.analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    page.filters["percent"] = lambda share: f"{share * 100:.1f} %"
    page.filters["points"] = lambda share: f"{share * 100:+.1f}"
    return page


def _finalized(value: object) -> object:
    """Make every text that a template prints visible; Jinja escapes it afterwards."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
