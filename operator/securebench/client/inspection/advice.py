"""What to do about a run that waits or has failed, by the reason of ``Succeeded``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from securebench.run.api.status import Reason
from securebench.run.observe.waiting import is_about_unpulled

ADVICE: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.INCOMPLETE: "run what has no verdict again: securebench resume RUN",
        Reason.INVALID_SPEC: "correct the spec as the message says and create a new run",
        Reason.PACK_INVALID: "securebench pack lint shows the same with file and line; push the"
        " corrected pack and start again",
        Reason.ISOLATION_NOT_VERIFIED: "the cluster does not enforce network policies for this"
        " namespace; ask its administrator",
        Reason.DEADLINE_EXCEEDED: "raise activeDeadlineSeconds or parallelism, then securebench"
        " resume RUN",
        Reason.CANCELLED: "run the rest: securebench resume RUN",
        Reason.BUDGET_EXHAUSTED: "run the rest with a budget of its own: securebench resume RUN",
        Reason.POD_REFUSED: "the API server refuses the Pods; the message says why, a policy or"
        " Pod Security may be at work",
        Reason.GATEWAY_FAILED: "check the provider's key and address, then securebench resume RUN",
        Reason.STORAGE_UNAVAILABLE: "the operator tries again; its administrator looks at the"
        " results volume",
        Reason.INTERNAL: "the operator tries again; kubectl logs of its Pod has the error",
        Reason.CANCELLING: "wait for the launches in progress, or end them too: securebench cancel"
        " --now RUN",
        Reason.SUSPENDED: "resume it: securebench resume RUN",
        Reason.QUOTA_EXCEEDED: "wait for other Pods to end, lower parallelism, or ask for more"
        " quota",
        Reason.FORBIDDEN: "rights or an admission policy refuse what the run needs; ask the"
        " administrator",
        Reason.UNSCHEDULABLE: "no node has room: lower resources or parallelism, or wait for a"
        " node",
        Reason.SCHEDULING_GATED: "wait for the queue; kubectl describe workloads shows why Kueue"
        " admits no Pod: no quota, or no such queue",
        Reason.QUEUED: "wait for other runs of this operator to end",
        Reason.INPUT_MISSING: "create the missing pack, Secret or earlier run; the run goes on by"
        " itself",
    }
)
"""A reason without an entry asks nothing of anybody."""


IMAGE_ADVICE = (
    "correct environment.image in the pack, or push the image; to end this run: securebench cancel"
    " --now RUN"
)
"""About an image that cannot be pulled, whatever the reason."""


def advice(reason: str, run: str, message: str = "") -> str:
    """Return what to do about a run in this state, or an empty text.

    Args:
        reason: Reason of its condition ``Succeeded``.
        run: Its name.
        message: The message of that condition.
    """
    found = next((words for key, words in ADVICE.items() if key.value == reason), "")
    if not found and is_about_unpulled(message):
        found = IMAGE_ADVICE
    return found.replace("RUN", run)
