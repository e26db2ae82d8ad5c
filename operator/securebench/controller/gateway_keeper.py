"""The gateway of a run: its Service, its files, its Pods, and what it reports of the provider.

Names are deterministic, so that a restarted operator finds the objects of the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

from securebench.cluster.port import Forbidden, ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.informers import PodInformer, ServiceInformer
from securebench.controller.loop_tasks import Wake
from securebench.controller.object_writers import ObjectWriters, create_or_find
from securebench.controller.settings import Settings
from securebench.controller.volume.gateway_reports import read_gateway_state
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import on_volume
from securebench.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.names import RUN_UID_LABEL
from securebench.protocol.gateway import CONFIG_FILE, KEYS_FILE, LAUNCHES, GatewayLimits, encode
from securebench.run.decide.gateway import (
    KEYS_SECONDS,
    UNREADY_SECONDS,
    GatewayMemory,
    GatewayStep,
    ObservedGateway,
    delayed,
    refused,
)
from securebench.run.decide.reconcile import Deletion
from securebench.run.layout import gateway_name, gateway_pod_name, numbered
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import ObservedProvider, observed_provider
from securebench.run.plan.model import Role, RunPlan
from securebench.run.pods.gateway import (
    GatewayPolicy,
    gateway_config,
    gateway_pod,
    gateway_service,
)

logger = logging.getLogger(__name__)


def gateway_rules(settings: Settings) -> GatewayPolicy:
    """Return what the settings say of every gateway."""
    gateway = settings.gateway
    return GatewayPolicy(
        image=settings.gateway_image,
        memory=gateway.memory,
        limits=GatewayLimits(
            idle_seconds=gateway.idle_seconds,
            connect_seconds=gateway.connect_seconds,
            connections=gateway.connections,
            all_connections=gateway.all_connections,
            connections_per_second=gateway.connections_per_second,
            bytes=gateway.bytes_per_launch,
            request_bytes=gateway.request_bytes,
        ),
        nameservers=gateway.nameservers,
        ca_config_map=gateway.ca_config_map,
    )


PROVIDER_READ_SECONDS = 1.0
"""Polling interval; a shared volume gives no change notifications."""


class ProviderWatch:
    """Reads the gateway's files in the background.

    Args:
        run_uid: UID of the run.
        host: Host of its model provider.
        on_change: Called when a file has changed.
    """

    def __init__(
        self, store: RunStore, run_uid: str, host: str, on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._run_uid = run_uid
        self._host = host
        self._on_change = on_change
        self._reader: asyncio.Task[None] | None = None
        self.observed = ObservedProvider(host)
        """What the files say."""

    def check(self) -> None:
        """Raise what ended the reading, if it has ended."""
        if self._reader is not None and self._reader.done():
            self._reader.result()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Read the files at once, and again and again until the block ends."""
        await self._read()
        self._reader = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(PROVIDER_READ_SECONDS)
            await self._read()

    async def _read(self) -> None:
        try:
            state = await on_volume(read_gateway_state, self._store)
        except OSError as error:
            logger.warning("the gateway's files of run %s cannot be read: %s", self._run_uid, error)
            return
        found = observed_provider(state.waits, self._run_uid, self._host, state.tokens_used)
        if found != self.observed:
            self.observed = found
            self._on_change()


END_SECONDS = 10.0
"""Time for a gateway to end, with a margin; one on a lost node never reports that it has."""


