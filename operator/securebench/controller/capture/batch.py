"""Takes a member's verdict from what the verifier of its batch left.

Whatever does not hold together makes the whole batch lost: its members are judged alone, and nobody
is blamed (decision 0061).
"""

from __future__ import annotations

from collections.abc import Mapping

from securebench.controller.volume.store import RunStore
from securebench.digests import content_digest
from securebench.errors import DigestMismatchError
from securebench.files.untrusted import UnreadableError, open_regular, open_root
from securebench.protocol.batch import MEMBER_BYTES, VERDICTS_FILE, decode_verdicts
from securebench.run.decide.attempt import MAX_BATCH_MEMBERS
from securebench.run.layout import VERIFICATION_NAME
from securebench.run.observe.termination import text_verdict, verdicts_digest
from securebench.run.plan.model import LaunchKey, member_name

MOST_BYTES = MAX_BATCH_MEMBERS * MEMBER_BYTES


class BatchLostError(Exception):
    """A batch has no verdict for a member; the message is one plain sentence."""


def batch_verdict(
    store: RunStore, first: LaunchKey, launch: LaunchKey, message: str
) -> tuple[bool, Mapping[str, object]]:
    """Return a member's verdict and its metadata.

    Args:
        store: The run's folder.
        first: The first launch of the batch.
        launch: The member.
        message: The verifier's termination message.

    Raises:
        BatchLostError: The verdicts cannot be read or are not those that the message names, or the
            member is none of theirs or has an error.
        OSError: The disk failed.
    """
    try:
        verdicts = decode_verdicts(_content(store, first, verdicts_digest(message)))
        return text_verdict(verdicts.get(member_name(launch), ""))
    except (DigestMismatchError, FileNotFoundError, UnreadableError, ValueError) as error:
        raise BatchLostError(f"the batch gave no verdict: {error}") from error


def _content(store: RunStore, first: LaunchKey, digest: str) -> bytes:
    with (
        open_root(store.launch_folder(first)) as root,
        open_regular(root, f"{VERIFICATION_NAME}/{VERDICTS_FILE}") as file,
    ):
        content = file.read(MOST_BYTES + 1)
    found = content_digest(content)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{VERDICTS_FILE} is longer than {MOST_BYTES} bytes")
    if found != digest:
        raise DigestMismatchError(
            f"{VERDICTS_FILE} has digest {found}, the verifier named {digest}",
            found=found,
            sealed=digest,
        )
    return content
