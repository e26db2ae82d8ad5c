"""The calls of the exec protocol with which a tester watches a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from securebench.clock import SystemClock
from securebench.controller.exec.exec_packs import UNKNOWN_OPERATION
from securebench.controller.exec.in_flight import get_active
from securebench.controller.exec.launches import get_launches
from securebench.controller.exec.live_output import get_live
from securebench.controller.exec.output import get_output
from securebench.controller.exec.task_ids import list_tasks
from securebench.errors import InvalidInputError
from securebench.protocol import exec_calls
from securebench.protocol.exec_calls import Operation
from securebench.run import layout


def watch_answer(
    operation: str, root: Path, uid: str, words: Sequence[str], sink: IO[bytes]
) -> Mapping[str, object]:
    """Answer one call about a run.

    Args:
        operation: One of ``WATCH_OPERATIONS``.
        root: Root of the volume.
        uid: Uid of the BenchmarkRun.
        words: The other arguments, as the asker wrote them.
        sink: Where the bytes go.

    Raises:
        InvalidInputError: The arguments do not fit the operation.
    """
    folder = root / layout.run_folder(uid)
    match [operation, *words]:
        case [Operation.GET_LAUNCHES, "", exec_calls.NEAR_LIMITS]:
            return get_launches(folder, "", SystemClock().now(), sink, with_noisy=True)
        case [Operation.GET_LAUNCHES, *task] if len(task) <= 1:
            return get_launches(folder, "".join(task), SystemClock().now(), sink)
        case [Operation.GET_LIVE, *marks]:
            return get_live(folder, marks, sink)
        case [Operation.GET_ACTIVE]:
            return get_active(folder, SystemClock().now(), sink)
        case [Operation.GET_OUTPUT, task, *marks]:
            return get_output(root, uid, task, marks, sink)
        case [Operation.LIST_TASKS]:
            return list_tasks(root, uid, sink)
    raise InvalidInputError(UNKNOWN_OPERATION)
