"""The way out of a run: its gateway is made before the canary, kept up, and taken away at the end.

Names are deterministic, so the next process finds what this one made. A gateway Pod that ends is
replaced by one with the next number; the Service keeps its address.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace

from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.actuators.gateway_rules import gateway_rules
from securebench.controller.actuators.launches import RETRY_SECONDS, Launcher, create_or_find
from securebench.controller.actuators.pod_mirror import PodMirror
from securebench.controller.loop.wake import Wake
from securebench.controller.process.context import Context
from securebench.controller.volume.store import RunStore
from securebench.core.errors import (
    ClusterError,
    InvariantViolationError,
    PermanentClusterError,
    TransientClusterError,
)
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.gateway_codec import encode
from securebench.protocol.gateway_config import CONFIG_FILE, KEYS_FILE
from securebench.protocol.gateway_report import LAUNCHES
from securebench.run.decide.reconcile import Deletion
from securebench.run.layout import gateway_name, gateway_pod_name
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import pod_waiting
from securebench.run.plan.egress_plan import EgressPlan
from securebench.run.plan.model import Role, RunPlan
from securebench.run.pods.gateway_pod import gateway_config, gateway_pod, gateway_service

logger = logging.getLogger(__name__)

RESTART_SECONDS = 2.0
RESTART_LIMIT_SECONDS = 30.0
"""Pause before a gateway Pod that ended is replaced; doubled each time up to the limit. It is short
again after one that was ready for at least the limit."""

UNREADY_SECONDS = 30.0
"""A gateway that was ready and is not for so long is replaced: its node may be lost."""

STUCK_SECONDS = 60.0
"""A gateway that runs for so long and was never seen ready is replaced, too; an operator that
started again does not know whether it was."""

KEYS_SECONDS = 600.0
"""Between two looks at the cluster's signing keys, which may be rotated while a run lives."""

END_SECONDS = 10.0
"""What a gateway needs to end, with a margin; one on a node that is lost never says that it has."""


