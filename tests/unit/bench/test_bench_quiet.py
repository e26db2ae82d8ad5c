import pytest

from bench.product import samples
from bench.quiet import rested, sandboxes_left

METRICS = """\
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="remove_container"} 776
kubelet_runtime_operations_total{operation_type="remove_podsandbox"} 435
kubelet_runtime_operations_total{operation_type="run_podsandbox"} 469
kubelet_running_pods 2
"""


def test_sandboxes_without_a_pod():
    assert sandboxes_left(samples(METRICS)) == 32


def test_a_kubelet_that_has_removed_none():
    fresh = 'kubelet_runtime_operations_total{operation_type="run_podsandbox"} 3'
    assert sandboxes_left(samples(f"{fresh}\nkubelet_running_pods 2\n")) == 1


async def test_waits_until_none_is_left():
    seen = [3.0, 1.0, 0.0]

    assert await rested(lambda: seen.pop(0), step=0)

    assert seen == []


@pytest.mark.parametrize("left", [1.0, 40.0])
async def test_says_that_some_stay(left):
    assert not await rested(lambda: left, longest=0, step=0)
