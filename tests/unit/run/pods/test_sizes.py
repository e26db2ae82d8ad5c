"""What the API says of default resources is what containers get."""

from __future__ import annotations

import pytest

from securebench.run.api.models import DEFAULT_REQUESTS, Limits, Requests
from securebench.run.pods.volumes import CPU, DEFAULT_LIMITS, MEMORY


@pytest.mark.parametrize(
    ("model", "name", "default"),
    [
        (Limits, CPU, DEFAULT_LIMITS[CPU]),
        (Requests, CPU, DEFAULT_REQUESTS[CPU]),
        (Requests, MEMORY, DEFAULT_REQUESTS[MEMORY]),
    ],
)
def test_defaults_are_documented(model: type[Limits | Requests], name: str, default: str) -> None:
    assert f"by default {default}, or" in str(model.model_fields[name].description)


def test_the_default_limit_of_memory_is_that_of_the_api() -> None:
    assert Limits().memory == DEFAULT_LIMITS[MEMORY]
