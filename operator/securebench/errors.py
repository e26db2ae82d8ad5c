"""The error tree. A task's failure is data, never one of these.

SecureBenchError(reason, facts)
├── InvalidInputError          the user must change something
│   ├── ConfigErrors           several of these at once
│   ├── PlacedError            carries path and line
│   │   ├── ConfigError        tester YAML, env file, harness configuration
│   │   └── PackError          manifest, row, asset
│   │       └── PackMissingError   its ConfigMap, Secret or folder may still come
│   │           └── PackImageMissingError  its registry may still get it
│   ├── SpecError              a BenchmarkRun that this version refuses
│   │   └── SecretMissingError a Secret that it names may still come
│   └── MissingInputError      both that may still come; carries what is missing
├── ClusterError
│   ├── TransientClusterError  transient, may be retried; may carry retry_after_seconds
│   │   └── LeaseOverdueError  our Lease is not renewed; until it is, nothing may be written
│   └── PermanentClusterError  the same request would be refused again
├── RegistryUnavailableError   a registry of packs; transient, may be retried
├── StorageError
│   ├── JournalCorruptError    carries the line number
│   ├── TooLargeError          carries the bound in bytes
│   └── DigestMismatchError    carries both digests
├── LeadershipLostError        another operator works; this process ends
└── InvariantViolationError    our bug
    └── PlanChangedError       the run waits for the version that began it

Messages say what happened, to which object, and what to do. They never hold a
secret, a hidden value or a raw body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class SecureBenchError(Exception):
    """Base of all errors of this package.

    Args:
        reason: One plain sentence for the user.
        facts: Machine-readable details; never secrets or hidden values.
    """

    def __init__(self, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.facts: Mapping[str, object] = facts

    def __reduce__(self) -> tuple[object, ...]:
        """Let errors go between processes as they are; many classes have facts by name only."""
        return self.__class__.__new__, (self.__class__, *self.args), self.__dict__


class LeadershipLostError(SecureBenchError):
    """This process may write nothing more: another operator works."""


class InvalidInputError(SecureBenchError):
    """The user must change something."""


class PlacedError(InvalidInputError):
    """One defect that may have a place in a file.

    Args:
        path: File as the user named it, or None when no file is involved.
        line: Line number from 1, or None.
    """

    def __init__(
        self, reason: str, *, path: str | None = None, line: int | None = None, **facts: object
    ) -> None:
        super().__init__(reason, **facts)
        self.path = path
        self.line = line

    def __str__(self) -> str:
        """Return ``path:line: reason`` with the parts that are known."""
        if self.path is None:
            return self.reason
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.reason}"


class ConfigError(PlacedError):
    """Tester YAML, env file or harness configuration is wrong."""


class PackError(PlacedError):
    """One defect of a pack."""


class ConfigErrors(InvalidInputError):
    """All defects of one input, in file order.

    Args:
        errors: At least one error.
    """

    def __init__(self, errors: Sequence[InvalidInputError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


class SpecError(InvalidInputError):
    """A BenchmarkRun that this version refuses."""


class MissingInputError(InvalidInputError):
    """Something that a run names and that may still come.

    Args:
        missing: What is missing, as a sentence without its end.
        remedy: What to do when it has not come in time.
    """

    def __init__(self, missing: str, remedy: str) -> None:
        super().__init__(f"{missing}; {remedy}")
        self.missing = missing


class PackMissingError(MissingInputError, PackError):
    """A pack whose ConfigMap, Secret or folder may still come."""


class PackImageMissingError(PackMissingError):
    """A pack that its registry does not have yet; the registry is asked less and less often."""


class SecretMissingError(MissingInputError, SpecError):
    """A Secret that a BenchmarkRun names and that may still come, or get its label."""


class ClusterError(SecureBenchError):
    """The API server refused or did not answer."""


class TransientClusterError(ClusterError):
    """Worth repeating.

    Args:
        retry_after_seconds: The server's own wish, or None.
    """

    def __init__(
        self, reason: str, *, retry_after_seconds: float | None = None, **facts: object
    ) -> None:
        super().__init__(reason, **facts)
        self.retry_after_seconds = retry_after_seconds


class LeaseOverdueError(TransientClusterError):
    """This operator could not renew its Lease in time; it writes nothing until it has done so."""


class PermanentClusterError(ClusterError):
    """The same request would be refused again.

    Args:
        status: HTTP status of the answer.
    """

    def __init__(self, reason: str, *, status: int, **facts: object) -> None:
        super().__init__(reason, **facts)
        self.status = status


class RegistryUnavailableError(SecureBenchError):
    """A registry of packs did not answer, or broke off; transient, may be retried."""


class ObjectGoneError(SecureBenchError):
    """The BenchmarkRun or BenchmarkSuite was deleted, or another one has its name."""


class StorageError(SecureBenchError):
    """The volume did not do what was asked."""


class JournalCorruptError(StorageError):
    """A journal line before the last one does not hold.

    Args:
        line: Line number from 1.
    """

    def __init__(self, reason: str, *, line: int) -> None:
        super().__init__(reason, line=line)
        self.line = line


class TooLargeError(StorageError):
    """Something exceeds its bound."""


class DigestMismatchError(StorageError):
    """Bytes differ from what was recorded."""


class InvariantViolationError(SecureBenchError):
    """A state that only a defect of SecureBench can reach."""


class PlanChangedError(InvariantViolationError):
    """This version of the operator reads a run that is under way otherwise than it was begun."""
