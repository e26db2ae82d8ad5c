"""The life of one run: observe, decide, write ahead, act, publish, sleep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from securebench.cluster.port import Raw
from securebench.controller.actuators.gateway_keeper import GatewayKeeper
from securebench.controller.actuators.isolation import probed
from securebench.controller.actuators.lanes import LaneKeeper
from securebench.controller.actuators.launches import Launcher
from securebench.controller.actuators.pod_mirror import PodMirror, Watched
from securebench.controller.capture.captured_launch import Captured, capture
from securebench.controller.capture.launch_report import with_usage
from securebench.controller.capture.reading import Reader
from securebench.controller.capture.secret_scrubbing import exposed_values
from securebench.controller.capture.secret_values import SecretValues
from securebench.controller.loop.desired_state import DesiredState
from securebench.controller.loop.policies import PolicyKeeper
from securebench.controller.loop.run_ledger import RunLedger
from securebench.controller.loop.start import PreparedRun
from securebench.controller.loop.verdict import Obituary
from securebench.controller.loop.wake import Wake
from securebench.controller.process.context import Context
from securebench.controller.reporting.obstacles import Obstacle, pods_obstacle
from securebench.controller.reporting.publish import Publisher
from securebench.controller.volume.egress_log import merge_logs
from securebench.core.errors import PermanentClusterError
from securebench.core.names import RUN_UID_LABEL
from securebench.run.api.conditions import Reason
from securebench.run.decide.isolation import plan_as_found
from securebench.run.decide.machine import Capture
from securebench.run.decide.reconcile import Controls, Halt, ObservedState, RunDecision, reconcile
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, RunPlan
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.verify.verifier import verifier_pod
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import Isolated, LaunchBegun, LaunchLost
from securebench.run.state.history import open_attempts

logger = logging.getLogger(__name__)

FINISH_BATCH = 100
"""Records written in one pass; a cancelled run of thousands goes on publishing meanwhile."""

_STARTING = Obstacle(Reason.GATEWAY_STARTING, "the run's gateway is being made")


class RunLoop:
    """Runs one bound run to its end.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        prepared: The run.
        ledger: Its journal, open.
        desired: What the user wants now; changed from outside.
        publisher: Writes status.
    """

    def __init__(
        self,
        context: Context,
        prepared: PreparedRun,
        ledger: RunLedger,
        desired: DesiredState,
        publisher: Publisher,
    ) -> None:
        self._context = context
        self._prepared = prepared
        self._plan: RunPlan = prepared.plan
        self._ledger = ledger
        self._desired = desired
        self._publisher = publisher
        self._lanes = LaneKeeper(
            prepared.store,
            prepared.pack.manifest.parent,
            prepared.plan.harness.task_file,
            prepared.answers,
        )
        self._reader = Reader(context.reading, prepared.plan, ledger, context.clock)
        self._wake = Wake(context.clock)
        self._wake_at: float | None = None
        self._tend_at: float | None = None
        self._words_at: float | None = None
        settings, uid = context.settings, prepared.plan.identity.uid
        selector = f"{RUN_UID_LABEL}={uid}"
        self._mirror = PodMirror(
            context.cluster, selector, context.clock, settings.relist_seconds, self._wake.set
        )
        self._launcher = Launcher(
            context.cluster, uid, context.bucket, context.clock, self._wake.set
        )
        self._policies = PolicyKeeper(context, prepared.plan, self._launcher, self._wake.set)
        self._gateway = (
            GatewayKeeper(context, prepared.plan, prepared.store, self._launcher, self._mirror)
            if prepared.plan.egress is not None
            else None
        )
        self._is_parked = self._is_calm = False
        self._is_prepared = True
        """A loop that found the run at rest begins nothing, whatever the user wants meanwhile."""
        self._given_up = ""
        """Why a run without a canary was ended; its launches stay out if the deadline is moved."""
        self._exposed = SecretValues()
        self._probe = partial(probed, context, desired, self._mirror, publisher)
        desired.on_change = self._wake.set

    async def run(self) -> bool:
        """Run until every attempt has its record and the results are sealed, or all is quiet.

        Returns:
            Whether the run has ended. Otherwise it is suspended, nothing of it is under way, and a
            new loop goes on where this one stopped.

        Raises:
            OSError: The volume did not do what was asked; may be called again from the start.
            ClusterError: The API server did not answer where an answer is needed.
        """
        async with self._following():
            if self._ledger.history.ended is None and not await self._work():
                await self._publisher.parked(self._ledger, self._plan)
                return False
            await self._end()
            return True

    async def _work(self) -> bool:
        """Do what there is to do; return whether the run may be ended."""
        self._is_prepared = not self._is_resting()
        if not self._is_prepared or await self.prepare():
            while not await self.step():
                self._is_parked = self._is_calm and self._is_resting() and self._launcher.is_idle
                if self._is_parked:
                    break
                await self._sleep()
            else:
                await self._sweep()
        if self._gateway is not None:
            await self._gateway.close(self._wake)
        return not self._is_parked

    def _is_resting(self) -> bool:
        """Whether the run is suspended and none of its launches is under way."""
        is_idle = not any(each.live for each in self._ledger.history.attempts.values())
        return is_idle and self._controls().halt is Halt.SUSPENDED

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for part in self._watched():
                await stack.enter_async_context(part.following())
            stack.push_async_callback(self._launcher.close)
            yield

    def _watched(self) -> Iterator[Watched]:
        yield from (self._mirror, self._policies)
        if self._gateway is not None:
            yield self._gateway

    async def prepare(self) -> bool:
        """Do what comes before the first pass.

        Returns:
            Whether tasks may start.
        """
        if not self._is_open:
            return True
        for history in self._ledger.history.attempts.values():
            if history.live is not None:
                self._launcher.mark_pending(history.live)
        self._exposed = await exposed_values(self._context.cluster, self._plan.harness)
        try:
            found = self._ledger.history.isolation
            if found is not None and not self._is_isolated(found):
                return False
            return not await self._is_set_up() or await self._isolated()
        except PermanentClusterError as error:
            self._launcher.state.refusal = error.reason
            return False

    async def _is_set_up(self) -> bool:
        """Wait for the run's network policies, and for its gateway where it needs one.

        Returns:
            Whether the run may go on to the canary; otherwise the loop only ends what is open.
        """
        while True:
            self._observe()
            await self._tend()
            controls = self._controls()
            if controls.halt in {Halt.DRAINING, Halt.STOPPED}:
                if self._ledger.history.isolation is None:
                    self._given_up = controls.halt_message
                return False
            self._is_parked = self._is_resting()
            is_ready = controls.has_policies and controls.is_gateway_ready
            if is_ready or self._is_parked:
                return not self._is_parked
            obstacle = self._obstacle() or (_STARTING if self._gateway is not None else None)
            if obstacle is not None:
                await self._publisher.announce(obstacle.reason, obstacle.message)
            await self._sleep()

    async def _tend(self) -> None:
        """Look after policies and gateway for as long as a launch may need them."""
        self._tend_at = None
        if not self._is_open or self._controls().halt is Halt.STOPPED or self._is_resting():
            return
        self._policies.restore()
        if self._gateway is not None and self._policies.is_complete:
            await self._gateway.reconcile()
            self._tend_at = self._gateway.wake_at()

    @property
    def _is_open(self) -> bool:
        return open_attempts(self._ledger.history.attempts) > 0

    def _observe(self) -> None:
        """Take in what was done and seen in the background."""
        self._wake.clear()
        for part in self._watched():
            part.check()
        failure = self._launcher.failure()
        if failure is not None:
            raise failure
        self._launcher.acknowledge(self._mirror.pods, self._mirror.vanished)

    async def step(self) -> bool:
        """Do one pass: observe, decide, write ahead, act, publish.

        Returns:
            Whether the run is complete.
        """
        self._observe()
        await self._tend()
        decision = reconcile(self._observed(), self._controls())
        await self._carry_out(decision)
        obstacle = self._obstacle()
        await self._publisher.progress(self._ledger, self._plan, obstacle)
        self._wake_at = decision.wake_at
        self._words_at = obstacle.changes_at if obstacle is not None else None
        is_news = bool(decision.captures or decision.finishes or decision.lost)
        self._is_calm = not (is_news or decision.deletions)
        if is_news:
            self._wake.set()
        return decision.is_complete and self._launcher.is_idle

    async def _sweep(self) -> None:
        """Leave nothing behind that an unfortunate end of a process or a call may have left."""
        await self._mirror.list()
        await self._launcher.sweep(self._mirror.pods.values())
        if not self._plan.policy.keep_lanes:
            for task in self._plan.tasks:
                await self._lanes.remove(task)

    async def _isolated(self) -> bool:
        found = self._ledger.history.isolation
        if found is None:
            found = await self._probe(self._plan_as_found())
            await self._ledger.write([found])
        return self._is_isolated(found)

    def _plan_as_found(self) -> RunPlan:
        address = self._gateway.address if self._gateway is not None else ""
        limit = self._context.settings.launch.process_limit
        return plan_as_found(self._plan, self._ledger.history.isolation, address, limit)

    def _is_isolated(self, found: Isolated) -> bool:
        return found.sandboxed and (found.verified or self._desired.is_isolation_declared)

    def _observed(self) -> ObservedState:
        return ObservedState(
            plan=self._plan,
            history=self._ledger.history.attempts,
            pods=self._mirror.pods,
            pending=self._launcher.state.pending,
            vanished=self._mirror.vanished,
            now=self._context.clock.now(),
        )

    def _controls(self) -> Controls:
        controls = self._desired.controls(
            self._ledger.history.started_at, self._context.clock.now()
        )
        gateway = self._gateway
        failure = gateway.failure if gateway is not None else ""
        refusal = self._given_up or self._launcher.state.refusal or failure
        if refusal and controls.halt is not Halt.STOPPED:
            return replace(controls, halt=Halt.STOPPED, halt_message=refusal)
        return replace(
            controls,
            halt=controls.halt if self._is_prepared else controls.halt or Halt.SUSPENDED,
            max_unschedulable=self._context.settings.creation.max_unschedulable,
            is_gateway_ready=gateway is None or gateway.is_ready,
            has_policies=self._policies.is_complete,
        )

    async def _carry_out(self, decision: RunDecision) -> None:
        now = self._context.clock.now()
        lost: Sequence[Lost] = decision.lost
        if lost and self._gateway is not None:
            attempts, uid = self._ledger.history.attempts, self._plan.identity.uid
            lost = await asyncio.to_thread(with_usage, self._prepared.store, uid, attempts, lost)
        await self._ledger.write(
            [
                *map(LaunchLost, lost),
                *(LaunchBegun(launch, now) for launch in decision.begin),
            ]
        )
        await self._capture(decision.captures)
        await self._finish(decision.finishes)
        for launch in (*decision.begin, *decision.repeat):
            self._launcher.create(launch, partial(self._manifest, launch), self._mirror.saw)
        for deletion in decision.deletions:
            self._launcher.delete(deletion)
        await self._publisher.lost(lost)

    async def _capture(self, captures: Sequence[Capture]) -> None:
        store, now = self._prepared.store, self._context.clock.now()
        since = self._gateway.since if self._gateway is not None else None
        take = partial(capture, gateway_since=since, exposed=self._exposed)

        def read(job: Capture) -> Captured:
            return take(store, self._plan.tasks[job.launch.task], job, now)

        await self._reader.capture(captures, read)

    async def _finish(self, finishes: Sequence[Finish]) -> None:
        batch = finishes[:FINISH_BATCH]
        await self._reader.finish(batch)
        for task in {finish.key.task for finish in batch}:
            await self._tidy(task)

    async def _tidy(self, task: int) -> None:
        keys = (AttemptKey(task, number + 1) for number in range(self._plan.policy.attempts))
        is_open = any(self._ledger.history.attempts[key].finish is None for key in keys)
        if not is_open and not self._plan.policy.keep_lanes:
            await self._lanes.remove(task)

    async def _manifest(self, launch: LaunchKey) -> Raw:
        """Prepare the volume for a launch and return its Pod."""
        plan = self._plan_as_found()
        task = plan.tasks[launch.task]
        lanes = await self._lanes.lanes(task)
        await asyncio.to_thread(self._prepared.store.make_launch_folders, launch)
        production = self._ledger.history.attempts[launch.attempt_key].production
        if launch.role is Role.HARNESS:
            return harness_pod(plan, task, launch, lanes)
        if production is None or production.candidate is None:
            raise ValueError(f"launch {launch} has no candidate to verify")
        return verifier_pod(plan, task, launch, lanes, production.candidate)

    def _obstacle(self) -> Obstacle | None:
        quota = self._launcher.state.quota
        if quota:
            return Obstacle(Reason.QUOTA_EXCEEDED, quota)
        if not self._policies.is_complete and (trouble := self._launcher.state.trouble):
            return Obstacle(Reason.STARTING, trouble)
        if self._gateway is not None and not self._gateway.is_ready and self._gateway.trouble:
            return Obstacle(Reason.GATEWAY_STARTING, self._gateway.trouble)
        attempts, now = self._ledger.history.attempts, self._context.clock.now()
        return pods_obstacle(self._mirror.pods.values(), attempts.values(), now)

    async def _sleep(self) -> None:
        now = self._context.clock.now()
        deadline = self._desired.deadline(self._ledger.history.started_at)
        times = [
            self._wake_at,
            self._launcher.retry_at(),
            deadline if deadline is not None and deadline > now else None,
            self._publisher.due_at(),
            self._tend_at,
            self._words_at,
        ]
        await self._wake.wait(times)

    async def _end(self) -> None:
        reason, message = self._verdict()
        if self._plan.egress is not None:
            await asyncio.to_thread(merge_logs, self._prepared.store, self._plan)
        await self._reader.seal(reason.value, message)
        await self._publisher.ended(self._ledger, self._plan, reason, message)

    def _verdict(self) -> tuple[Reason, str]:
        """Return the reason of ``Succeeded``; the first that applies."""
        ended = self._ledger.history.ended
        if ended is not None:
            return Reason(ended.reason), ended.message
        history = self._ledger.history
        found, gateway = history.isolation, self._gateway
        is_open = found is not None and not self._is_isolated(found)
        return Obituary(
            not_isolated=found.message if found is not None and is_open else None,
            refusal=self._launcher.state.refusal,
            gateway_failure=gateway.failure if gateway is not None else "",
            stop=self._desired.stop_reason(history.started_at, self._context.clock.now()),
            attempts=history.attempts.values(),
        ).verdict()
