import pytest

from securebench.controller.ledger.signing import signing_key
from support.build import settings_of
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
