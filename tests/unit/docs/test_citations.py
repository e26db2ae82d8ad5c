"""Whatever cites a section, a case or a decision cites one that is in the repository."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SPEC = ROOT / "docs" / "spec"
PAGES = tuple(sorted(path.stem for path in SPEC.glob("*.md") if path.stem != "README"))
CODE = ("operator", "images", "charts", "tests", "crds", "Makefile", ".ci")
PROSE = ("docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SKIPPED = re.compile(r"tests/(e2e/scenarios|fuzz/corpus|packs/bad-pack)/|\.(jsonl|ppm|lock|sum)$")

_NAMES = "|".join(PAGES)
_MORE = r"(?:(?:, | and | or | to )\d+(?:\.\d+)*(?![\w%]))*"
_SECTIONS = re.compile(rf"\b({_NAMES}) (\d+(?:\.\d+)*(?![\w%]){_MORE})", re.IGNORECASE)
_DECISIONS = re.compile(r"\bdecisions? (\d+(?:(?:, | and | or | to )\d{4})*)", re.IGNORECASE)
_IDS = re.compile(r"\b(?:A-\d{3}|R-\d{2}|F\d{1,2}\.\d)\b")
_OTHER_FORMS = re.compile(
    rf"(?<!\")\b(?:{_NAMES}|style|mistakes)"
    r"(?:\.md\b|'s sections? \d|,? (?:sections?|decision|facts?) \d)"
    r"|\bruling \d|docs/decisions/\d",
    re.IGNORECASE,
)
_TESTS = re.compile(r"\btests/[\w./-]+\.py\b")
MADE_UP = "tests/test_x.py"
"""Of a repository that an agent works on."""
_HEADING = re.compile(r"#{2,6} (\d+(?:\.\d+)*)\b")
_NUMBERED = re.compile(r"(?:\| (\d+(?:\.\d+)*) \||(\d+)\. |\* \*\*(\d+\.\d+)\*\*)")


def _numbers(page: str) -> Iterator[str]:
    """Yield the numbers of a page: headings, and below a heading its numbered rows and items."""
    section = ""
    for line in (SPEC / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            section = heading[1]
            yield section
        elif numbered := _NUMBERED.match(line):
            number = next(filter(None, numbered.groups()))
            yield number if number.startswith(f"{section}.") else f"{section}.{number}"


@cache
def known() -> frozenset[str]:
    """Return everything that may be cited, in the form of the citations."""
    sections = {f"{page} {number}" for page in PAGES for number in _numbers(page)}
    decisions = {f"decision {path.name[:4]}" for path in (ROOT / "docs/decisions").glob("*.md")}
    cases = yaml.safe_load((ROOT / "tests/threats/catalogue.yaml").read_text(encoding="utf-8"))
    ids = set(_IDS.findall((SPEC / "threats.md").read_text(encoding="utf-8")))
    return frozenset(sections | decisions | set(cases) | {one for one in ids if one[0] != "A"})


def cited(text: str) -> Iterator[str]:
    """Yield what a text cites, as ``known`` names it; comment signs between lines are no text."""
    flat = re.sub(r"\s*\n\s*(?:#+ |//+ |> )?", " ", text)
    for name, numbers in _SECTIONS.findall(flat):
        yield from (f"{name.lower()} {number}" for number in re.findall(r"[\d.]*\d", numbers))
    for numbers in _DECISIONS.findall(flat):
        yield from (f"decision {number}" for number in re.findall(r"\d+", numbers))
    yield from _IDS.findall(flat)


def files(*places: str) -> list[Path]:
    """Return the tracked text files below the places."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *places],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    paths = (ROOT / name for name in listed if name and not SKIPPED.search(name))
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def test_every_citation_is_in_the_repository() -> None:
    lost = {
        f"{path.relative_to(ROOT)}: {citation}"
        for path in files(*CODE, *PROSE)
        for citation in cited(path.read_text(encoding="utf-8", errors="replace"))
        if citation not in known()
    }
    assert not lost


def test_every_test_that_the_product_names_is_there() -> None:
    named = {
        path
        for module in (ROOT / "operator").rglob("*.py")
        for path in _TESTS.findall(module.read_text(encoding="utf-8"))
    }
    assert named
    assert {path for path in named - {MADE_UP} if not (ROOT / path).is_file()} == set()


def test_code_cites_in_one_form() -> None:
    others = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in files(*CODE)
        for found in _OTHER_FORMS.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert not others


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "Source: contract 14.5.1, 21.4; design 7.",
            ["contract 14.5.1", "contract 21.4", "design 7"],
        ),
        ("# Contract\n# 15.7: what", ["contract 15.7"]),
        ("contract 14.0 to 14.3", ["contract 14.0", "contract 14.3"]),
        ("decisions 0020 and 0021", ["decision 0020", "decision 0021"]),
        ("// decision 17", ["decision 17"]),
        ("(A-123, R-05, F4.1)", ["A-123", "R-05", "F4.1"]),
        ("contract 45 s; the contract", ["contract 45"]),
    ],
)
def test_citations_are_found(text: str, want: list[str]) -> None:
    assert list(cited(text)) == want


@pytest.mark.parametrize(
    "citation", ["contract 22", "contract 14.12", "design 12.19", "decision 17", "A-999"]
)
def test_what_is_not_there_is_not_known(citation: str) -> None:
    assert citation not in known()


@pytest.mark.parametrize(
    "citation",
    [
        "contract 1.4",
        "contract 21.22",
        "design 2.13",
        "design 12.18",
        "providers 8.5",
        "threats 5",
        "decision 0001",
    ],
)
def test_what_is_there_is_known(citation: str) -> None:
    assert citation in known()
