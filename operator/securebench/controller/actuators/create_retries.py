"""Retries of creates that had no answer, were over quota or were refused, and what is said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from securebench.clock import Clock
from securebench.cluster.port import Forbidden, QuotaExceeded
from securebench.controller.loop_tasks import RetryQueue
from securebench.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.run.decide.refusals import RefusedCreate, refused_again

RETRY_SECONDS = 2.0
RETRY_LIMIT_SECONDS = 30.0
"""Pause before a request without a definite answer is repeated; doubled each time up to the limit.
"""

QUOTA_RETRY_SECONDS = 10.0
"""Pause before a create that the namespace's quota refused is repeated."""


class CreateRetries:
    """The back-off of every create of one run, by the name of its object.

    Args:
        clock: For pauses, its monotonic time.
        refusal_seconds: For how long a create is repeated that rights or admission refuse.
    """

    def __init__(self, clock: Clock, refusal_seconds: float) -> None:
        self._clock = clock
        self._refusal_seconds = refusal_seconds
        self._queue = RetryQueue[str](clock.monotonic, RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        self._errors: dict[str, str] = {}
        self._quotas: dict[str, str] = {}
        self._refused: dict[str, RefusedCreate] = {}
        self._refusal = ""

    @property
    def pending(self) -> Collection[str]:
        """Names of objects whose create has no definite answer."""
        return self._queue.keys

    @property
    def refusal(self) -> str:
        """The message after a create was refused permanently, or empty."""
        return self._refusal

    @property
    def error(self) -> str:
        """Why the last create of an object that is still wanted had no answer, or empty."""
        return next((message for name, message in self._errors.items() if name in self.pending), "")

    @property
    def quota(self) -> str:
        """The server's message while a quota refuses a create that is still wanted, or empty."""
        return next((message for name, message in self._quotas.items() if name in self.pending), "")

    @property
    def forbidden(self) -> str:
        """Message of the oldest refused create that is still wanted, or empty."""
        wanted = (each.message for name, each in self._refused.items() if name in self.pending)
        return next(wanted, "")

    @property
    def blocked(self) -> str:
        """Why a create that is still wanted has to wait for room or rights, or empty."""
        return self.quota or self.forbidden

    def is_due(self, name: str) -> bool:
        """Whether a create does not have to wait."""
        return self._queue.is_due(name)

    def next_after(self, since: float) -> float | None:
        """Return the first time later than ``since`` at which a create is due, or None.

        Args:
            since: Monotonic seconds.
        """
        return self._queue.next_after(since)

    def mark_pending(self, name: str) -> None:
        """Add a create that an earlier process may have sent."""
        self._queue.add(name)

    def begin(self, name: str) -> None:
        """Note that a create is sent."""
        self._queue.begin(name)

    def wait(self, name: str, seconds: float) -> None:
        """Delay the next try of a create, whatever the outcome of the last."""
        self._queue.wait(name, seconds)

    def acknowledge(self, shown: Collection[str], vanished: Collection[str]) -> None:
        """Forget creates whose outcome the cluster shows by now.

        Args:
            shown: Names of Pods that are there.
            vanished: Names of Pods that were there.
        """
        for name in list(self.pending):
            if name in shown or name in vanished:
                self.resolve(name)

    def resolve(self, name: str) -> None:
        """Forget the retries of an object: its create has a definite answer."""
        self._queue.forget(name)
        for messages in (self._quotas, self._refused, self._errors):
            messages.pop(name, None)

    def record_refusal(self, name: str, what: str, error: Forbidden) -> RefusedCreate:
        """Note that authorization or admission refused an object.

        Args:
            name: Name of the object, by which later refusals of it are found.
            what: Its kind and name.
            error: The server's answer.

        Returns:
            When it is tried again, if at all.
        """
        known, now = self._refused.get(name), self._clock.monotonic()
        found = refused_again(known, f"{what}: {error.reason}", now, self._refusal_seconds)
        self._refused[name] = found
        if found.again_at is None:
            self._queue.begin(name)
        else:
            self._queue.wait(name, found.again_at - now)
        return found

    async def try_create(
        self, name: str, what: str, create: Callable[[], Awaitable[None]]
    ) -> ClusterError | None:
        """Create an object, and record the outcome.

        Args:
            name: Name of the object.
            what: Its kind and name.
            create: Creates it or finds it.

        Returns:
            The server's error, or None.
        """
        try:
            await create()
        except Forbidden as error:
            found = self.record_refusal(name, what, error)
            self._refusal = self._refusal if found.again_at else found.message
            return error
        except QuotaExceeded as error:
            self.resolve(name)
            self._quotas[name] = error.reason
            self.wait(name, QUOTA_RETRY_SECONDS)
            return error
        except TransientClusterError as error:
            self._refused.pop(name, None)
            self._errors[name] = f"{what}: {error.reason}"
            self._queue.retry(name, error.retry_after_seconds)
            return error
        except PermanentClusterError as error:
            self._refusal = error.reason
            return error
        self.resolve(name)
        return None
