import base64
import hashlib
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from securebench.analysis import page as page_module
from securebench.analysis.comparison import compare
from securebench.analysis.page import QUOTE_LEAST, comparison_page, report_page
from securebench.analysis.results import read_results
from securebench.stats.cost import Price
from support.hostile_texts import HOSTILE_TEXTS
from support.result_folders import result_folder, result_line

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Elements(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def report(folder, *lines):
    return "".join(report_page([read_results(result_folder(folder, lines), "nightly")], NOW))


def hostile_line(text):
    return result_line(
        text,
        passed=False,
        task_type=text,
        failure_reason=text,
        failure_message=text,
        candidate_text=text,
        producer_stdout=text,
        verifier_stderr=text,
        resource_summary=[{"name": text, "kind": "text", "visibility": "public", "value": text}],
        labels={"isolation": text, text: text},
        outcome=text,
    )


@pytest.mark.parametrize("case", HOSTILE_TEXTS)
def test_hostile_text_makes_no_element_and_no_attribute(case, tmp_path):
    harmless = Elements(report(tmp_path / "one", hostile_line("x"), result_line("y")))
    attacked = Elements(
        report(tmp_path / "two", hostile_line(HOSTILE_TEXTS[case]), result_line("y"))
    )
    assert sorted(attacked.tags) == sorted(harmless.tags)
    names = [name for name, _ in attacked.attributes]
    assert sorted(names) == sorted(name for name, _ in harmless.attributes)


def test_nothing_is_loaded_and_nothing_else_runs(tmp_path):
    text = report(tmp_path, hostile_line("x"))
    found = Elements(text)
    assert "style" not in [name for name, _ in found.attributes]
    assert [
        value for name, value in found.attributes if name in {"src", "href"} if value[0] != "#"
    ] == []
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    for kind in ("style", "script"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;;")


def test_what_did_not_pass_is_quoted(tmp_path):
    text = " ".join(Elements(report(tmp_path, hostile_line("theText"), result_line("fine"))).text)
    for title in (
        "What the agent was given",
        "What the agent printed",
        "What it handed in",
        "What the check said",
        "Why it did not pass",
    ):
        assert title in text
    assert "1 of 2 verdicts passed" in text
    assert "50.0 %" in text


def test_many_failures_have_short_quotes(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "QUOTES_CHARACTERS", 1_000)
    text = report(tmp_path, result_line("a", passed=False, producer_stdout="z" * 5_000))
    assert "z" * QUOTE_LEAST in text
    assert "z" * (QUOTE_LEAST + 1) not in text
    assert f"{5_000 - QUOTE_LEAST:,} more characters in the record" in text


def test_few_failures_share_the_room_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "QUOTES_CHARACTERS", 5_000)
    text = report(tmp_path, result_line("a", passed=False, producer_stdout="z" * 5_000))
    assert "z" * 1_000 in text
    assert "z" * 1_001 not in text


def test_all_runs_of_a_page_share_its_room(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "QUOTES_CHARACTERS", 800)
    line = result_line("a", passed=False, producer_stdout="z" * 5_000)
    runs = [read_results(result_folder(tmp_path / name, [line]), name) for name in "ab"]
    text = "".join(report_page(runs, NOW))
    assert text.count("z" * QUOTE_LEAST) == 1
    assert text.count("this page has no room for more") == 1


def test_what_attempts_are_filtered_by(tmp_path):
    line = result_line("a", difficulty="hard", tags=["x", "y\ntag z"])
    found = Elements(report(tmp_path, line, result_line("b", difficulty="easy", tags=["x"])))
    groups = [value for name, value in found.attributes if name == "data-groups"]
    assert groups[0].splitlines() == [
        "family short_answer",
        "difficulty hard",
        "tag x",
        "tag y tag z",
    ]
    assert "By difficulty" in found.text
    assert "By tag" in found.text


def test_cost_and_a_run_that_has_not_ended_are_said(tmp_path):
    usage = {"requests": 1, "input_tokens": 1_000_000, "cached_tokens": 0, "output_tokens": 0}
    metadata = {"usage": usage, "provider_models": ["m"]}
    folder = result_folder(
        tmp_path, [result_line("a", producer_metadata=metadata)], has_ended=False
    )
    results = read_results(folder, "nightly", {"m": Price(1_250_000, 0, 0)})
    text = "".join(report_page([results], NOW))
    assert "Cost: $1.250000." in text
    assert "The run has not ended" in text


def test_links_lead_to_what_did_not_pass(tmp_path):
    lines = [result_line("a", passed=False, attempt=number) for number in (1, 2)]
    found = Elements(report(tmp_path, *lines))
    ids = [value for name, value in found.attributes if name == "id"]
    links = [value[1:] for name, value in found.attributes if name == "href"]
    assert len(set(links)) == 2
    assert set(links) <= set(ids)


def test_a_chart_takes_its_colours_from_the_page(tmp_path):
    svg = report(tmp_path, result_line("a")).partition("<figure>")[2].partition("</figure>")[0]
    assert "var(--accent)" in svg
    assert not re.search(r"#[0-9a-f]{6}", svg)


def test_a_comparison(tmp_path):
    old = read_results(result_folder(tmp_path / "a", [result_line("t<1>")]), "old<b>")
    new = read_results(result_folder(tmp_path / "b", [result_line("t<1>", passed=False)]), "new")
    page = "".join(comparison_page([compare(old, new)], NOW))
    found = Elements(page)
    assert "b" not in found.tags
    assert "lost" in found.text
    assert "old<b>" in "".join(found.text)


def test_a_page_says_which_try_it_shows(tmp_path):
    said = "This is run 19 of this agent and model on this pack"
    assert said not in report(tmp_path, result_line("a"))
    (tmp_path / "summary.json").write_text('{"tries": 19}')
    assert said in "".join(report_page([read_results(tmp_path, "nightly")], NOW))


def test_a_page_has_tries_of_others_apart(tmp_path):
    assert "by others" not in report(tmp_path, result_line("a"))
    (tmp_path / "summary.json").write_text('{"tries_by_others": 19}')
    page = "".join(report_page([read_results(tmp_path, "nightly")], NOW))
    assert "19 more by others" in page
    assert "This is run" not in page
