"""Links of the documentation lead to files and headings that are there."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = ("docs/**/*.md", "*.md", "images/*.md", "charts/*/README.md", "tests/*/README.md")
PAGES = sorted({path for place in PLACES for path in ROOT.glob(place)})
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(rf"{_FENCED.pattern}|`[^`\n]*`", _FENCED.flags)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def lost(page):
    """Return the links of a page that lead nowhere."""
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert list(lost(page)) == []


def test_a_lost_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](page.md#one) [d](gone.md) `[e](code.md)`\n")
    assert list(lost(page)) == ["#two", "gone.md"]


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs/decisions"
    listed = set(_LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in folder.glob("0*.md")}
