"""No value of Retry-After that a provider sends stops a call's accounting."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from securebench.gateway.launches import MAX_RETRY_AFTER_SECONDS, retry_seconds

DATES = st.from_regex(
    r"[A-Z][a-z]{2}, [0-9]{1,3} (Jan|Dec) [0-9]{1,6} [0-9]{1,3}:[0-9]{2}:[0-9]{2} [+-]?[0-9]{0,22}",
    fullmatch=True,
)


@example("Thu, 01 Jan 1970 00:00:00 GMT", 1.0)  # a date in the past
@given(value=st.one_of(DATES, st.text()), now=st.floats(0, 1e11))
def test_a_pause_is_none_or_bounded(value: str, now: float) -> None:
    pause = retry_seconds(value, now)
    assert pause is None or 0 <= pause <= MAX_RETRY_AFTER_SECONDS
