"""What a cluster shows while Flux applies a commit: the objects in all their states."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes import client, config

from securebench.names import GROUP, SUITE_CELL_ANNOTATION
from securebench.run.api.field_types import PLURAL as RUNS
from securebench.run.api.field_types import VERSION
from securebench.suite.api import PLURAL as SUITES
from support.release import CommandError, Raw, condition

FLUX = ("kustomize.toolkit.fluxcd.io", "v1", "kustomizations")
NAME = "nightly"
"""Of the Kustomization and of the suite."""

SECONDS = 600
POLL_SECONDS = 0.3


class Applied(NamedTuple):
    """What was seen from a commit until Flux had made up its mind.

    Attributes:
        ready: Condition Ready of the Kustomization.
        suites: The suite in each state that was seen, the last one last.
        runs: The new runs in each state that was seen.
    """

    ready: Raw
    suites: list[Raw]
    runs: list[Raw]

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the new runs, in order."""
        cells = {
            run["metadata"]["name"]: run["metadata"]["annotations"][SUITE_CELL_ANNOTATION]
            for run in self.runs
        }
        return tuple(sorted(cells.values()))


class Watcher:
    """Watches the objects of one namespace.

    Args:
        namespace: The namespace.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._objects = client.CustomObjectsApi(config.new_client_from_config())
        self._known: set[str] = set()

    def until_applied(self, commit: str) -> Applied:
        """Return what was seen until Flux calls the objects of a commit healthy, or gives up.

        Raises:
            CommandError: Flux did neither.
        """
        deadline = time.monotonic() + SECONDS
        suites: dict[str, Raw] = {}
        runs: dict[str, Raw] = {}
        while True:
            flux = self._get(*FLUX)
            if suite := self._get(GROUP, VERSION, SUITES):
                suites.setdefault(suite["metadata"]["resourceVersion"], suite)
            for run in self._new_runs():
                runs.setdefault(run["metadata"]["resourceVersion"], run)
            if _is_decided(flux, commit):
                break
            if time.monotonic() > deadline:
                status = flux.get("status", "no status")
                raise CommandError(f"Flux is not done with {commit} after {SECONDS} s: {status}")
            time.sleep(POLL_SECONDS)
        self._known |= {run["metadata"]["uid"] for run in runs.values()}
        return Applied(condition(flux, "Ready"), [*suites.values()], [*runs.values()])

    def _get(self, group: str, version: str, plural: str) -> Raw:
        """Return an object; empty if it is not there."""
        try:
            found: Raw = self._objects.get_namespaced_custom_object(
                group, version, self._namespace, plural, NAME
            )
        except client.ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise
        return found

    def _new_runs(self) -> list[Any]:
        found = self._objects.list_namespaced_custom_object(GROUP, VERSION, self._namespace, RUNS)
        return [run for run in found["items"] if run["metadata"]["uid"] not in self._known]


def _is_decided(kustomization: Raw, commit: str) -> bool:
    """Whether Flux says of a commit that its objects are healthy, or that they are not."""
    status = kustomization.get("status", {})
    tried = status.get("lastAttemptedRevision", "").endswith(commit)
    return tried and condition(kustomization, "Ready")["status"] != "Unknown"
