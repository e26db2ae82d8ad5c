"""Requests to the model provider that are not forwarded, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.agents.providers.provider import RequestRefusal
from securebench.errors import SecureBenchError
from securebench.gateway.net.causes import Cause
from securebench.gateway.relay import account
from securebench.reasons import PROVIDER_AUTH

if TYPE_CHECKING:
    from securebench.gateway.server.launch import ServedLaunch
    from securebench.protocol.gateway import ProviderConfig

_CAUSES = {
    RequestRefusal.NOT_RELAYED: Cause.PATH,
    RequestRefusal.BAD_REQUEST: Cause.BAD_REQUEST,
    RequestRefusal.TOO_LARGE: Cause.TOO_LARGE,
    RequestRefusal.BUDGET: Cause.BUDGET,
    RequestRefusal.RUN_BUDGET: Cause.RUN_BUDGET,
    RequestRefusal.NO_USAGE: Cause.BUDGET,
}
_OBSTACLES = {
    RequestRefusal.BUDGET: (
        "the budget of this task is used up; no further request is sent to the model"
    ),
    RequestRefusal.RUN_BUDGET: (
        "the token budget of the whole run is used up; no further request is sent to the model"
    ),
    RequestRefusal.NO_USAGE: (
        "the model provider reports no tokens, so the token budget of this run cannot be kept; tell"
        " the tester"
    ),
    RequestRefusal.KEY_REFUSED: "the model provider rejects the key of this run; tell the tester",
}


class RefusedCallError(SecureBenchError):
    """A request that is not forwarded.

    Args:
        refusal: Determines the response.
        reason: Message for the agent.
        kinds: Kinds of hosted tools that it asked for.
    """

    def __init__(self, refusal: RequestRefusal, reason: str, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.kinds = kinds

    @property
    def cause(self) -> str:
        """Return the reason for the decision log."""
        if self.kinds:
            return Cause.HOSTED_TOOL.value
        cause = _CAUSES.get(self.refusal)
        return PROVIDER_AUTH if cause is None else cause.value


def obstacle_error(refusal: RequestRefusal) -> RefusedCallError:
    """Return the error for what no request of this launch gets past: a budget or the key."""
    return RefusedCallError(refusal, _OBSTACLES[refusal])


def check_obstacle(launch: ServedLaunch, config: ProviderConfig) -> None:
    """Refuse a request of a launch that may not send any.

    Raises:
        RefusedCallError: A budget is used up, or the provider rejects the key.
    """
    found = account.obstacle(launch.relay, config)
    if found is not None:
        raise obstacle_error(found)
