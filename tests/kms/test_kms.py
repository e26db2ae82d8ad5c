"""Statements signed by a key management service that speaks AWS's API (``make kms``)."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.controller.volume import results
from securebench.controller.volume.folders import run_folder
from support.operator_world import World, opened
from support.sealed_runs import OPERATOR, handed_on, run_to_end
from support.servers import free_port, serving

pytestmark = pytest.mark.slow

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "securebench"
PROGRAM = CACHE / "kms" / "bin" / "local-kms"
KEY_ID = "11111111-2222-3333-4444-555555555555"
URI = f"awskms:{KEY_ID}"
UNSIGNED = "the statement on the results is not signed: the key"


def public_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Where the operator's client looks for the service; nothing listens there yet."""
    found = free_port()
    for name, value in {
        "ENDPOINT_URL_KMS": f"http://127.0.0.1:{found}",
        "DEFAULT_REGION": "eu-west-2",
        "ACCESS_KEY_ID": "operator",
        "SECRET_ACCESS_KEY": "any",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return found


@contextmanager
def service(folder: Path, port: int, key: ec.EllipticCurvePrivateKey) -> Iterator[Popen[bytes]]:
    """Run the service with a key, and yield its process."""
    folder.mkdir(exist_ok=True)
    metadata = {"KeyId": KEY_ID, "KeyUsage": "SIGN_VERIFY"}
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    entry = {"Metadata": metadata, "PrivateKeyPem": pem.decode()}
    seed = folder / "seed.yaml"
    seed.write_text(yaml.safe_dump({"Keys": {"Asymmetric": {"Ecc": [entry]}}}), encoding="utf-8")
    environment = {"PORT": str(port), "KMS_SEED_PATH": str(seed), "KMS_DATA_PATH": str(folder)}

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with (
        (folder / "log").open("a", encoding="utf-8") as log,
        serving([str(PROGRAM)], listens, {**environment, "KMS_REGION": "eu-west-2"}, log) as server,
    ):
        yield server


@contextmanager
def operator(root: Path, public: str, uri: str = URI) -> Iterator[World]:
    with opened(World, root / "volume", signing={"uri": uri, "public_key": public}) as world:
        yield world


def message(world: World) -> str:
    found = world.condition("ResultsSealed").get("message", "")
    assert "\n" not in found
    return str(found)


def verified(root: Path, uid: str, public: str, *words: str, code: int = 0) -> str:
    """Check a run's files as somebody does who was handed them, and return what is printed."""
    (root / "public.pem").write_text(public, encoding="ascii")
    folder = handed_on(root / "volume", uid, root / "handed-on")
    flags = words or ("--key", str(root / "public.pem"))
    done = CliRunner().invoke(app, ["verify", str(folder), *flags])
    assert done.exit_code == code, done.output
    return done.output


def is_signed(root: Path, uid: str) -> bool:
    file = root / "volume" / run_folder(uid) / "statement.dsse.json"
    return bool(json.loads(file.read_bytes())["signatures"])


def test_the_service_signs_and_nobody_needs_it_to_check(
    tmp_path: Path, port: int, key: ec.EllipticCurvePrivateKey
) -> None:
    with service(tmp_path / "kms", port, key), operator(tmp_path, public_pem(key)) as world:
        uid = run_to_end(world, "nightly")
        assert message(world) == ""

    verified(tmp_path, uid, public_pem(key))


def test_a_record_that_was_changed_is_found(
    tmp_path: Path, port: int, key: ec.EllipticCurvePrivateKey
) -> None:
    with service(tmp_path / "kms", port, key), operator(tmp_path, public_pem(key)) as world:
        uid = run_to_end(world, "nightly")
    records = tmp_path / "volume" / run_folder(uid) / "candidates.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"passed": true', b'"passed": false', 1))

    said = verified(tmp_path, uid, public_pem(key), code=1)
    assert "candidates.jsonl, line 1, task 0, attempt 1: is not the record that was written" in said


def test_a_service_that_comes_back_signs(
    tmp_path: Path,
    port: int,
    key: ec.EllipticCurvePrivateKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as started, operator(tmp_path, public_pem(key)) as world:

        def pauses() -> Iterator[float]:
            yield 0.0
            started.enter_context(service(tmp_path / "kms", port, key))
            yield 0.0

        monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", pauses())
        uid = run_to_end(world, "nightly")
        assert message(world) == ""
    verified(tmp_path, uid, public_pem(key))


def assert_unsigned(world: World, root: Path, uid: str, want: str) -> None:
    """The run has ended with all its results, and one line says why they are not signed."""
    assert world.condition()["reason"] == "Completed"
    assert message(world).startswith(f"{UNSIGNED} {want}")
    assert not is_signed(root, uid)
    verified(root, uid, OPERATOR.public.decode(), "--unsigned")


def test_a_service_that_is_gone_at_the_end_loses_nothing(
    tmp_path: Path, port: int, key: ec.EllipticCurvePrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", (0.0, 0.0))
    with operator(tmp_path, public_pem(key)) as world:
        with service(tmp_path / "kms", port, key):
            uid = world.apply("nightly", isolation={"require": "Declared"}, runId="smoke")
        world.work(uid)
        want = f"{URI} did not sign: EndpointConnectionError: Could not connect to the endpoint"
        assert_unsigned(world, tmp_path, uid, want)


def test_a_service_that_hangs_is_not_waited_for(
    tmp_path: Path, port: int, key: ec.EllipticCurvePrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", ())
    monkeypatch.setattr(results, "SIGN_SECONDS", 1.0)
    with (
        service(tmp_path / "kms", port, key) as server,
        operator(tmp_path, public_pem(key)) as world,
    ):
        server.send_signal(signal.SIGSTOP)
        try:
            uid = run_to_end(world, "nightly")
        finally:
            server.send_signal(signal.SIGCONT)
        assert_unsigned(world, tmp_path, uid, f"{URI} did not sign: no answer within 1 seconds")


WRONG = {
    "a key that is not there": ("awskms:alias/absent", "did not sign: NotFoundException: "),
    "another key": (URI, "did not sign: the service signs with another key than the public one"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_key_is_said(
    tmp_path: Path,
    port: int,
    key: ec.EllipticCurvePrivateKey,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", ())
    uri, want = WRONG[case]
    public = public_pem(key if uri != URI else ec.generate_private_key(ec.SECP256R1()))
    with service(tmp_path / "kms", port, key), operator(tmp_path, public, uri) as world:
        uid = run_to_end(world, "nightly")
        assert_unsigned(world, tmp_path, uid, f"{uri} {want}")


def test_a_kind_of_key_that_the_service_does_not_have(tmp_path: Path, port: int) -> None:
    with operator(tmp_path, OPERATOR.public.decode()) as world:
        uid = run_to_end(world, "nightly")
        want = f"{URI} of settings.signing is of a kind that its service does not sign with: "
        assert_unsigned(world, tmp_path, uid, want)
    assert port
