"""The attempts of a run, and which of them are under way, without a search through all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from securebench.run.plan.keys import AttemptKey
from securebench.run.state.attempts import (
    AttemptHistory,
    CrashSuspicion,
    Reading,
    was_refused_by_run_budget,
)
from securebench.run.state.tally import Counts, Tally


class AttemptIndex(Mapping[AttemptKey, AttemptHistory]):
    """Every attempt of a run in pack order.

    What is asked in every round of the loop costs as much as there are attempts under way or
    changed, however many the run has.

    Args:
        histories: Attempts in pack order.
    """

    def __init__(self, histories: Iterable[AttemptHistory] = ()) -> None:
        self._all: dict[AttemptKey, AttemptHistory] = {}
        self._under_way: dict[AttemptKey, AttemptHistory] = {}
        self._changed: set[AttemptKey] = set()
        self._counts = Counts()
        self._with_result = 0
        self._in_flight = 0
        self._is_budget_spent = False
        for history in histories:
            self[history.key] = history

    def __getitem__(self, key: AttemptKey) -> AttemptHistory:
        """Return an attempt."""
        return self._all[key]

    def __iter__(self) -> Iterator[AttemptKey]:
        """Iterate over the keys in pack order."""
        return iter(self._all)

    def __len__(self) -> int:
        """Return the number of attempts."""
        return len(self._all)

    def __setitem__(self, key: AttemptKey, history: AttemptHistory) -> None:
        """Replace the state of an attempt; a new one comes last."""
        before = self._all.get(key)
        if before is not None:
            self._counts.remove(before)
            self._with_result -= _has_result(before)
            self._in_flight -= before.live is not None
        self._counts.add(history)
        self._with_result += _has_result(history)
        self._in_flight += history.live is not None
        self._is_budget_spent |= was_refused_by_run_budget(history.production)
        self._all[key] = history
        self._changed.add(key)
        if _is_under_way(history):
            self._under_way[key] = history
        else:
            self._under_way.pop(key, None)

    @property
    def under_way(self) -> Collection[AttemptHistory]:
        """Attempts of which something is known and that have not ended, in no order."""
        return self._under_way.values()

    @property
    def done(self) -> int:
        """How many attempts have their record."""
        return self._counts.done

    @property
    def open(self) -> int:
        """How many attempts have no record yet."""
        return len(self._all) - self.done

    @property
    def in_flight(self) -> int:
        """How many launches have begun and not ended."""
        return self._in_flight

    @property
    def has_results(self) -> bool:
        """Whether any attempt has ended, or its harness has handed something in."""
        return self._with_result > 0

    @property
    def is_budget_spent(self) -> bool:
        """Whether the gateway has refused any launch because the run's budget was used up."""
        return self._is_budget_spent

    def tally(self) -> Tally:
        """Return the attempts counted by state and outcome."""
        return self._counts.tally()

    def pop_changed(self) -> Collection[AttemptKey]:
        """Return which attempts were replaced since the last call."""
        changed, self._changed = self._changed, set()
        return changed


def _has_result(history: AttemptHistory) -> bool:
    return history.finish is not None or history.production is not None


def _is_under_way(history: AttemptHistory) -> bool:
    is_known = (
        history.live is not None
        or history.launches > 0
        or history.last_lost is not None
        or history.production is not None
        or history.reading is not Reading.NONE
        or history.crash_suspicion is not CrashSuspicion.NONE
    )
    return is_known and history.finish is None