class GatewayKeeper:
    """Keeps the gateway of one run.

    Args:
        context: The operator's surroundings.
        plan: The run; it has an egress plan.
        store: Its folder.
        launcher: Creates and deletes its Pods.
        mirror: Shows its Pods.
    """

    def __init__(
        self,
        context: Context,
        plan: RunPlan,
        store: RunStore,
        launcher: Launcher,
        mirror: PodMirror,
    ) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._rules = gateway_rules(context.settings)
        self._start_seconds = float(context.settings.gateway.start_seconds)
        self._plan = plan
        self._uid = plan.identity.uid
        self._store = store
        self._launcher = launcher
        self._mirror = mirror
        self._tended_at = 0.0
        self._down_since: float | None = None
        self._next_at = 0.0
        self._last_failed = 0
        self._failures = 0
        self._ready_uid = ""
        self._ready_since = 0.0
        self._running_uid = ""
        self._running_since = 0.0
        self._replace_at = 0.0
        self._keys_at = 0.0
        self._keys = b""
        self.trouble = ""
        """Why the gateway is not ready, in one sentence; empty while it is."""
        self.failure = ""
        """Why there will be no gateway, in one sentence; the run has to end. Empty before that."""

    @property
    def egress(self) -> EgressPlan:
        """The run's egress plan, with the gateway's address once that is known."""
        if self._plan.egress is None:
            raise InvariantViolationError("a run without egress has no gateway", run=self._uid)
        return self._plan.egress

    @property
    def is_ready(self) -> bool:
        """Whether launches may begin."""
        views = self._views().values()
        return bool(self.egress.gateway) and any(map(_is_ready, views))

    @property
    def since(self) -> float:
        """When the latest gateway Pod was created, in seconds since the epoch; 0.0 without one.

        Launches are older than the gateway only where it was replaced while they ran.
        """
        return max((view.created_at for view in self._views().values()), default=0.0)

    def wake_at(self) -> float | None:
        """Return when to look again without an event, or None; it is later than the last pass."""
        if self.failure:
            return None
        if self._down_since is None:
            return self._keys_at
        tended_at = self._tended_at
        times = (
            self._next_at,
            self._replace_at,
            self._down_since + self._start_seconds,
            tended_at + UNREADY_SECONDS,
        )
        return min(at for at in times if at > tended_at)

    async def tend(self) -> None:
        """Do one pass: make what is missing, replace what ended, take away what was replaced.

        Raises:
            OSError: The volume did not do what was asked.
        """
        if self.failure:
            return
        now = self._tended_at = self._clock.now()
        try:
            await self._tend_pods(now)
        except TransientClusterError as error:
            self._hold_up(error.reason, self._clock.now())
            self._down_since = now
        except PermanentClusterError as error:
            self.failure = f"the run's gateway cannot be made: {error.reason}"
        self._give_up(now)

    async def close(self, wake: Wake) -> None:
        """Delete Pods and Service; the policies go with the run.

        Returns when the gateway has written its last lines down, or ``END_SECONDS`` later.

        Args:
            wake: Set when the mirror shows something new.

        Raises:
            ClusterError: The API server did not answer.
        """
        for view in self._views().values():
            await self._cluster.delete(ObjectKind.POD, view.name, uid=view.uid, grace_seconds=None)
        name = gateway_name(self._uid)
        await self._cluster.delete(ObjectKind.SERVICE, name, uid=None, grace_seconds=None)
        until = self._clock.now() + END_SECONDS
        while self._is_writing() and self._clock.now() < until:
            wake.clear()
            await wake.wait([until])

    def _is_writing(self) -> bool:
        return any(not view.is_terminal for view in self._views().values())

    async def _tend_pods(self, now: float) -> None:
        views = self._views()
        newest = max((number for number, view in views.items() if _is_ready(view)), default=0)
        if not newest:
            await self._bring_up(views, now)
            return
        ready = views[newest]
        if not self.egress.gateway:
            await self._make_surroundings()
        if ready.uid != self._ready_uid:
            self._ready_uid, self._ready_since = ready.uid, now
        self._down_since = None
        self.trouble = ""
        for view in views.values():
            if view is not ready and view.deleting_since is None:
                self._delete(view)
        await self._refresh_keys(now)

    async def _bring_up(self, views: dict[int, PodView], now: float) -> None:
        if self._down_since is None:
            self._down_since = now
            if now >= self._ready_since + RESTART_LIMIT_SECONDS:
                self._failures = 0
        newest = max(self._numbers(), default=0)
        view = views.get(newest)
        if view is not None and is_living(view):
            self.trouble = f"gateway Pod {view.name}: {pod_trouble(view, now)}"
            self._replace_at = self._patience(view, self._down_since, now)
            if now >= self._replace_at:
                self._delete(view)
            return
        if newest > self._last_failed:
            self._last_failed = newest
            self._failures += 1
            words = pod_trouble(view, now) if view is not None else "it disappeared"
            pause = min(RESTART_SECONDS * 2.0 ** (self._failures - 1), RESTART_LIMIT_SECONDS)
            self._hold_up(f"gateway Pod {gateway_pod_name(self._uid, newest)}: {words}", now, pause)
        if now >= self._next_at:
            await self._start(newest + 1)

    def _patience(self, view: PodView, down_since: float, now: float) -> float:
        """Return when a Pod is replaced that is not ready by then."""
        if view.uid == self._ready_uid:
            return down_since + UNREADY_SECONDS
        if not any(container.running for container in view.containers.values()):
            self._running_uid = ""
            return math.inf
        if view.uid != self._running_uid:
            self._running_uid, self._running_since = view.uid, now
        return self._running_since + STUCK_SECONDS

    async def _start(self, number: int) -> None:
        name = gateway_pod_name(self._uid, number)
        if not self._launcher.may_create(name):
            return
        await self._make_surroundings()

        async def manifest() -> Raw:
            return gateway_pod(self._plan, number, self._rules)

        self.trouble = self.trouble or "the gateway Pod is being created"
        self._launcher.create_named(name, manifest, self._mirror.saw)

    async def _make_surroundings(self) -> None:
        """Make everything that has to be there before the Pod."""
        manifest = gateway_service(self._plan)
        service = await create_or_find(self._cluster, ObjectKind.SERVICE, manifest, self._uid)
        self._plan = replace(self._plan, egress=replace(self.egress, gateway=_address(service)))
        config = encode(gateway_config(self._plan, self._rules))
        await asyncio.to_thread(self._write, CONFIG_FILE, config)
        self._keys = b""
        await self._write_keys()

    async def _refresh_keys(self, now: float) -> None:
        """Write the keys anew in time; a gateway that runs goes on with those that it has."""
        if now < self._keys_at:
            return
        try:
            await self._write_keys()
        except ClusterError as error:
            logger.warning("signing keys for the gateway of run %s: %s", self._uid, error)
            self._keys_at = now + UNREADY_SECONDS

    async def _write_keys(self) -> None:
        keys = await self._cluster.signing_keys()
        if keys != self._keys:
            await asyncio.to_thread(self._write, KEYS_FILE, keys)
        self._keys = keys
        self._keys_at = self._clock.now() + KEYS_SECONDS

    def _write(self, name: str, content: bytes) -> None:
        folder = self._store.gateway_folder
        make_folder(folder / LAUNCHES)
        replace_file(folder / name, content)

    def _hold_up(self, trouble: str, now: float, pause: float = RETRY_SECONDS) -> None:
        self.trouble, self._next_at = trouble, now + pause

    def _give_up(self, now: float) -> None:
        """End the waiting for a gateway in time; a quota may be full for as long as it likes."""
        if self._down_since is None:
            return
        if self._launcher.state.quota:
            self._down_since = now
        elif now >= self._down_since + self._start_seconds and not self.failure:
            seconds = f"{self._start_seconds:g}"
            self.failure = f"the run had no gateway for {seconds} seconds: {self.trouble}"

    def _delete(self, view: PodView) -> None:
        self._launcher.delete(Deletion(view.name, view.uid, at_once=True))

    def _views(self) -> dict[int, PodView]:
        return {
            number: view
            for view in self._mirror.pods.values()
            if view.role is Role.GATEWAY and (number := self._number(view.name))
        }

    def _numbers(self) -> set[int]:
        return {self._number(name) for name in (*self._mirror.pods, *self._mirror.vanished)}

    def _number(self, name: str) -> int:
        """Return the number of a gateway Pod, 0 for every other one."""
        number = name.removeprefix(f"{gateway_name(self._uid)}-")
        return int(number) if number != name and number.isdecimal() else 0


def is_living(view: PodView) -> bool:
    """Return whether a gateway Pod may still become ready."""
    return not view.is_terminal and view.deleting_since is None


def pod_trouble(view: PodView, now: float) -> str:
    """Return in a few words why a Pod is not ready, as the cluster says it."""
    if view.unschedulable:
        return view.unschedulable
    for container in view.containers.values():
        end = container.terminated or container.previous
        if container.waiting_reason not in {"", "ContainerCreating", "PodInitializing"}:
            return f"{container.waiting_reason}: {container.waiting_message}"
        if end is not None:
            return f"it ended with exit code {end.exit_code} ({end.message or end.reason})"
    if view.is_terminal:
        return f"{view.reason}: {view.message}" if view.reason else "it ended"
    found = pod_waiting(view, now)
    return found.words if found is not None else "it is starting"


def _is_ready(view: PodView) -> bool:
    return is_living(view) and view.is_ready


def _address(service: Raw) -> str:
    spec = service.get("spec")
    address = spec.get("clusterIP") if isinstance(spec, dict) else None
    if not isinstance(address, str) or address in {"", "None"}:
        raise TransientClusterError("the gateway's Service has no address yet")
    return address
