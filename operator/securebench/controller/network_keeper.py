"""Observes and maintains the network of one run: policies, gateway and canary.

Policies are made before the run's first Pod and restored during the run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial

from securebench.cluster.port import AlreadyExists, ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.gateway_keeper import GatewayKeeper, ProviderWatch
from securebench.controller.informers import BackgroundWatch, PodInformer, PolicyInformer
from securebench.controller.loop_tasks import Wake
from securebench.controller.object_writers import (
    ObjectCreator,
    ObjectWriters,
    find_own,
    object_name,
)
from securebench.controller.run_ledger import RunLedger
from securebench.controller.settings import UserNamespaces
from securebench.names import RUN_UID_LABEL
from securebench.run.decide.canary import CanaryCheck, CanaryMemory, Probe, cluster_facts
from securebench.run.decide.controls import DesiredState
from securebench.run.decide.gateway import GatewayMemory
from securebench.run.decide.network import NetworkState, NetworkStep, ObservedPolicies, Repair
from securebench.run.decide.reconcile import Deletion
from securebench.run.layout import probe_name
from securebench.run.observe.pods import object_view
from securebench.run.observe.waiting import ObservedProvider
from securebench.run.plan.model import ClusterFacts, Role, RunPlan
from securebench.run.pods.isolation import canary_pod, control_pod, run_policies
from securebench.run.state.entries import IsolationResult

logger = logging.getLogger(__name__)


POLICY_RETRY_SECONDS = 2.0
"""Pause between two replacements of a policy that somebody keeps editing."""


class PolicyKeeper:
    """Watches the policies of a run, creates them and restores them.

    Args:
        creator: Makes them in the background.
        on_change: Called when one appears, changes or goes.
    """

    def __init__(
        self, context: Context, plan: RunPlan, creator: ObjectCreator, on_change: Callable[[], None]
    ) -> None:
        policies = run_policies(plan, context.settings.gateway.nameservers)
        self._wanted = {object_name(policy): policy for policy in policies}
        self._stored: dict[str, Raw] = {}
        self._cluster = context.cluster
        self._uid = plan.identity.uid
        self._creator = creator
        self._informer = PolicyInformer(
            context.cluster,
            f"{RUN_UID_LABEL}={self._uid}",
            context.settings.relist_seconds,
            on_change,
        )

    def observe(self) -> ObservedPolicies:
        """Return their observed state."""
        return ObservedPolicies(self._wanted, self._informer.objects, self._stored)

    def repair(self, repair: Repair) -> None:
        """Start to create a missing policy, or to replace an edited one."""
        key = f"{ObjectKind.NETWORK_POLICY.value} {repair.name}"
        if not repair.edited_uid:
            self._creator.create_object(key, partial(self._make, repair.name))
        else:
            self._creator.create_object(
                key, partial(self._make_again, repair), pause_seconds=POLICY_RETRY_SECONDS
            )

    def check(self) -> None:
        """Raise what ended the watch, if it has ended."""
        self._informer.check()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch them in the background until the block ends.

        Raises:
            ClusterError: The API server did not answer the list.
        """
        async with self._informer.watching():
            yield

    async def _make(self, name: str) -> None:
        manifest = self._wanted[name]
        try:
            made = await self._cluster.create(ObjectKind.NETWORK_POLICY, manifest)
        except AlreadyExists:
            found = await find_own(self._cluster, ObjectKind.NETWORK_POLICY, name, self._uid)
            self._informer.note_created(found)
            return
        self._stored[name] = object_view(made).spec
        self._informer.note_created(made)

    async def _make_again(self, repair: Repair) -> None:
        """Replace an edited policy; a later one of its name is left alone."""
        logger.warning("NetworkPolicy %s was edited; it is made again", repair.name)
        await self._cluster.delete(
            ObjectKind.NETWORK_POLICY, repair.name, uid=repair.edited_uid, grace_seconds=None
        )
        self._informer.note_deleted(repair.name, repair.edited_uid)
        await self._make(repair.name)


