"""F4: texts of a run stay texts in what people open: a page, a terminal, a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from jinja2 import Environment

from securebench.analysis import export, page
from securebench.analysis.command import CompareOutput, compare_runs
from securebench.analysis.results import read_results
from securebench.client import output
from securebench.client.volume import ClusterTarget
from support.chromium import Opened, browser, open_page
from support.hostile_results import compared_results, comparison_file, line_of, report_file
from support.hostile_texts import HOSTILE_TEXTS
from support.result_folders import result_folder

__all__ = ["browser", "open_page"]

pytestmark = pytest.mark.short

TEXTS = tuple(HOSTILE_TEXTS.values())
HARMLESS = tuple(f"harmless {number}" for number in range(len(TEXTS)))
IMAGE = "<img src=x onerror=alert(1)>"
ELEMENTS = "all => all.map((each) => [each.tagName, ...each.getAttributeNames()].join(' '))"
PAGES = {"report": report_file, "comparison": comparison_file}

Open = Callable[[Path], Opened]


def elements(opened: Opened) -> tuple[Counter[str], set[str]]:
    """Return how often each element with its attributes is on a page, and those of its charts."""
    of_page = opened.page.eval_on_selector_all("body *:not(svg *)", ELEMENTS)
    return Counter(of_page), set(opened.page.eval_on_selector_all("svg *", ELEMENTS))


def used(opened: Opened) -> list[str]:
    """Return what happens while somebody uses a page."""
    opened.page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true })")
    opened.page.mouse.move(200, 200)
    opened.page.keyboard.press("Tab")
    opened.page.screenshot()
    return opened.events


@pytest.mark.parametrize("kind", PAGES)
def test_a_333_attack(kind: str, tmp_path: Path, open_page: Open) -> None:
    hostile = open_page(PAGES[kind](tmp_path / "hostile", TEXTS))
    harmless = open_page(PAGES[kind](tmp_path / "harmless", HARMLESS))

    assert elements(hostile) == elements(harmless)
    assert used(hostile) == []


def test_a_333_twin(tmp_path: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without escaping a text becomes an element, which the policy of the page stops."""
    environment = page._environment

    def unescaped() -> Environment:
        made = environment()
        made.autoescape = False
        return made

    monkeypatch.setattr(page, "_environment", unescaped)
    opened = open_page(report_file(tmp_path, (IMAGE,)))

    assert opened.page.locator("img[onerror]").count() > 0
    assert not any(event.startswith("dialog") for event in opened.events)


def test_a_333_twin_without_a_policy(tmp_path: Path, open_page: Open) -> None:
    """Without escaping and policy a text runs."""
    text = report_file(tmp_path, HARMLESS).read_text(encoding="utf-8")
    policy = text[text.index('<meta http-equiv="Content') : text.index('<meta name="viewport"')]
    twin = tmp_path / "twin.html"
    twin.write_text(text.replace(policy, "").replace("<main>", f"<main>{IMAGE}"), encoding="utf-8")

    opened = open_page(twin)
    opened.page.wait_for_function("() => document.readyState === 'complete'")

    assert "dialog: 1" in opened.events


@pytest.mark.parametrize("kind", PAGES)
def test_a_333_honest(kind: str, tmp_path: Path, open_page: Open) -> None:
    opened = open_page(PAGES[kind](tmp_path, HARMLESS))

    assert all(text in opened.page.content() for text in HARMLESS)


def compared(folder: Path, texts: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a terminal is sent by a comparison."""
    compared_results(folder, texts)
    runs = [str(folder / "old"), str(folder / "new")]
    compare_runs(runs, CompareOutput.TEXT, None, ClusterTarget(None, None))
    printed = capsys.readouterr()
    return printed.out + printed.err


def acts_on_a_terminal(text: str) -> bool:
    """Whether a terminal may act on any character, line ends apart."""
    return not all(character.isprintable() for character in text.replace("\n", ""))


def test_a_334_attack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = compared(tmp_path, TEXTS, capsys)

    assert HOSTILE_TEXTS["formula"] in shown
    assert not acts_on_a_terminal(shown)


def test_a_334_twin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "printable", lambda text: text)

    assert acts_on_a_terminal(compared(tmp_path, (HOSTILE_TEXTS["terminal escapes"],), capsys))


def test_a_334_honest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = compared(tmp_path, ("größe", "漢字"), capsys)

    assert "größe" in shown
    assert "漢字" in shown


def cells(folder: Path, text: str) -> list[str]:
    """Return the cells of an exported table of one record with this text."""
    results = read_results(result_folder(folder, [line_of(text, text)]), text)
    exported = b"".join(export.as_csv(results)).decode()
    (row,) = csv.DictReader(io.StringIO(exported, newline=""))
    return list(row.values())


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_a_335_attack(name: str, tmp_path: Path) -> None:
    shown = cells(tmp_path, HOSTILE_TEXTS[name])

    assert not [cell for cell in shown if cell.startswith(export.FORMULA_STARTS)]
    assert not any(map(acts_on_a_terminal, shown))


def test_a_335_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "cell_text", str)

    shown = cells(tmp_path, HOSTILE_TEXTS["formula"])

    assert [cell for cell in shown if cell.startswith(export.FORMULA_STARTS)]


def test_a_335_honest(tmp_path: Path) -> None:
    assert {"a=1", "1-2"} <= {*cells(tmp_path / "first", "a=1"), *cells(tmp_path / "second", "1-2")}
