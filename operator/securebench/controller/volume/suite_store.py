"""What a BenchmarkSuite remembers on the volume. Every method blocks."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from securebench.controller.volume.lead import VolumeLead
from securebench.core.errors import StorageError
from securebench.files.durable import make_folder, replace_file
from securebench.run.layout import SUITES
from securebench.suite.rounds import SuiteState

STATE = "state.json"
_ADAPTER = TypeAdapter(SuiteState)


class SuiteStore:
    """The folder of one suite.

    Args:
        root: Where the volume is mounted.
        uid: Of the BenchmarkSuite.
        lead: Who writes; None only reads.
    """

    def __init__(self, root: Path, uid: str, lead: VolumeLead | None = None) -> None:
        self._folder = root / SUITES / uid
        self._lead = lead

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
        """Replace what the suite remembers."""
        make_folder(self._folder)
        staging = self._lead.folder if self._lead is not None else None
        replace_file(self._folder / STATE, _ADAPTER.dump_json(state, indent=2), staging)

    def remove(self) -> None:
        """Forget the suite; what is gone already is no error."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder)
