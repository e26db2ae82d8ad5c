"""``securebench operator-io``: the exec protocol inside the operator's Pod."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from securebench.controller.admission.pack_limits import pack_limits
from securebench.controller.exec.exec_io import Streams, serve
from securebench.controller.exec.exec_packs import Volume
from securebench.controller.volume_settings import load_volume_settings


def operator_io(arguments: Sequence[str]) -> int:
    """Answer one call of a tester; see ``securebench.controller.exec.exec_io``."""
    settings = load_volume_settings()
    volume = Volume(settings.data_root, pack_limits(settings))
    streams = Streams(sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    return serve(arguments, volume=volume, streams=streams)
