import hashlib
import re

import pytest

from securebench.digests import PATTERN, content_digest, json_digest, listing_digest


def sha(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_content():
    assert content_digest(b"x") == sha(b"x")


def test_a_listing_keeps_its_order():
    entries = [(b"b/\xff", "01"), (b"a", "link:02")]
    assert listing_digest(entries) == sha(b"b/\xff\00001\na\0link:02\n".replace(b"\000", b"\0"))
    assert listing_digest(reversed(entries)) != listing_digest(entries)
    assert listing_digest([]) == sha(b"")


def test_json_has_one_form():
    assert json_digest({"b": [1, None], "a": "\u00e9"}) == sha(b'{"a":"\\u00e9","b":[1,null]}')
    assert json_digest({"a": 1, "b": 2}) == json_digest({"b": 2, "a": 1})


def test_what_json_cannot_say_has_no_digest():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_digest({"a": float("nan")})


def test_every_digest_matches_the_pattern():
    for digest in (content_digest(b""), json_digest({}), listing_digest([])):
        assert re.fullmatch(PATTERN, digest)
