"""What a BenchmarkSuite remembers on the volume. Every method blocks."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from securebench.controller.volume.lead import VolumeLead
from securebench.errors import StorageError
from securebench.files import make_folder, replace_file
from securebench.run.layout import SUITES
from securebench.suite.rounds import SuiteState

STATE = "state.json"
_ADAPTER = TypeAdapter(SuiteState)


def suite_folders(root: Path) -> list[str]:
    """Return the uids of all suites with a folder on a volume."""
    folder = root / SUITES
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


class SuiteStore:
    """The folder of one suite.

    A thread that writes may outlive the loop that asked for it; once the folder was removed,
    nothing is written any more.

    Args:
        root: Where the volume is mounted.
        uid: UID of the BenchmarkSuite.
        lead: Who writes; None only reads.
    """

    def __init__(self, root: Path, uid: str, lead: VolumeLead | None = None) -> None:
        self._folder = root / SUITES / uid
        self._lead = lead
        self._lock = threading.Lock()
        self._is_removed = False

    def read(self) -> SuiteState | None:
        """Return what was written last, or None.

        Raises:
            StorageError: The file holds something else.
        """
        path = self._folder / STATE
        try:
            return _ADAPTER.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise StorageError(f"{path.parent.name}/{STATE} holds no state of a suite") from error

    def write(self, state: SuiteState) -> None:
        """Replace what the suite remembers.

        Raises:
            StorageError: It was removed.
            OSError: The disk did not take it.
        """
        staging = self._lead.folder if self._lead is not None else None
        with self._lock:
            if self._is_removed:
                raise StorageError(f"suite {self._folder.name} was deleted: it remembers nothing")
            make_folder(self._folder)
            replace_file(self._folder / STATE, _ADAPTER.dump_json(state, indent=2), staging)

    def remove(self) -> None:
        """Forget the suite for good; what is gone already is no error.

        Raises:
            OSError: The folder is still there.
        """
        with self._lock, suppress(FileNotFoundError):
            self._is_removed = True
            shutil.rmtree(self._folder)
