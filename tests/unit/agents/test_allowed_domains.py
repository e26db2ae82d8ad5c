"""Domain entries (contract 11.1)."""

import pytest

from securebench.agents.providers.endpoint import normalize_domain, normalize_domains
from securebench.errors import ConfigError


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        (" Docs.Dev.. ", "docs.dev"),
        ("a-b.xn--p1ai", "a-b.xn--p1ai"),
        (f"{'a' * 63}.dev", f"{'a' * 63}.dev"),
        ("1.dev", "1.dev"),
    ],
)
def test_plain_names(entry, want):
    assert normalize_domain(entry) == want


@pytest.mark.parametrize(
    "entry",
    [
        "",
        " ",
        ".",
        "localhost",
        "dev",
        "x.localhost",
        "https://docs.dev",
        "docs.dev/path",
        "docs.dev:443",
        "*.docs.dev",
        "1.2.3.4",
        "1.2.3.4.",
        "127.1",
        "a.0x7f",
        "::1",
        "[::1]",
        "-a.dev",
        "a-.dev",
        "a..dev",
        ".docs.dev",
        "a_b.dev",
        "a b.dev",
        f"{'a' * 64}.dev",
        ".".join(["a" * 60] * 5),
        "doc\u212a.dev",
        "docs\u3002dev",
        "docs.dev\x00",
    ],
)
def test_everything_else_is_refused(entry):
    with pytest.raises(ConfigError, match="allowed_domains"):
        normalize_domain(entry)


def test_lists_keep_their_order_without_duplicates():
    assert normalize_domains(["b.dev", "A.dev", "B.dev."]) == ("b.dev", "a.dev")
    with pytest.raises(ConfigError, match="allowed_domains must be a list of strings"):
        normalize_domains(["b.dev", 1])
