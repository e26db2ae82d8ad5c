"""Values are found in every disguise, at every alignment, and nowhere else."""

import base64
import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from urllib.parse import quote, quote_plus

import pytest

from securebench.audit import search
from securebench.audit.search import HiddenValue, find, find_plain, strings

SECRET = b"the vault opens at half past nine, with \xc3\xa9lan"
VALUE = HiddenValue("eval.tests.code", SECRET)
ANSWER = HiddenValue("eval.answer", SECRET, is_answer=True)


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", content)
    return stream.getvalue()


def wrapped(content: bytes) -> bytes:
    return b"\n".join(content[i : i + 20] for i in range(0, len(content), 20))


def reverse(content: bytes) -> bytes:
    return content.decode()[::-1].encode()


DISGUISES = {
    "plain": (SECRET, "plain"),
    "reversed": (reverse(SECRET), "reversed"),
    "reversed bytes of no text": (b"\xff" + SECRET[::-1], "reversed"),
    "base64": (base64.b64encode(SECRET), "base64"),
    "base64, one byte before it": (base64.b64encode(b"x" + SECRET), "base64"),
    "base64, two bytes before it": (base64.b64encode(b"xy" + SECRET), "base64"),
    "base64 behind a word": (b"answer" + base64.b64encode(SECRET), "base64"),
    "base64 for URLs": (base64.urlsafe_b64encode(b"\xff\xfe\xfb" + SECRET), "base64"),
    "base64 in lines": (wrapped(base64.b64encode(SECRET)), "base64"),
    "base64 without padding": (base64.b64encode(SECRET + b"x").rstrip(b"="), "base64"),
    "hexadecimal": (SECRET.hex().encode(), "hexadecimal"),
    "hexadecimal, upper case": (SECRET.hex().upper().encode(), "hexadecimal"),
    "hexadecimal behind a digit": (b"7" + SECRET.hex().encode(), "hexadecimal"),
    "hexadecimal with signs": (SECRET.hex(":").encode(), "hexadecimal"),
    "escapes": ("".join(f"\\x{byte:02x}" for byte in SECRET).encode(), "hexadecimal"),
    "URL": (quote(SECRET, safe="").encode(), "URL-encoded"),
    "URL form": (quote_plus(SECRET).encode(), "URL-encoded"),
    "gzip": (gzip.compress(SECRET), "compressed"),
    "zlib": (zlib.compress(SECRET, 9), "compressed"),
    "bzip2": (bz2.compress(SECRET), "compressed"),
    "xz": (lzma.compress(SECRET * 3), "compressed"),
    "zip": (zipped(SECRET * 3), "compressed"),
    "base64 of gzip": (base64.b64encode(gzip.compress(SECRET)), "base64 of compressed"),
    "hexadecimal of base64": (base64.b64encode(SECRET).hex().encode(), "hexadecimal of base64"),
    "reversed base64": (base64.b64encode(SECRET)[::-1], "reversed of base64"),
}


@pytest.mark.parametrize("case", DISGUISES)
def test_value_is_found_in_its_disguise(case):
    content, want = DISGUISES[case]

    found = list(find([VALUE], b"some words before; " + content + b" ... and behind"))

    assert [(hit.value, hit.how) for hit in found] == [(VALUE, want)]


@pytest.mark.parametrize("case", DISGUISES)
def test_an_answer_counts_where_it_is_hidden_on_purpose(case):
    content, want = DISGUISES[case]

    found = [hit.how for hit in find([ANSWER], b"words; " + content + b" words")]

    assert found == ([] if want in {"plain", "compressed"} else [want])


def test_two_disguises_are_taken_off_and_no_third():
    twice = base64.b64encode(base64.b64encode(SECRET))

    assert [hit.how for hit in find([VALUE], twice)] == ["base64 of base64"]
    assert list(find([VALUE], base64.b64encode(twice))) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"the vault opens at half past ten",
        b"A long and ordinary text, with 100%25 of nothing. " * 40,
        gzip.compress(SECRET, mtime=0)[:20],
        b"PK\x03\x04",
        b"x\x9c not a stream",
        bytes(range(256)) * 4,
    ],
)
def test_other_content_has_no_hit(content):
    assert list(find([VALUE, ANSWER], content)) == []


def test_the_plain_part_of_a_text_with_escapes_is_not_url_encoded():
    assert list(find([ANSWER], b"see a%20b: " + SECRET)) == []


def test_a_stream_is_read_up_to_its_bound(monkeypatch):
    monkeypatch.setattr(search, "MAX_STREAM_BYTES", 1000)
    bomb = gzip.compress(bytes(10**6) + SECRET)

    assert list(find([VALUE], bomb)) == []
    streams = [v.content for v in search.views(bomb) if v.forms == (search.SearchForm.COMPRESSED,)]
    assert [len(stream) for stream in streams] == [1000]


def test_many_streams_share_the_bound(monkeypatch):
    monkeypatch.setattr(search, "MAX_STREAM_BYTES", 1000)
    streams = gzip.compress(bytes(700)) * 5

    (joined,) = [
        v.content for v in search.views(streams) if v.forms == (search.SearchForm.COMPRESSED,)
    ]

    assert joined == bytes(700) + b"\0" + bytes(300)


def test_places_that_look_like_streams_are_bounded(monkeypatch):
    monkeypatch.setattr(search, "MAX_STREAMS", 3)
    content = b"\x1f\x8b\x08 " * 3 + gzip.compress(SECRET)

    assert list(find([VALUE], content)) == []


def test_plain_search_looks_at_plain_values_only():
    hidden = base64.b64encode(SECRET)

    assert [hit.how for hit in find_plain([VALUE], SECRET)] == ["plain"]
    assert list(find_plain([VALUE], hidden)) == []


def test_strings_are_those_of_keys_and_values():
    value = {"a": ["b", {"c": 1, "d": None}], "e": "f"}

    assert list(strings(value)) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    "piece", [b"a", b"4f", b"%", b"%4", b"x\x9c", b"\x1f\x8b\x08", b"PK\x03\x04", b"0x", b"a+"]
)
def test_decoding_takes_linear_time(piece):
    content = piece * (256 * 1024 // len(piece))

    assert list(find([VALUE], content)) == []
