"""What an agent prints, for those who watch it work: a file beside a launch's streams.

The courier writes it, the operator's Pod reads it to a tester; nothing is judged by it.
"""

from __future__ import annotations

from typing import Final

LIVE_OUTPUT: Final = "live-stdout"
"""Name of the file."""

LIVE_BYTES: Final = 1024**2
"""Most bytes of it; what comes later is told with the task's record."""