class NetworkKeeper:
    """Observes the network of one run and applies the decisions about it.

    Args:
        ledger: The run, with its journal.
        writers: Create and delete Pods and policies in the background.
    """

    def __init__(
        self,
        context: Context,
        ledger: RunLedger,
        writers: ObjectWriters,
        informer: PodInformer,
    ) -> None:
        self._context = context
        self._plan = ledger.plan
        self._writers = writers
        self._informer = informer
        self._policies = PolicyKeeper(context, self._plan, writers.creator, informer.changed)
        self._gateway = (
            GatewayKeeper(context, self._plan, ledger.store, writers, informer)
            if self._plan.has_gateway
            else None
        )
        self._provider = _provider_watch(ledger, informer.changed)
        self._canary = CanaryMemory()

    def watches(self) -> Iterator[BackgroundWatch]:
        """Yield the watches that run in the background."""
        yield self._policies
        if self._gateway is not None:
            yield self._gateway
        if self._provider is not None:
            yield self._provider

    def observe(self, found: IsolationResult | None, desired: DesiredState) -> NetworkState:
        """Return the observed and remembered state.

        Args:
            found: The proof of isolation, or None before it.
        """
        gateway = self._gateway
        return NetworkState(
            repairs=tuple(self._policies.observe().repairs()),
            gateway=gateway.observe() if gateway is not None else None,
            gateway_memory=gateway.memory if gateway is not None else GatewayMemory(),
            canary_memory=self._canary,
            check=self._check(desired) if found is None else None,
            found=found,
            is_declared=desired.is_isolation_declared,
            create_blocked=self._writers.retries.blocked or self._writers.retries.error,
            monotonic=self._context.clock.monotonic(),
            listed_at=self._informer.listed_at,
            answered_at=self._informer.answered_at,
            last_vanished=self._informer.last_vanished,
            provider=self._observed_provider,
        )

    @property
    def tokens_used(self) -> int:
        """What the gateway has counted against the run's budget."""
        return self._observed_provider.tokens_used

    @property
    def _observed_provider(self) -> ObservedProvider:
        return self._provider.observed if self._provider is not None else ObservedProvider()

    def cluster_facts(self, found: IsolationResult | None) -> ClusterFacts:
        """Return what the cluster has told of the run so far.

        Args:
            found: The proof of isolation, or None before it.
        """
        limit = self._context.settings.launch.process_limit
        return cluster_facts(found, self._address, limit)

    @property
    def _address(self) -> str:
        """Address of the run's gateway; empty where there is none yet."""
        return self._gateway.address if self._gateway is not None else ""

    @property
    def gateway_since(self) -> float | None:
        """When the latest gateway Pod was created, or None where the run needs none."""
        return self._gateway.since if self._gateway is not None else None

    def apply(self, step: NetworkStep, desired: DesiredState) -> None:
        """Start the actions of a decision, whose proof is in the journal."""
        for repair in step.repairs:
            self._policies.repair(repair)
        if self._gateway is not None and step.gateway is not None:
            self._gateway.apply(step.gateway, desired.spec.parallelism)
        if step.canary is None:
            return
        self._canary = step.canary.memory
        for view in step.canary.delete:
            self._writers.deleter.delete(Deletion(view.name, view.uid, at_once=True))
        for probe in step.canary.start:
            name = probe_name(self._plan.identity.uid, probe.role, probe.number)
            self._writers.creator.create_pod(
                name, partial(self._manifest, probe), self._informer.note_created
            )

    async def close(self, wake: Wake) -> None:
        """Take the gateway away; the policies go with the run.

        Args:
            wake: Set when the informer shows something new.

        Raises:
            ClusterError: The API server did not answer.
        """
        if self._gateway is not None:
            await self._gateway.close(wake)

    async def _manifest(self, probe: Probe) -> Raw:
        plan, targets = self._plan, self._context.targets
        if probe.role is Role.CONTROL:
            return control_pod(plan, probe.number, targets)
        facts = replace(self.cluster_facts(None), user_namespaces=probe.user_namespaces)
        return canary_pod(plan, probe.number, targets, facts, probe.quiet_seconds)

    def _check(self, desired: DesiredState) -> CanaryCheck | None:
        settings, runtime_class = self._context.settings, self._plan.pods.runtime_class
        must_be_sandboxed = runtime_class in settings.pod_template.sandboxed_runtime_class_names
        if desired.is_isolation_declared and not must_be_sandboxed:
            return None
        setting = settings.user_namespaces
        return CanaryCheck(
            targets=self._context.targets,
            timeout_seconds=settings.canary.timeout_seconds,
            may_have_user_namespaces=setting is not UserNamespaces.NEVER,
            must_have_user_namespaces=setting is UserNamespaces.REQUIRE,
            runtime_class=runtime_class,
            must_be_sandboxed=must_be_sandboxed,
            is_node_allowed=desired.spec.isolation.is_node_allowed,
            has_gateway=self._plan.has_gateway,
        )


def _provider_watch(ledger: RunLedger, on_change: Callable[[], None]) -> ProviderWatch | None:
    """Return what observes the run's model provider, or None for a run without one."""
    egress, uid = ledger.plan.egress, ledger.plan.identity.uid
    if egress is None or egress.provider is None:
        return None
    return ProviderWatch(ledger.store, uid, egress.provider.host, on_change)
