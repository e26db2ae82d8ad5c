"""Whether the records of two runs can be compared fairly: both have the same decisive digests.

The harness is what is compared, so its digest is none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from securebench.json_values import object_at, text_at
from securebench.run.records.reading import Record


class DecisiveDigests(NamedTuple):
    """Digests of a record that a fair comparison shares; empty where the record lacks one.

    Args:
        pack: Contract 15.6.
        verifier: Version of the verifier.
        policy: Limits, isolation and verification rules.
    """

    pack: str
    verifier: str
    policy: str


_DIFFERENT = DecisiveDigests(
    pack="their packs have different digests",
    verifier="they were graded by different versions of the verifier",
    policy="their limits, isolation or verification rules differ",
)
_UNKNOWN = DecisiveDigests(
    pack="records without pack_digest do not say which pack they are of",
    verifier="records without verifier_version do not say what graded them",
    policy="records without digests.policy do not say their limits and rules",
)


def decisive_digests(record: Record) -> DecisiveDigests:
    """Return the digests of a record that a fair comparison shares."""
    return DecisiveDigests(
        pack=text_at(record, "pack_digest"),
        verifier=text_at(record, "verifier_version"),
        policy=text_at(object_at(record, "digests"), "policy"),
    )


def incomparable(
    baseline: AbstractSet[DecisiveDigests], candidate: AbstractSet[DecisiveDigests]
) -> Iterator[str]:
    """Yield why two runs cannot be compared fairly; nothing for runs that can.

    A digest that a record lacks may be any: it equals none, not even another one that is lacking.

    Args:
        baseline: Those of all records of a run.
        candidate: Those of another one.
    """
    for old, new, unknown, different in zip(
        _by_field(baseline), _by_field(candidate), _UNKNOWN, _DIFFERENT, strict=True
    ):
        if "" in old | new:
            yield unknown
        elif old != new:
            yield different


def _by_field(digests: AbstractSet[DecisiveDigests]) -> list[set[str]]:
    return [set(values) for values in zip(*digests, strict=True)]
