"""How each error that is waited out is reported."""

import errno
import inspect

import pytest

from securebench import errors
from securebench.cluster import port
from securebench.cluster.port import AlreadyExists, Forbidden, QuotaExceeded, WatchExpired
from securebench.controller.events import OUTAGES, outage_reason
from securebench.errors import (
    ClusterError,
    DigestMismatchError,
    JournalCorruptError,
    LeaseOverdueError,
    PermanentClusterError,
    RegistryUnavailableError,
    StorageError,
    TooLargeError,
    TransientClusterError,
)
from securebench.suite.api import SuiteReason

REMEDY = "; mend the operator's rights, Pod Security or the admission webhook that refuses it"
REPORTED = [
    (ClusterError("no"), "Internal", "the API server: no"),
    (TransientClusterError("429"), "Internal", "the API server: 429"),
    (LeaseOverdueError("late"), "Internal", "the API server: late"),
    (PermanentClusterError("401", status=401), "Internal", "the API server: 401"),
    (AlreadyExists("x"), "Internal", "the API server: x already exists"),
    (WatchExpired("too old"), "Internal", "the API server: too old"),
    (QuotaExceeded("count/pods"), "QuotaExceeded", "count/pods"),
    (Forbidden("denied", status=403), "Forbidden", f"denied{REMEDY}"),
    (RegistryUnavailableError("503"), "RegistryUnavailable", "503"),
    (StorageError("damaged"), "StorageUnavailable", "the results volume: damaged"),
    (JournalCorruptError("line 2", line=2), "StorageUnavailable", "the results volume: line 2"),
    (TooLargeError("large"), "StorageUnavailable", "the results volume: large"),
    (DigestMismatchError("other"), "StorageUnavailable", "the results volume: other"),
    (OSError(errno.ENOSPC, "full", "/x"), "StorageUnavailable", "the results volume: full"),
    (TimeoutError("slow"), "StorageUnavailable", "the results volume: slow"),
]


@pytest.mark.parametrize(("error", "want_reason", "want_message"), REPORTED)
def test_each_kind_has_its_reason(error, want_reason, want_message):
    found = outage_reason(error)
    assert (found.reason.value, found.message) == (want_reason, want_message)
    assert SuiteReason(found.reason) == found.reason


def test_the_table_has_every_kind():
    defined = {
        kind
        for module in (errors, port)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, OUTAGES)
    }
    assert defined <= {type(error) for error, _, _ in REPORTED}
