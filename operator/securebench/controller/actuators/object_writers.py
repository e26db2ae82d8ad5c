"""Creates and deletes the objects of one run, with shared tracking of requests in flight."""

from __future__ import annotations

from collections.abc import Callable

from securebench.controller.actuators.background_tasks import BackgroundTasks
from securebench.controller.actuators.create_retries import CreateRetries
from securebench.controller.actuators.informers import PodInformer
from securebench.controller.actuators.object_creator import ObjectCreator
from securebench.controller.actuators.pod_deleter import PodDeleter
from securebench.controller.context import Context
from securebench.run.decide.waits import ObservedWrites


class ObjectWriters:
    """Creator and deleter of one run, and when they are to be asked again.

    Args:
        context: Shared parts of the operator: the namespace, rate of creates, clock, settings.
        run_uid: The run.
        informer: Shows the run's Pods.
        on_change: Called when something ended.

    Attributes:
        tasks: What is under way.
        retries: When creates are repeated, and why.
        creator: Creates objects.
        deleter: Deletes Pods.
    """

    def __init__(
        self, context: Context, run_uid: str, informer: PodInformer, on_change: Callable[[], None]
    ) -> None:
        self._clock = context.clock
        self._informer = informer
        self._observed_at = 0.0
        self.tasks = BackgroundTasks(on_change)
        self.retries = CreateRetries(context.clock, context.settings.launch.refusal_seconds)
        self.creator = ObjectCreator(context, run_uid, self.tasks, self.retries)
        self.deleter = PodDeleter(context, run_uid, self.tasks, informer)

    def observe(self) -> ObservedWrites:
        """Record which requests have ended and what the cluster shows of their objects.

        Raises:
            Exception: What a task met that is not the cluster's fault.
        """
        failure = self.tasks.reap()
        if failure is not None:
            raise failure
        self._observed_at = self._clock.monotonic()
        self.retries.acknowledge(self._informer.pods, self._informer.vanished)
        self.deleter.acknowledge(self._informer.pods.values())
        return ObservedWrites(
            refusal=self.retries.refusal,
            trouble=self.retries.error,
            quota=self.retries.quota,
            forbidden=self.retries.forbidden,
            is_idle=self.tasks.is_idle,
            rate=self.creator.throttled,
        )

    def next_try(self) -> float | None:
        """Return when the next create or deletion is due, monotonic seconds, or None.

        One that was due at the last look and was not begun is left out: nobody wants it.
        """
        since = self._observed_at
        times = (self.retries.next_after(since), self.deleter.next_after(since))
        return min((at for at in times if at is not None), default=None)
