"""Every block of commands in the documentation is run by a test, or it is written here why not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documented import DOCS, ROOT, Reader, blocks
from support.result_folders import result_folder, result_line
from support.sealed_runs import KeyPair, handed_on, seal_runs

RECORDS = "how-to/read-a-record.md"
STATEMENTS = "how-to/verify-results.md"
RUN_BY = {
    "../README.md": "tests/cluster/test_chart_install.py",
    "how-to/flux-and-argocd.md": "tests/gitops/__main__.py",
    "how-to/gitops.md": "tests/cluster/test_chart_install.py",
    RECORDS: "tests/unit/docs/test_command_blocks.py",
    STATEMENTS: "tests/cluster/test_chart_install.py",
    "how-to/suites.md": "tests/e2e/test_suites.py",
    "installation.md": "tests/cluster/test_chart_install.py",
    "operations.md": "tests/cluster/test_chart_install.py",
    "reference/cli.md": "tests/cluster/test_first_packs.py",
    "reference/repository-tasks.md": "tests/cluster/test_first_packs.py",
    "tutorial.md": "tests/cluster/test_first_packs.py",
}
"""The test that follows a page from its first block to its last."""

NOT_RUN = {
    "how-to/air-gapped.md": "tests/images runs make bundle's script and restore.sh",
    "how-to/harbor-tasks.md": "needs a registry and a model; tests/e2e/test_harbor.py runs folders",
    "how-to/own-image.md": "needs a Docker engine",
    "how-to/pack-images.md": "tests/images runs these commands against a registry of its own",
    "how-to/publish-images.md": "tests/images runs make push's script; oras is no Debian package",
}


def pages_with_commands() -> Iterator[str]:
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).as_posix()
        if any(block.language == "sh" for block in blocks(name)):
            yield name


def test_every_page_with_commands_is_followed_by_a_test():
    assert {"../README.md", *pages_with_commands()} == {*RUN_BY, *NOT_RUN}


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_the_test_names_the_page(page: str, test: str):
    assert page in (ROOT / test).read_text(encoding="utf-8")


def test_what_is_left_out_is_not_followed_elsewhere():
    assert not NOT_RUN.keys() & RUN_BY.keys()


def test_the_commands_that_read_records(tmp_path: Path):
    right = result_line("right", candidate_text="4")
    wrong = result_line("wrong", passed=False, candidate_text="5")
    lost = result_line("lost", passed=None, outcome="infrastructure", failure_message="node gone")
    result_folder(tmp_path, [right, wrong, lost])

    how, whose, handed_in, time, conditions = Reader(RECORDS, tmp_path).run_all()

    assert [line.split("\t")[::3] for line in how.splitlines()] == [
        ["right", "true"],
        ["wrong", "false"],
        ["lost", "null"],
    ]
    assert whose.splitlines() == [
        "wrong: scored: a wrong answer",
        "lost: infrastructure: node gone",
    ]
    assert handed_in.splitlines()[:2] == ['right: "4"', 'wrong: "5"']
    assert '"attempts": 3' in time
    assert conditions.split()[0] == "3"


def test_the_commands_that_prove_results(tmp_path: Path):
    program = {"securebench verify": f"{sys.executable} -m securebench.cli verify"}
    reader = Reader(STATEMENTS, tmp_path, filled_in=program)
    reader.run_next()
    keys = KeyPair(*((tmp_path / name).read_bytes() for name in ("key.pem", "securebench.pub.pem")))
    uids = seal_runs(tmp_path / "volume", "nightly", pair=keys)
    handed_on(tmp_path / "volume", uids["nightly"], tmp_path / "nightly-sealed")
    reader.skip("kubectl create secret")  # tests/unit/controller/loop/test_sealing.py places a key
    reader.skip("securebench verify nightly ")  # tests/unit/cli/test_cli_verify.py fetches

    (told,) = reader.run_all()

    assert "run=nightly holds=yes" in told
