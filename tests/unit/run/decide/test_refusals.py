import pytest

from securebench.run.decide.refusals import refused_again
from support.build import NOW

WORDS = "Pod a: pods is forbidden"


def pauses(limit, rest=0.0):
    """Refuse until there is no other try; return the pauses before the tries."""
    found, known, now = [], None, NOW
    while (known := refused_again(known, WORDS, now, limit)).again_at is not None:
        found.append(known.again_at - now)
        now = known.again_at + rest
    return found, known


LIMITS = {
    "at once": (0.0, []),
    "shorter than the first pause": (3.0, [3.0]),
    "in the middle of a pause": (40.0, [5.0, 10.0, 20.0, 5.0]),
    "ten minutes": (600.0, [5.0, 10.0, 20.0, 40.0, *[60.0] * 8, 45.0]),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_whole_time_is_used_and_no_more(name):
    limit, want = LIMITS[name]
    found, last = pauses(limit)
    assert found == want
    assert sum(found) == limit
    assert (last.tries, last.waited_seconds) == (len(want) + 1, limit)


def test_time_at_rest_does_not_count():
    assert pauses(600.0, rest=3600.0)[0] == pauses(600.0)[0]


def test_what_is_said():
    first = refused_again(None, WORDS, NOW, 600.0)
    assert first.message.startswith("Pod a: pods is forbidden; tried again for up to 600 seconds;")
    _, last = pauses(600.0)
    assert last.message.startswith("Pod a: pods is forbidden; mend the operator's rights, Pod")
    assert "\n" not in first.message + last.message
