import pytest
from pydantic import ValidationError

from securebench.controller.sealing import signing_key
from securebench.controller.settings import Signing
from support.build import settings_of
from support.key_services import service
from support.sealed_runs import OPERATOR, SIGNING, place_key


def found(root, **signing):
    return signing_key(settings_of(root, signing=signing, signing_root=root / "signing"))


def test_no_key_is_wanted(tmp_path):
    assert found(tmp_path) == (None, "")
    assert found(tmp_path).id == ""


def test_the_key_is_read_each_time(tmp_path):
    assert found(tmp_path, **SIGNING).signer is None
    place_key(tmp_path / "signing")
    assert (found(tmp_path, **SIGNING).id, found(tmp_path, **SIGNING).problem) == (
        OPERATOR.key.keyid,
        "",
    )


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (None, "key key.pem of Secret securebench-signing is not there; create it"),
        (b"", "key key.pem of Secret securebench-signing holds no unencrypted private key"),
        (OPERATOR.public, "holds no unencrypted private key in PEM (PKCS 8); replace it"),
    ],
)
def test_a_key_that_cannot_be_used(tmp_path, content, want):
    (tmp_path / "signing").mkdir()
    if content is not None:
        (tmp_path / "signing" / "key.pem").write_bytes(content)
    key = found(tmp_path, **SIGNING)
    assert (key.signer, want in key.problem) == (None, True)


def test_a_key_that_cannot_be_read(tmp_path):
    (tmp_path / "signing" / "key.pem").mkdir(parents=True)
    assert "cannot be read: Is a directory" in found(tmp_path, **SIGNING).problem


# Keys that a service keeps


def in_service(uri, public=OPERATOR.public):
    return {"uri": uri, "public_key": public.decode()}


def test_the_key_of_a_service_is_known_without_asking_it(tmp_path):
    key = found(tmp_path, **in_service("test-kms:bench"))
    assert "test-kms" in key.problem
    with service() as calls:
        key = found(tmp_path, **in_service("test-kms:bench"))
        assert (key.id, key.problem, calls) == (OPERATOR.key.keyid, "", [])


@pytest.mark.parametrize(
    ("uri", "public", "want"),
    [
        ("nothing:of-the-kind", OPERATOR.public, "Unsupported private key scheme nothing"),
        ("hv:bench/1", OPERATOR.public, "needs a client that is not installed: "),
        ("hv:bench/1", OPERATOR.private, "holds no public key in PEM"),
        ("file2:/nowhere/at/all", OPERATOR.public, "Private key not found"),
    ],
)
def test_a_service_that_cannot_be_used(uri, public, want, tmp_path):
    key = found(tmp_path, **in_service(uri, public))
    assert key.signer is None
    assert key.problem.startswith(f"the key {uri} of settings.signing ")
    assert want in key.problem


@pytest.mark.parametrize(
    ("signing", "want"),
    [
        ({**SIGNING, **in_service("hv:bench/1")}, "two keys"),
        ({"uri": "hv:bench/1"}, "belong together"),
        ({"public_key": "x"}, "belong together"),
    ],
)
def test_settings_that_contradict_themselves(signing, want):
    with pytest.raises(ValidationError, match=want):
        Signing(**signing)
