"""Keeps the values that a tester forwards to an agent out of what is kept of its launches.

The values are read from their Secret when a run loop starts; they are in memory only.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from dataclasses import replace

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.capture.secret_values import SecretMatcher
from securebench.controller.volume.store import RunStore
from securebench.files.durable import replace_file
from securebench.protocol.extraction import STREAMS
from securebench.run.layout import PRODUCER_NAME, VERIFICATION_NAME
from securebench.run.plan.keys import LaunchKey, Role
from securebench.run.plan.model import HarnessPlan
from securebench.run.state.attempts import CommandReport

FOLDERS = {Role.HARNESS: PRODUCER_NAME, Role.VERIFIER: VERIFICATION_NAME}


async def exposed_values(cluster: Cluster, harness: HarnessPlan) -> SecretMatcher:
    """Read the values that enter a run's harness Pods.

    Args:
        cluster: The run's namespace.
        harness: Names the Secret and its keys; without them nothing is read.

    Raises:
        ClusterError: The API server did not answer.
    """
    if not harness.env or not harness.secret:
        return SecretMatcher()
    secret = await cluster.get(ObjectKind.SECRET, harness.secret)
    data = secret.get("data") if secret is not None else None
    known = data if isinstance(data, Mapping) else {}
    return SecretMatcher(
        base64.b64decode(str(known[name])) for name in harness.env if name in known
    )


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
