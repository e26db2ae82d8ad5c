"""Reports and comparisons of hostile texts in Chromium: keyboard, filter, contrast, printing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from securebench.analysis.comparison import compare
from securebench.analysis.page import comparison_page
from securebench.analysis.results import read_results
from support.hostile_results import NOW, comparison_file, report_file
from support.hostile_texts import HOSTILE_TEXTS
from support.result_folders import result_folder, result_line

SCHEMES = ("light", "dark")
# WCAG 2.2, 1.4.3, level AA.
CONTRAST = 4.5
CONTRASTS = """() => {
  const channel = (value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) =>
    0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
  };
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    const owns = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!owns || element.closest("script, style")) continue;
    const style = getComputedStyle(element);
    const colour = style[element.closest("svg") ? "fill" : "color"];
    const [one, two] = [light(numbers(colour)), light(ground(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    found[`${element.tagName} ${element.className.baseVal ?? element.className}`] = ratio;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return report_file(tmp_path_factory.mktemp("report"), HOSTILE_TEXTS.values())


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    return comparison_file(tmp_path_factory.mktemp("comparison"), HOSTILE_TEXTS.values())


def test_no_heading_of_a_comparison_covers_the_next(tmp_path, open_page):
    names = ("runs/of/a/team/with-long-names/baseline", "runs/of/a/team/with-long-names/candidate")
    both = [
        read_results(result_folder(tmp_path / name, [result_line("t", passed=passed)]), name)
        for name, passed in zip(names, (True, False), strict=True)
    ]
    path = tmp_path / "comparison.html"
    path.write_text("".join(comparison_page([compare(*both)], NOW)), encoding="utf-8")
    page, _ = open_page(path)
    headings = page.locator("table.changes th button")
    assert headings.count() == 5
    boxes = [headings.nth(place).bounding_box() for place in range(5)]
    for left, right in pairwise(boxes):
        assert left["x"] + left["width"] <= right["x"]


def test_sorting_and_filtering_by_keyboard(report, open_page):
    page, _ = open_page(report)
    rows = page.locator("table.attempts tbody tr")
    total = rows.count()
    button = page.get_by_role("button", name="task", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("table.attempts th").first.get_attribute("aria-sort") == "ascending"
    assert rows.first.locator("td").first.text_content() == "fine"
    page.keyboard.press("Enter")
    assert rows.last.locator("td").first.text_content() == "fine"
    page.get_by_label("Search").press_sequentially("FINE")
    assert page.locator("table.attempts tbody tr:visible").count() == 2
    assert page.locator("form.filter output").inner_text() == f"2 of {total}"
    page.get_by_label("Verdict").select_option("failed")
    assert page.locator("table.attempts tbody tr:visible").count() == 1
    page.get_by_label("Verdict").select_option("")
    page.get_by_label("Search").fill("")
    page.get_by_label("Difficulty").select_option("easy")
    assert page.locator("form.filter output").inner_text() == f"2 of {total}"
    page.get_by_label("Difficulty").select_option(HOSTILE_TEXTS["script"])
    assert page.locator("form.filter output").inner_text() == f"1 of {total}"


def test_a_link_opens_what_did_not_pass(report, open_page):
    page, _ = open_page(report)
    link = page.get_by_role("link", name="fine", exact=True)
    link.focus()
    page.keyboard.press("Enter")
    opened = page.locator("details.attempt[open]")
    assert opened.locator("summary").inner_text() == "fine · attempt 2 · wrong_answer"
    assert opened.get_by_text("What it handed in").is_visible()


def test_without_script_everything_can_be_read(report, open_page):
    page, _ = open_page(report, java_script_enabled=False)
    assert not page.locator("form.filter").is_visible()
    assert page.locator("table.attempts tbody tr").first.is_visible()
    summary = page.locator("details.attempt summary").first
    summary.click()
    assert page.locator("details.attempt pre").first.is_visible()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["report", "comparison"])
def test_texts_have_contrast(name, scheme, request, open_page):
    page, _ = open_page(request.getfixturevalue(name), color_scheme=scheme)
    found = page.evaluate(CONTRASTS)
    assert len(found) > 5
    assert {kind: ratio for kind, ratio in found.items() if ratio < CONTRAST} == {}


def test_nothing_is_wider_than_a_small_window(report, open_page):
    page, _ = open_page(report, viewport={"width": 400, "height": 800})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400


def test_printing_shows_no_controls(report, open_page):
    page, _ = open_page(report)
    assert page.locator("form.filter").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("form.filter").is_visible()
    assert page.pdf().startswith(b"%PDF")
