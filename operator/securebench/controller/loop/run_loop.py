"""The life of one run: observe, decide, write ahead, act, publish, sleep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from securebench.cluster.port import Raw
from securebench.controller.actuators.ended_pods import EndedPods
from securebench.controller.actuators.lanes import LaneKeeper
from securebench.controller.actuators.launches import Launcher
from securebench.controller.actuators.network_keeper import NetworkKeeper
from securebench.controller.actuators.pod_mirror import PodMirror, Watched
from securebench.controller.capture.captured_launch import Captured, capture
from securebench.controller.capture.launch_report import with_usage
from securebench.controller.capture.reading import Reader
from securebench.controller.capture.secret_scrubbing import exposed_values
from securebench.controller.capture.secret_values import SecretValues
from securebench.controller.loop.desired_state import DesiredState
from securebench.controller.loop.run_ledger import RunLedger
from securebench.controller.loop.start import PreparedRun
from securebench.controller.loop.wake import Wake
from securebench.controller.process.context import Context
from securebench.controller.reporting.obstacles import (
    Obstacle,
    network_obstacle,
    pods_obstacle,
)
from securebench.controller.reporting.publish import Publisher
from securebench.controller.volume.egress_log import merge_logs
from securebench.core.errors import PermanentClusterError
from securebench.core.names import RUN_UID_LABEL
from securebench.run.api.conditions import Reason
from securebench.run.decide.machine import Capture
from securebench.run.decide.network import NetworkState
from securebench.run.decide.reconcile import Controls, Halt, ObservedState, RunDecision, reconcile
from securebench.run.decide.verdict import RunOutcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, RunPlan, pod_name
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.verify.verifier import verifier_pod
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import LaunchBegun, LaunchLost
from securebench.run.state.history import open_attempts

logger = logging.getLogger(__name__)

FINISH_BATCH = 100
"""Records written in one pass; a cancelled run of thousands goes on publishing meanwhile."""


class RunLoop:
    """Runs one prepared run to its end.

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
        self._wakes_at: tuple[float | None, ...] = ()
        settings, uid = context.settings, prepared.plan.identity.uid
        selector = f"{RUN_UID_LABEL}={uid}"
        self._mirror = PodMirror(
            context.cluster, selector, context.clock, settings.relist_seconds, self._wake.set
        )
        ended = EndedPods(context.cluster, uid, self._mirror, context.clock)
        self._launcher = Launcher(
            context.cluster, uid, context.bucket, context.clock, self._wake.set, ended
        )
        self._network = NetworkKeeper(context, prepared, desired, self._launcher, self._mirror)
        self._is_calm = False
        self._exposed = SecretValues()
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
        is_over = False
        await self._take_up()
        while not (is_over := await self.step()) and not self._is_parked():
            await self._sleep()
        if is_over:
            await self._sweep()
        await self._network.close(self._wake)
        return is_over

    def _is_parked(self) -> bool:
        """Whether the run is suspended and nothing of it is under way."""
        is_idle = not any(each.live for each in self._ledger.history.attempts.values())
        is_resting = is_idle and self._controls(self._seen_network()).halt is Halt.SUSPENDED
        return is_resting and self._is_calm and self._launcher.is_idle

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for part in self._watched():
                await stack.enter_async_context(part.following())
            stack.push_async_callback(self._launcher.close)
            yield

    def _watched(self) -> Iterator[Watched]:
        yield self._mirror
        yield from self._network.watched()

    async def _take_up(self) -> None:
        """Learn what a process has to know before it begins or goes on with launches."""
        if not open_attempts(self._ledger.history.attempts):
            return
        for history in self._ledger.history.attempts.values():
            if history.live is not None:
                self._launcher.mark_pending(history.live)
        try:
            self._exposed = await exposed_values(self._context.cluster, self._plan.harness)
        except PermanentClusterError as error:
            self._launcher.state.refusal = error.reason

    async def step(self) -> bool:
        """Do one round.

        Returns:
            Whether the run is complete.
        """
        self._observe()
        network = self._seen_network()
        decision = reconcile(self._observed(network), self._controls(network))
        await self._write_ahead(decision)
        await self._act(decision)
        await self._publish(decision)
        return decision.is_complete and self._launcher.is_idle

    def _observe(self) -> None:
        """Take in what was done and seen in the background."""
        self._wake.clear()
        for part in self._watched():
            part.check()
        failure = self._launcher.failure()
        if failure is not None:
            raise failure
        self._launcher.acknowledge(self._mirror.pods, self._mirror.vanished)

    def _observed(self, network: NetworkState) -> ObservedState:
        return ObservedState(
            plan=self._plan,
            history=self._ledger.history.attempts,
            network=network,
            pods=self._mirror.pods,
            pending=self._launcher.state.pending,
            vanished=self._mirror.vanished,
            now=self._context.clock.now(),
        )

    def _seen_network(self) -> NetworkState:
        return self._network.seen(self._ledger.history.isolation)

    def _controls(self, network: NetworkState) -> Controls:
        controls = self._desired.controls(
            self._ledger.history.started_at, self._context.clock.now()
        )
        failure = network.gateway_known.failure
        refusal = network.not_proven or self._launcher.state.refusal or failure
        if refusal and controls.halt is not Halt.STOPPED:
            return replace(controls, halt=Halt.STOPPED, halt_message=refusal)
        return replace(
            controls, max_unschedulable=self._context.settings.creation.max_unschedulable
        )

    async def _write_ahead(self, decision: RunDecision) -> None:
        now, found = self._context.clock.now(), decision.network.found
        lost: Sequence[Lost] = decision.lost
        if lost and self._plan.egress is not None:
            attempts, uid = self._ledger.history.attempts, self._plan.identity.uid
            lost = await asyncio.to_thread(with_usage, self._prepared.store, uid, attempts, lost)
        await self._ledger.write(
            [
                *([found] if found is not None else []),
                *map(LaunchLost, lost),
                *(LaunchBegun(launch, now) for launch in decision.begin),
            ]
        )

    async def _act(self, decision: RunDecision) -> None:
        live = self._live()
        await self._network.carry_out(decision.network)
        await self._capture(decision.captures)
        await self._finish(decision.finishes)
        for launch in (*decision.begin, *decision.repeat):
            self._launcher.create(launch, partial(self._manifest, launch), self._mirror.saw)
        self._launcher.delete_all(decision.deletions, live)

    def _live(self) -> set[str]:
        """Return the names of the Pods of launches that have not ended."""
        uid, attempts = self._plan.identity.uid, self._ledger.history.attempts.values()
        return {pod_name(uid, each.live) for each in attempts if each.live is not None}

    async def _publish(self, decision: RunDecision) -> None:
        await self._publisher.lost(decision.lost)
        seen = self._seen_network()
        obstacle = self._obstacle(seen)
        is_stopping = self._controls(seen).halt is not Halt.NONE
        if obstacle is not None or is_stopping or self._ledger.history.isolation is not None:
            await self._publisher.progress(self._ledger, self._plan, obstacle)
        words_at = obstacle.changes_at if obstacle is not None else None
        self._wakes_at = (decision.wake_at, words_at, *self._network.wake_at)
        network = decision.network
        is_news = bool(decision.captures or decision.finishes or decision.lost or network.found)
        self._is_calm = not (is_news or decision.deletions)
        if is_news:
            self._wake.set()

    async def _sweep(self) -> None:
        """Leave nothing behind that an unfortunate end of a process or a call may have left."""
        await self._mirror.list()
        await self._launcher.sweep(self._mirror.pods.values())
        if not self._plan.policy.keep_lanes:
            for task in self._plan.tasks:
                await self._lanes.remove(task)

    async def _capture(self, captures: Sequence[Capture]) -> None:
        store, now = self._prepared.store, self._context.clock.now()
        since = self._network.gateway_since
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
        plan = self._network.plan_as_found(self._ledger.history.isolation)
        task = plan.tasks[launch.task]
        lanes = await self._lanes.lanes(task)
        await asyncio.to_thread(self._prepared.store.make_launch_folders, launch)
        production = self._ledger.history.attempts[launch.attempt_key].production
        if launch.role is Role.HARNESS:
            return harness_pod(plan, task, launch, lanes)
        if production is None or production.candidate is None:
            raise ValueError(f"launch {launch} has no candidate to verify")
        return verifier_pod(plan, task, launch, lanes, production.candidate)

    def _obstacle(self, network: NetworkState) -> Obstacle | None:
        state, now = self._launcher.state, self._context.clock.now()
        if state.quota:
            return Obstacle(Reason.QUOTA_EXCEEDED, state.quota)
        pods, attempts = self._mirror.pods.values(), self._ledger.history.attempts.values()
        around = network_obstacle(network, pods, state.trouble, now)
        return around if around is not None else pods_obstacle(pods, attempts, now)

    async def _sleep(self) -> None:
        now = self._context.clock.now()
        deadline = self._desired.deadline(self._ledger.history.started_at)
        times = [
            *self._wakes_at,
            self._launcher.retry_at(),
            deadline if deadline is not None and deadline > now else None,
            self._publisher.due_at(),
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
        history, network = self._ledger.history, self._seen_network()
        return RunOutcome(
            not_isolated=network.not_proven,
            refusal=self._launcher.state.refusal,
            gateway_failure=network.gateway_known.failure,
            stop=self._desired.stop_reason(history.started_at, self._context.clock.now()),
            attempts=history.attempts.values(),
        ).verdict()
