"""docs/troubleshooting.md explains every word that the code can say, and no other."""

import inspect
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from securebench import errors, reasons
from securebench.gateway.decisions import Cause, Verdict
from securebench.protocol.candidate import Problem
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import END_STATES, ConditionType, Reason
from securebench.run.records.reading import CHECKS_FAILED, NO_VERIFIER, WRONG_ANSWER
from securebench.suite.api import SuiteReason

PAGE = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SCHEMA = json.loads(files("securebench.schemas").joinpath("record.schema.json").read_text())
FIELDS = SCHEMA["properties"]
NULL = "null"
OWN_MESSAGE = {WRONG_ANSWER, CHECKS_FAILED, NO_VERIFIER}
ERRORS = {
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.SecureBenchError)
}


def explained(title):
    """Return the words that the tables of a section explain: first cells in backticks."""
    section = re.split(rf"^## {title}$", PAGE, flags=re.MULTILINE)[1]
    section = re.split(r"^##+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    words = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(words) == len(set(words)), "explained twice"
    return set(words)


def rows_to_write(words):
    """Return the skeleton of what a section lacks, to be filled in."""
    return "".join(f"\n| `{word}` | … | … | … |" for word in sorted(words))


@pytest.mark.parametrize(
    ("title", "want"),
    [
        ("Conditions", set(ConditionType)),
        ("Reasons of conditions", {*Reason, *SuiteReason}),
        ("Outcomes", {value or NULL for value in FIELDS["outcome"]["enum"]}),
        ("Reasons of an attempt", {*FIELDS["failure_reason"]["enum"], *OWN_MESSAGE}),
        ("Phases", set(FIELDS["failure_phase"]["enum"])),
        ("Exit codes of the command line", {"0", "1", "2", "3", "130"}),
        ("Classes of errors", ERRORS),
        ("What the gateway refuses", set(Cause)),
    ],
)
def test_every_word_is_explained_once_and_no_other(title, want):
    found = explained(title)
    assert not want - found, f"rows to write below '{title}':{rows_to_write(want - found)}"
    assert not found - want, f"nobody says these any more: {sorted(found - want)}"


def test_words_of_the_code_are_those_of_the_records_schema():
    ours = {value for name, value in vars(reasons).items() if name.isupper() and type(value) is str}
    assert ours | set(Problem) <= set(FIELDS["failure_reason"]["enum"])
    assert set(Outcome) - {Outcome.NOT_VERIFIED} == set(FIELDS["outcome"]["enum"]) - {None}


def test_ends_of_a_run_have_an_exit_code_that_is_explained():
    assert {str(end.exit_code) for end in END_STATES.values()} <= explained(
        "Exit codes of the command line"
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_verdicts_of_the_gateway_are_explained(verdict):
    assert f"`{verdict}`" in PAGE


def test_the_contract_lists_the_same_reasons():
    page = Path(__file__).parents[3] / "docs" / "spec" / "contract.md"
    table = page.read_text(encoding="utf-8").split("| `failure_reason` | outcome |")[1]
    first_cells = re.findall(r"^\| ([^|]+) \|", table.split("\n\n")[0], re.MULTILINE)
    words = {word for cell in first_cells for word in re.findall(r"`(\w+)`", cell)}
    assert words == set(FIELDS["failure_reason"]["enum"])
