"""Mistakes on the way to the cluster: what is printed, and the exit code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.client import result_folder
from support.cli_shell import Shell
from support.fake_operator import write_tester
from unit.cli.servers import answering, kubeconfig, unused_port, with_unknown_authority

Mistake = Callable[[Path], AbstractContextManager[object]]

FORBIDDEN = 'benchmarkruns.securebench.dev is forbidden: User "me" cannot list resource'
NO_ROLE = "your account lacks a permission; ask for the chart's role 'tester'"
NO_OPERATOR = (
    "no SecureBench operator runs in namespace bench; install the chart there, or choose another"
    " namespace with --namespace or another Pod with --operator-pod"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a tester YAML; its file ``kubeconfig`` is the kubeconfig."""
    write_tester(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


def said(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Return exit code and stdout lines of ``securebench run``."""
    command = ["run", "--config", str(folder / "tester.yaml"), *words]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.stdout.splitlines()


@contextmanager
def missing(_: Path) -> Iterator[None]:
    yield


@contextmanager
def broken(folder: Path) -> Iterator[None]:
    (folder / "kubeconfig").write_text("clusters: [")
    yield


def at(serve: Callable[[Path], AbstractContextManager[str]]) -> Mistake:
    """Let the kubeconfig name a server that is there for as long as the mistake lasts."""

    @contextmanager
    def mistake(folder: Path) -> Iterator[None]:
        with serve(folder) as address:
            kubeconfig(folder / "kubeconfig", address)
            yield

    return mistake


@contextmanager
def nobody(_: Path) -> Iterator[str]:
    yield f"https://127.0.0.1:{unused_port()}"


@contextmanager
def unnamed(_: Path) -> Iterator[str]:
    yield "https://no-such-host.invalid:6443"


@contextmanager
def in_the_clear(_: Path) -> Iterator[str]:
    with answering([(400, "the server speaks TLS to nobody")]) as address:
        yield address.replace("http:", "https:")


def refusing(status: int, message: str = "no") -> Mistake:
    return at(lambda _: answering([(status, message)]))


SERVER = r"https?://[\w.-]+:\d+ \(context work\)"
UNREACHABLE = (
    rf"the cluster at {SERVER} cannot be reached; check that it is up and the address right"
)
TLS = (
    rf"TLS error with the cluster at {SERVER}: the server's certificate is not one that the"
    r" kubeconfig trusts; check its certificate-authority and the server's name"
)


@pytest.mark.parametrize(
    ("mistake", "words", "want"),
    {
        "no kubeconfig": (
            missing,
            (),
            r"no cluster: not inside a Pod, and there is no kubeconfig at .*/kubeconfig",
        ),
        "broken kubeconfig": (broken, (), r"the kubeconfig cannot be used: while parsing a flow.*"),
        "unknown context": (
            at(nobody),
            ("--context", "home"),
            r"the kubeconfig has no context 'home'; known are work",
        ),
        "nothing listens": (
            at(nobody),
            (),
            rf"{UNREACHABLE} \(no connection: GET /\S+: connection refused\)",
        ),
        "no such host": (
            at(unnamed),
            (),
            rf"{UNREACHABLE} \(no connection: GET /\S+: its name cannot be resolved\)",
        ),
        "another certificate": (
            at(with_unknown_authority),
            (),
            rf"{TLS} \(no connection: GET /\S+: unable to get local issuer certificate\)",
        ),
        "no TLS": (at(in_the_clear), (), rf"{TLS} \(no connection: GET /\S+: .+\)"),
        "expired token": (
            refusing(401, "Unauthorized"),
            (),
            r"the cluster does not accept the credentials of the kubeconfig \(.*Unauthorized.*\)",
        ),
        "no rights": (refusing(403, FORBIDDEN), (), rf"{re.escape(NO_ROLE)} \(.*forbidden.*\)"),
    }.values(),
)
def test_what_is_in_the_way_is_one_line(
    mistake: Mistake, words: tuple[str, ...], want: str, folder: Path
) -> None:
    with mistake(folder):
        code, lines = said(folder, *words)
    assert (code, len(lines)) == (1, 1), lines
    assert re.fullmatch(f"securebench: error: {want}", lines[0]), lines
    assert not (folder / "out").exists()


def test_a_namespace_that_is_missing_or_has_no_operator(folder: Path) -> None:
    nothing = '{"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}'
    with answering([(200, nothing), (404, "not found")]) as address:
        kubeconfig(folder / "kubeconfig", address)
        assert said(folder) == (1, [f"securebench: error: {NO_OPERATOR}"])


def a_file(path: Path) -> Path:
    path.write_text("")
    return path


@pytest.mark.parametrize(
    ("below", "said_of_it"),
    {
        "a file": ("", "cannot be created: {file} is a file"),
        "below a file": ("/out", "cannot be created: {file} is a file"),
    }.values(),
)
def test_an_output_folder_that_is_a_file(
    below: str, said_of_it: str, folder: Path, shell: Shell
) -> None:
    file = a_file(folder / "notes.txt")
    result = shell.run("--output-dir", f"{file}{below}")
    want = f"the output folder {file}{below} {said_of_it.format(file=file)}"
    assert result[:2] == (1, f"securebench: error: {want}; choose another with --output-dir\n")


def test_an_output_folder_that_cannot_be_written(
    folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(result_folder, "TemporaryFile", refuse)
    result = shell.run("--output-dir", str(folder / "there"))
    want = f"the output folder {folder}/there cannot be written: permission denied"
    assert result[:2] == (1, f"securebench: error: {want}; choose another with --output-dir\n")
