"""kopf handlers: process life cycle, one event handler per kind (design 2.4)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import kopf

from securebench.clock import backoff
from securebench.cluster.port import WATCH_CLIENT_SECONDS, WATCH_SERVER_SECONDS, Cluster
from securebench.controller.health import note_loops
from securebench.controller.lifecycle import Supervisor
from securebench.controller.process import (
    configure_logs,
    end_process,
    make_context,
    run_when_leader,
)
from securebench.controller.removal import RetentionSweeper
from securebench.controller.settings import Settings, load_settings
from securebench.controller.suite_loop import SuiteSupervisor
from securebench.controller.suite_store import sweep_orphans
from securebench.controller.volume.lead import VolumeLead
from securebench.controller.volume.results import prepare_published
from securebench.controller.volume_calls import bulk_on_volume
from securebench.names import GROUP
from securebench.run.api.field_types import PLURAL, VERSION
from securebench.suite.api import PLURAL as SUITES

logger = logging.getLogger(__name__)


RETRY_SECONDS = 1.0
RETRY_LIMIT_SECONDS = 30.0
"""Back-off of kopf's requests that the API server refuses or does not answer; doubled each time up
to the limit. By itself kopf gives up after a minute, and the operator ends."""

LOGIN_SECONDS = 5.0
"""Between two times that kopf gets credentials; those that were refused may be valid a moment later
(a token that is rotated, an authenticator that is away)."""

CREDENTIALS_SECONDS = 600.0
"""Interval at which the token is reread; the kubelet rotates its file well before it expires."""


class EndlessRetries:
    """The pauses between tries of one request, without an end; each request begins anew."""

    def __iter__(self) -> Iterator[float]:
        """Yield seconds."""
        return (backoff(RETRY_SECONDS, RETRY_LIMIT_SECONDS, tries) for tries in count(1))


class Operator:
    """One operator process while it leads.

    Args:
        lead: What lets it write to the volume.
    """

    def __init__(self, settings: Settings, cluster: Cluster, lead: VolumeLead) -> None:
        self._settings = settings
        self._cluster = cluster
        self._lead = lead
        self._supervisor: Supervisor | None = None
        self._suites: SuiteSupervisor | None = None
        self._retention: RetentionSweeper | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._next_login = 0.0

    def registry(self) -> kopf.OperatorRegistry:
        """Return kopf's registry with the handlers of this operator."""
        registry = kopf.OperatorRegistry()
        kopf.on.startup(registry=registry)(self.startup)
        kopf.on.cleanup(registry=registry)(self.cleanup)
        kopf.on.login(registry=registry)(self.login)
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(self.event)
        kopf.on.event(GROUP, VERSION, SUITES, registry=registry)(self.suite_event)
        return registry

    async def startup(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        """Configure kopf and build the context."""
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.posting.enabled = False
        settings.watching.server_timeout = WATCH_SERVER_SECONDS
        settings.watching.client_timeout = WATCH_CLIENT_SECONDS
        settings.networking.error_backoffs = EndlessRetries()
        context = await make_context(self._settings, os.environ, self._cluster, self._lead)
        try:
            await bulk_on_volume(prepare_published, self._settings.data_root)
        except OSError as error:
            logger.warning("viewers get no results: %s", error)
        self._supervisor = Supervisor(context)
        self._suites = SuiteSupervisor(context)
        self._retention = RetentionSweeper(context)
        work = (
            note_loops(self._supervisor, self._suites),
            self._retention.run(),
            sweep_orphans(context),
        )
        self._tasks = [asyncio.create_task(each) for each in work]
        for task in self._tasks:
            task.add_done_callback(end_process)

    async def cleanup(self, **_: Any) -> None:
        """Stop; Pods in the cluster keep running."""
        for task in self._tasks:
            task.cancel()
        for supervisor in (self._suites, self._supervisor):
            if supervisor is not None:
                await supervisor.close()

    async def login(self, **kwargs: Any) -> kopf.ConnectionInfo | None:
        """Use the Pod's service account, or a kubeconfig outside of a cluster.

        Refused credentials come back with another expiration, else kopf would take none of them
        again and end the operator.
        """
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next_login - loop.time())
        self._next_login = loop.time() + LOGIN_SECONDS
        found = _service_account(kwargs) or kopf.login_with_kubeconfig(**kwargs)
        expiration = datetime.now(UTC) + timedelta(seconds=CREDENTIALS_SECONDS)
        return found and dataclasses.replace(found, expiration=expiration)

    async def event(self, type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002
        """Pass an event of a BenchmarkRun to run loops, suites and retention."""
        if self._supervisor and self._suites and self._retention:
            for observe in (
                self._supervisor.observe,
                self._suites.observe_run,
                self._retention.observe,
            ):
                observe(type, dict(body))

    async def suite_event(self, type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002
        """Hand every event of a BenchmarkSuite to its loop."""
        if self._suites is not None:
            self._suites.observe(type, dict(body))


def _service_account(kwargs: dict[str, Any]) -> kopf.ConnectionInfo | None:
    account = kopf.login_with_service_account(**kwargs)
    if account is None:
        return None
    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    place = f"[{host}]" if ":" in host else host
    return dataclasses.replace(account, server=f"https://{place}:{port}")


def run_operator() -> None:
    """Run the operator until it gets a signal to stop.

    Raises:
        ConfigError: The settings do not hold.
        StorageError: Another operator has begun on the volume.
    """
    settings = load_settings(os.environ)
    configure_logs(settings.log_format)
    gc.enable()  # the command line disables it for the imports
    gc.freeze()  # a hundred thousand objects of modules, which no collection has to look at again

    async def work(cluster: Cluster, lead: VolumeLead) -> None:
        operator = Operator(settings, cluster, lead)
        await kopf.operator(registry=operator.registry(), namespaces=[settings.namespace])

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run_when_leader(settings, work))
