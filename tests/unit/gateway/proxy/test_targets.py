"""Names and targets: one canonical form before every compare (A-130, A-135, A-136)."""

import pytest

from securebench.agents.providers.endpoint import is_listed
from securebench.gateway.decisions import Cause, RefusedError
from securebench.gateway.targets import (
    Target,
    canonical_host,
    connect_target,
    host_target,
    url_target,
)

DOMAINS = ("docs.dev", "a.b.example")

LISTED = {
    "docs.dev": True,
    "api.docs.dev": True,
    "a.b.c.docs.dev": True,
    "xdocs.dev": False,
    "mydocs.dev": False,
    "docs.dev.evil.com": False,
    "dev": False,
    "docs": False,
    "s.dev": False,
    "docs-dev": False,
    "a.b.example": True,
    "x.a.b.example": True,
    "b.example": False,
    "a-b.example": False,
    "": False,
}


@pytest.mark.parametrize(("host", "want"), LISTED.items())
def test_whole_labels_are_compared(host, want):
    assert is_listed(host, DOMAINS) is want


def test_nothing_is_listed_without_domains():
    assert not is_listed("docs.dev", ())


HOSTS = {
    "docs.dev": "docs.dev",
    "DOCS.Dev": "docs.dev",
    "docs.dev.": "docs.dev",
    "docs.dev..": None,
    ".docs.dev": None,
    "docs..dev": None,
    "xn--bcher-kva.example": "xn--bcher-kva.example",
    "bücher.example": None,
    "docs.dev\u212a": None,
    "docs dev": None,
    "docs.dev\x00": None,
    "docs.dev\n": None,
    "docs%2edev": None,
    "-docs.dev": None,
    "docs-.dev": None,
    "a_b.dev": None,
    "a" * 63 + ".dev": "a" * 63 + ".dev",
    "a" * 64 + ".dev": None,
    "a." * 126 + "a": "a." * 126 + "a",
    "a." * 127 + "a": None,
    "": None,
    ".": None,
}


@pytest.mark.parametrize(("text", "want"), HOSTS.items())
def test_a_name_has_one_form(text, want):
    assert canonical_host(text) == want


CONNECT = {
    "docs.dev:443": Target("docs.dev", 443),
    "docs.dev": Target("docs.dev", 443),
    "DOCS.dev.:80": Target("docs.dev", 80),
    "docs.dev:00443": Target("docs.dev", 443),
    "docs.dev:": 400,
    "docs.dev:https": 400,
    "docs.dev:0": 400,
    "docs.dev:-1": 400,
    "docs.dev:+443": 400,
    "docs.dev: 443": 400,
    "docs.dev:65536": 400,
    "docs.dev:4_43": 400,
    "docs.dev:٤٤٣": 400,
    "docs.dev:443:443": 400,
    "docs.dev:22": 403,
    "docs.dev:65535": 403,
    "user@docs.dev:443": 400,
    "docs.dev@evil.example:443": 400,
    "docs.dev/": 400,
    "docs.dev\\@evil.example": 400,
    "docs.dev%00.evil.example": 400,
    "docs.dev\x00.evil.example": 400,
    "docs.dev.:443.": 400,
    " docs.dev:443": 400,
    "docs.dev\t:443": 400,
    "docs。dev:443": 400,
    "http://docs.dev": 400,
    "": 400,
    ":443": 400,
    "*.docs.dev:443": 400,
    "192.0.2.1:443": 403,
    "192.0.2.1": 403,
    "192.0.2.1.:443": 403,
    "[2001:db8::1]:443": 403,
    "[2001:db8::1]": 403,
    "[fe80::1%eth0]:443": 403,
    "[fe80::1%25eth0]:443": 403,
    "[::ffff:127.0.0.1]:443": 403,
    "[127.0.0.1]:443": 403,
    "2001:db8::1": 403,
    "::1": 403,
    "2130706433:443": 403,
    "0x7f000001:443": 403,
    "127.1:443": 403,
    "0177.0.0.1:443": 403,
    "127.0.0.0x1:443": 403,
    "docs.dev.0x:443": 403,
    "192.0.2.1:x": 400,
    "[2001:db8::1:443": 400,
    "[2001:db8::1]443": 400,
    "[docs.dev]:443": 400,
    "[]:443": 400,
    "2001:db8::1]:443": 400,
    "[2001:db8::1]:0": 400,
}


@pytest.mark.parametrize(("text", "want"), CONNECT.items())
def test_the_target_of_a_connect(text, want):
    assert result(connect_target, text) == want


URLS = {
    "http://docs.dev/a?b=c": ("docs.dev", 80, "/a?b=c"),
    "HTTP://Docs.Dev": ("docs.dev", 80, "/"),
    "http://docs.dev:443/": ("docs.dev", 443, "/"),
    "http://docs.dev?q": ("docs.dev", 80, "/?q"),
    "http://docs.dev?q=/x": ("docs.dev", 80, "/?q=/x"),
    "http://docs.dev//x": ("docs.dev", 80, "//x"),
    "http://docs.dev./x": ("docs.dev", 80, "/x"),
    "https://docs.dev/": 400,
    "ftp://docs.dev/": 400,
    "/path": 400,
    "docs.dev/path": 400,
    "http:/docs.dev": 400,
    "http:///x": 400,
    "http://": 400,
    "*": 400,
    "http://user@docs.dev/": 400,
    "http://user:443@docs.dev/": 400,
    "http://docs.dev#@evil.example/": 400,
    "http://docs.dev/#x": 400,
    "http://docs.dev\\evil.example/": 400,
    "http://docs.dev/a b": 400,
    "http://docs.dev/\r\nX: y": 400,
    "http://docs.dev/\x7f": 400,
    "http://docs.dev/é": 400,
    "http://docs.dev:8080/": 403,
    "http://169.254.169.254/": 403,
    "http://[::1]/": 403,
    "http://[::1/": 400,
}


@pytest.mark.parametrize(("text", "want"), URLS.items())
def test_the_target_of_a_url(text, want):
    found = result(url_target, text)
    assert (found if isinstance(found, int) else (*found.target, found.path)) == want


def test_a_host_field_has_the_port_of_the_url():
    assert host_target("docs.dev", 443) == Target("docs.dev", 443)
    assert host_target("docs.dev:80", 443) == Target("docs.dev", 80)


@pytest.mark.parametrize(
    ("text", "want"),
    [("x y", Cause.BAD_REQUEST), ("1.2.3.4", Cause.LITERAL), ("docs.dev:1", Cause.PORT)],
)
def test_a_refusal_says_why(text, want):
    with pytest.raises(RefusedError) as caught:
        connect_target(text)
    assert caught.value.cause is want


def result(parse, text):
    try:
        return parse(text)
    except RefusedError as error:
        return error.status
