"""Keeps the values that a tester forwards to an agent out of what is kept of its launches.

They are in memory only.
"""

from __future__ import annotations

import base64
import contextlib
from dataclasses import replace

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.capture.secret_values import SecretMatcher
from securebench.controller.volume.store import RunStore
from securebench.files.durable import replace_file
from securebench.json_values import object_at
from securebench.protocol.extraction import STREAMS
from securebench.run.layout import PRODUCER_NAME, VERIFICATION_NAME
from securebench.run.plan.model import HarnessPlan, LaunchKey, Role
from securebench.run.state.attempts import CommandReport

FOLDERS = {Role.HARNESS: PRODUCER_NAME, Role.VERIFIER: VERIFICATION_NAME}


class ExposedValues:
    """The values that enter a run's harness Pods, as far as this process has seen them.

    A Pod resolves them when it starts, so they are read before a harness Pod is created and before
    its output is kept: a value that was replaced in between stays masked, and so does the new one.

    Args:
        cluster: The run's namespace.
        harness: Names the Secret and its keys; without them nothing is read.
    """

    def __init__(self, cluster: Cluster, harness: HarnessPlan) -> None:
        self._cluster = cluster
        self._secret = harness.secret
        self._names = harness.env
        self._seen: set[bytes] = set()
        self.matcher = SecretMatcher()

    async def refresh(self) -> None:
        """Read the Secret again.

        Where it is gone and none of its values was seen, as after a restart, everything is masked:
        a Pod that still runs may print them.

        Raises:
            ClusterError: The API server did not answer.
        """
        if not self._names or not self._secret:
            return
        secret = await self._cluster.get(ObjectKind.SECRET, self._secret)
        data = object_at(secret, "data") if secret is not None else {}
        values = {base64.b64decode(str(data[name])) for name in self._names if name in data}
        if secret is not None and values <= self._seen:
            return
        self._seen |= values
        is_unknown = secret is None and not self._seen
        self.matcher = SecretMatcher(self._seen, hides_all=is_unknown)


def hide_values(store: RunStore, launch: LaunchKey, values: SecretMatcher) -> None:
    """Mask the values in the captured streams of a launch. Blocks.

    The candidate stays as it is: what is graded is what the agent handed in.

    Args:
        store: The run's folder.
        launch: Its courier has ended.
        values: What to look for.

    Raises:
        OSError: The volume did not do what was asked.
    """
    if not values:
        return
    folder = store.launch_folder(launch) / FOLDERS[launch.role]
    for name in STREAMS:
        with contextlib.suppress(FileNotFoundError):
            content = (folder / name).read_bytes()
            hidden = values.without(content)
            if hidden != content:
                replace_file(folder / name, hidden)


def without_values(report: CommandReport, values: SecretMatcher) -> CommandReport:
    """Fill the values up in what supervise and git said in a harness Pod.

    Args:
        report: As its supervise wrote it.
        values: What to look for.
    """
    report = replace(report, error=values.without_text(report.error))
    if report.diff is None:
        return report
    diff = replace(report.diff, stderr=values.without_text(report.diff.stderr))
    return replace(report, diff=diff)
