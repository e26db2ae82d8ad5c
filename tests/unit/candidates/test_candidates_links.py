from __future__ import annotations

import pytest

from securebench.candidates import links
from securebench.candidates.extraction import Problem
from securebench.candidates.untrusted import RefusedError


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"l": "a/b"}, set(), id="inside"),
        pytest.param({"a/l": "../b"}, set(), id="a step up that stays inside"),
        pytest.param({"a/l": "./../b//c/"}, set(), id="odd but inside"),
        pytest.param({"l": "missing"}, set(), id="dangling"),
        pytest.param({"l": "."}, set(), id="the root itself"),
        pytest.param({"l": "/etc/passwd"}, {"l"}, id="absolute"),
        pytest.param({"l": ".."}, {"l"}, id="parent"),
        pytest.param({"a/l": "../../x"}, {"a/l"}, id="out of a folder"),
        pytest.param({"l": "a/../../x"}, {"l"}, id="out after a step down"),
        pytest.param({"l": "securebench/evaluation_inputs/x"}, {"l"}, id="into our folder"),
        pytest.param({"l": "securebench2/x"}, set(), id="another folder"),
        pytest.param({"d": ".", "l": "d/securebench/x"}, {"l"}, id="into ours by a chain"),
        pytest.param(
            {"a/b/up": "../..", "a/b/l": "up/../x"}, {"a/b/l"}, id="out by a harmless-looking chain"
        ),
        pytest.param({"out": "/", "l": "out/etc"}, {"out", "l"}, id="through one that is dropped"),
        pytest.param({"l": "l"}, {"l"}, id="itself"),
        pytest.param({"a": "b", "b": "a"}, {"a", "b"}, id="a loop"),
        pytest.param({"a": "b/x", "b": "a/x"}, {"a", "b"}, id="a growing loop"),
    ],
)
def test_links_that_lead_out(given: dict[str, str], want: set[str]) -> None:
    assert links.escaping(given) == want


def test_a_long_honest_chain_is_kept_up_to_the_kernel_s_bound() -> None:
    chain = {f"l{number}": f"l{number + 1}" for number in range(60)}
    assert links.escaping(chain) == {f"l{number}" for number in range(20)}


def test_work_on_tangled_links_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_STEPS", 1000)
    with pytest.raises(RefusedError) as refused:
        links.escaping({f"l{number}": "a/" * 100 for number in range(100)})
    assert refused.value.problem is Problem.TOO_LARGE
