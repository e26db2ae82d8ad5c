"""A report or a comparison as one HTML file, without network or server."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from securebench.analysis import charts
from securebench.analysis.comparison import Comparison, verdict_sentence
from securebench.analysis.overview import Overview, overview, trust
from securebench.analysis.results import Entry, ResultSet
from securebench.analysis.visible import excerpt, visible
from securebench.client.volume.record_mirror import read_records
from securebench.core.json_values import text_at
from securebench.run.records.reading import Record, RecordKey, record_key

QUOTES_CHARACTERS = 12_000_000
"""All quotes of a page together, so that a browser opens it within two seconds."""

QUOTE_MOST, QUOTE_LEAST = 8_000, 400
"""Limits of one quote; between them, the fewer tasks did not pass, the longer their quotes."""

_QUOTES_PER_ATTEMPT = 5


class Quote(NamedTuple):
    """A text of a record."""

    title: str
    text: str


class Attempt(NamedTuple):
    """An attempt that did not pass, with its texts.

    Args:
        anchor: Id of its element.
    """

    anchor: str
    entry: Entry
    quotes: tuple[Quote, ...]


class Charts(NamedTuple):
    """SVG elements; empty where there is nothing to draw."""

    families: Markup
    outcomes: Markup
    seconds: Markup
    tokens: Markup


class ReportSection(NamedTuple):
    """The part of a report about one run."""

    results: ResultSet
    figures: Overview
    charts: Charts
    trust: str
    attempts: Iterable[Attempt]
    anchors: Callable[[Entry], str]


def report_page(runs: Iterable[ResultSet], made_at: datetime) -> Iterator[str]:
    """Yield the pieces of a report.

    Args:
        runs: What it shows; each is read once more for the texts of what did not pass.
        made_at: Shown at its foot.
    """
    sections = [_section(number, results) for number, results in enumerate(runs, start=1)]
    return _rendered("report.html", sections=sections, made_at=made_at)


def comparison_page(comparisons: Iterable[Comparison], made_at: datetime) -> Iterator[str]:
    """Yield the pieces of a page that compares runs with the first of them."""
    return _rendered(
        "comparison.html",
        comparisons=[(each, verdict_sentence(each)) for each in comparisons],
        made_at=made_at,
    )


def _section(number: int, results: ResultSet) -> ReportSection:
    def anchor(entry: Entry) -> str:
        key = f"{entry.task_id}\n{entry.attempt}".encode("utf-8", "surrogatepass")
        return f"r{number}-{hashlib.sha256(key).hexdigest()[:16]}"

    figures = overview(results)
    return ReportSection(
        results=results,
        figures=figures,
        charts=_charts(results, figures),
        trust=trust(results.basis),
        attempts=_attempts(results, anchor),
        anchors=anchor,
    )


def _charts(results: ResultSet, figures: Overview) -> Charts:
    tokens = [entry.tokens.total for entry in results.entries if entry.tokens is not None]
    seconds = [entry.seconds for entry in results.entries]
    return Charts(
        families=Markup(charts.scores(figures.families) if figures.families else ""),  # noqa: S704
        outcomes=Markup(charts.bars(figures.outcomes, "attempts")),  # noqa: S704
        seconds=Markup(charts.histogram(seconds, "seconds per attempt")),  # noqa: S704
        tokens=Markup(charts.histogram(tokens, "tokens per attempt") if tokens else ""),  # noqa: S704
    )


def _attempts(results: ResultSet, anchor: Callable[[Entry], str]) -> Iterator[Attempt]:
    entries = {
        RecordKey(entry.task_id, entry.attempt): entry
        for entry in results.entries
        if entry.passed is not True
    }
    share = QUOTES_CHARACTERS // (_QUOTES_PER_ATTEMPT * max(1, len(entries)))
    limit = min(QUOTE_MOST, max(QUOTE_LEAST, share))
    for record in read_records(results.path):
        entry = entries.get(record_key(record))
        if entry is not None:
            yield Attempt(anchor(entry), entry, tuple(_quotes(record, limit)))


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