class GatewayKeeper:
    """Creates, replaces and deletes the gateway of one run.

    Args:
        plan: The run; it has an egress plan.
        writers: Create and delete its Pods.
        informer: Shows its Pods.
    """

    def __init__(
        self,
        context: Context,
        plan: RunPlan,
        store: RunStore,
        writers: ObjectWriters,
        informer: PodInformer,
    ) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._rules = gateway_rules(context.settings)
        self._start_seconds = float(context.settings.gateway.start_seconds)
        self._plan = plan
        self._uid = plan.identity.uid
        self._name = gateway_name(self._uid)
        self._store = store
        self._writers = writers
        self._pods = informer
        self.services = ServiceInformer(
            context.cluster,
            f"{RUN_UID_LABEL}={self._uid}",
            context.settings.relist_seconds,
            informer.changed,
        )
        self._memory = GatewayMemory()
        self._outcomes: list[Callable[[GatewayMemory], GatewayMemory]] = []
        self._keys = b""

    @property
    def memory(self) -> GatewayMemory:
        """What earlier decisions remembered, with the outcomes of the requests since."""
        for outcome in self._outcomes:
            self._memory = outcome(self._memory)
        self._outcomes.clear()
        return self._memory

    @property
    def address(self) -> str:
        """Cluster address of the gateway's Service; empty until it exists."""
        service = self.services.objects.get(self._name)
        return service.address if service is not None else ""

    @property
    def since(self) -> float:
        """When the latest gateway Pod was created, in seconds since the epoch; 0.0 without one.

        A launch is older than the gateway only if the gateway was replaced meanwhile.
        """
        return max((view.created_at for view in self._views().values()), default=0.0)

    def check(self) -> None:
        """Raise what ended the watch of the Service, if it has ended."""
        self.services.check()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the Service in the background until the block ends.

        Raises:
            ClusterError: The API server did not answer the list.
        """
        async with self.services.watching():
            yield

    def apply(self, step: GatewayStep, parallelism: int) -> None:
        """Start to create what is missing, replace what ended and delete what was replaced.

        Args:
            parallelism: Pods of the run in flight, as the user wants now.
        """
        self._memory = step.memory
        for view in step.delete:
            self._writers.deleter.delete(Deletion(view.name, view.uid, at_once=True))
        must_start = step.start and self._writers.creator.may_create(self._pod_name(step.start))
        has_work = must_start or step.needs_service or step.needs_keys
        if has_work and not self._writers.tasks.has(self._name):
            self._writers.tasks.start(self._name, self._carry_out_step(step, parallelism))

    async def close(self, wake: Wake) -> None:
        """Delete Pods and Service; the policies go with the run.

        Returns when the gateway has written its last log lines, or after ``END_SECONDS``.

        Args:
            wake: Set when the informer observes a change.

        Raises:
            ClusterError: The API server did not answer.
        """
        for view in self._views().values():
            await self._cluster.delete(ObjectKind.POD, view.name, uid=view.uid, grace_seconds=None)
        await self._cluster.delete(ObjectKind.SERVICE, self._name, uid=None, grace_seconds=None)
        until = self._clock.monotonic() + END_SECONDS
        while self._is_writing() and self._clock.monotonic() < until:
            wake.clear()
            await wake.wait((), [until])

    def _is_writing(self) -> bool:
        return any(not view.is_terminal for view in self._views().values())

    def observe(self) -> ObservedGateway:
        """Return its observed state."""
        return ObservedGateway(
            name=self._name,
            pods=self._views(),
            last_vanished=self._pods.last_vanished.get(Role.GATEWAY, 0),
            service=self.services.objects.get(self._name),
            create_blocked=self._writers.retries.blocked,
            start_seconds=self._start_seconds,
            listed_at=self._pods.listed_at,
            answered_at=self._pods.answered_at,
        )

    def _views(self) -> dict[int, PodView]:
        return {
            number: view
            for view in self._pods.pods.values()
            if view.role is Role.GATEWAY and (number := numbered(view.name))
        }

    def _pod_name(self, number: int) -> str:
        return gateway_pod_name(self._uid, number)

    async def _carry_out_step(self, step: GatewayStep, parallelism: int) -> None:
        """Send the requests of a step; their outcomes are part of the next pass.

        Raises:
            OSError: The volume failed.
        """
        retries = self._writers.retries
        try:
            if step.start:
                await self._start(step.start, parallelism)
            if step.needs_service:
                await self._make_service()
            if step.needs_keys:
                await self._refresh_keys()
            if step.start or step.needs_service:
                retries.resolve(self._name)
        except Forbidden as error:
            self._wait_for_rights(error)
        except TransientClusterError as error:
            retries.resolve(self._name)
            self._delay(error.reason)
        except PermanentClusterError as error:
            self._outcomes.append(partial(refused, refusal=error.reason))

    def _wait_for_rights(self, error: Forbidden) -> None:
        found = self._writers.retries.record_refusal(self._name, f"gateway {self._name}", error)
        if found.again_at is None:
            self._outcomes.append(partial(refused, refusal=found.message))
        else:
            self._delay(found.message, found.again_at)

    def _delay(self, trouble: str, again_at: float | None = None) -> None:
        now = self._clock.monotonic()
        self._outcomes.append(partial(delayed, trouble=trouble, now=now, again_at=again_at))

    async def _start(self, number: int, parallelism: int) -> None:
        """Create what a gateway Pod needs, then the Pod."""
        await self._make_service()
        if not self.address:
            raise TransientClusterError("the gateway's Service has no address yet")
        await on_volume(self._write, CONFIG_FILE, encode(gateway_config(self._plan, self._rules)))
        self._keys = b""
        await self._write_keys()

        async def manifest() -> Raw:
            return gateway_pod(self._plan, number, self._rules, parallelism)

        self._outcomes.append(_creating)
        self._writers.creator.create_pod(self._pod_name(number), manifest, self._pods.note_created)

    async def _make_service(self) -> None:
        if self._name not in self.services.objects:
            manifest = gateway_service(self._plan)
            made = await create_or_find(self._cluster, ObjectKind.SERVICE, manifest, self._uid)
            self.services.note_created(made)

    async def _refresh_keys(self) -> None:
        """Write the current signing keys; on an error the gateway keeps those that it has."""
        try:
            await self._write_keys()
        except ClusterError as error:
            logger.warning("signing keys for the gateway of run %s: %s", self._uid, error)
            self._schedule_key_check(UNREADY_SECONDS)

    async def _write_keys(self) -> None:
        keys = await self._cluster.signing_keys()
        if keys != self._keys:
            await on_volume(self._write, KEYS_FILE, keys)
        self._keys = keys
        self._schedule_key_check(KEYS_SECONDS)

    def _schedule_key_check(self, seconds: float) -> None:
        """Schedule the next check of the signing keys."""
        self._outcomes.append(partial(_keys_known, next_at=self._clock.monotonic() + seconds))

    def _write(self, name: str, content: bytes) -> None:
        artifacts, gateway = self._store.artifacts, self._store.gateway
        artifacts.prepare(gateway, LAUNCHES)
        artifacts.put(gateway, name, [content])


def _creating(known: GatewayMemory) -> GatewayMemory:
    return replace(known, trouble=known.trouble or "the gateway Pod is being created")


def _keys_known(known: GatewayMemory, next_at: float) -> GatewayMemory:
    return replace(known, keys_at=next_at)
