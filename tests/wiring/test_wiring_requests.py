"""What a run asks of the API server: few requests per task (decisions 0058 and 0061)."""

from __future__ import annotations

from collections import Counter

import pytest

from securebench.cluster.port import ObjectKind
from securebench.protocol.supervise import ProbeTarget
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import Role
from support.build import pod_status, probe_done, question, running, write_pack
from support.operator_world import World, opened

POD_SECONDS = 4.5
RECHECK_SECONDS = 0.25
LONGEST_SECONDS = 3000
OPEN = {"dns": "open"}
CLOSED = {"dns": "closed"}


class Node:
    """Lets Pods run, one a moment after the other as on a node, and counts a run's requests."""

    def __init__(self, world: World, tasks: int, parallelism: int) -> None:
        self.world = world
        self.cluster = world.cluster
        self.ends: dict[str, float] = {}
        write_pack(world.root / "packs/many", [question(f"q{number}") for number in range(tasks)])
        self.uid = world.apply(
            pack={"volume": {"path": "many"}},
            parallelism=parallelism,
            isolation={"require": "Verified"},
        )

    def run(self) -> Counter[str]:
        """Run to the end; return the operator's requests by verb and kind."""
        began = self.world.clock.now()
        while self.world.supervisor.active:
            assert self.world.clock.now() < began + LONGEST_SECONDS
            for name in sorted(self.cluster.objects(ObjectKind.POD)):
                self._end(name)
            self.world.wait(RECHECK_SECONDS)
        assert self.world.condition()["reason"] == "Completed"
        counts = Counter(
            {f"{verb} {kind}": count for (verb, kind), count in self.cluster.requests.items()}
        )
        counts[f"create {ObjectKind.BENCHMARK_RUN}"] -= 1  # the tester's
        return +counts

    def _end(self, name: str) -> None:
        view = pod_view(self.cluster.objects(ObjectKind.POD)[name])
        assert view is not None
        now = self.world.clock.now()
        ends_at = self.ends.setdefault(name, now + POD_SECONDS + len(self.ends) % 4)
        if view.phase == "Pending":
            started = [running(each) for each in (view.role.value, "courier")]
            self.cluster.set_pod_status(name, pod_status("Running", *started))
        if view.is_terminal or now < ends_at:
            return
        if view.launch is not None:
            status = self.world.ending(self.uid, view.launch)
        else:
            status = probe_done(OPEN if view.role is Role.CONTROL else CLOSED)
        self.cluster.set_pod_status(name, status)


MOST_PER_TASK = {(32, 8): 2.3, (200, 8): 1.7, (200, 24): 1.4}
"""By tasks and tasks in flight."""

MOST_VERIFIERS = {(32, 8): 6, (200, 8): 35, (200, 24): 11}
"""By tasks and tasks in flight."""


@pytest.mark.parametrize(("tasks", "parallelism"), MOST_PER_TASK)
def test_requests_per_task(tmp_path, tasks, parallelism):
    targets = [ProbeTarget("dns", "10.96.0.10", 53, "udp")]
    with opened(World, tmp_path, targets=targets) as world:
        counts = Node(world, tasks, parallelism).run()
    assert counts["create Pod"] - tasks - 2 <= MOST_VERIFIERS[tasks, parallelism]
    assert counts["delete Pod"] + counts["delete_collection Pod"] <= 0.25 * tasks
    assert counts["patch_status BenchmarkRun"] <= 0.35 * tasks
    assert counts.total() <= MOST_PER_TASK[tasks, parallelism] * tasks, counts
