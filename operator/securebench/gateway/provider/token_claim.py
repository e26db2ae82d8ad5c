"""What one request to the model provider reserves of its run's token budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.agents.providers.provider import RequestRefusal
from securebench.gateway.net.streams import AgentStream, while_there
from securebench.gateway.provider.provider_call import ProviderCall, request_tokens
from securebench.gateway.provider.refused_call import check_obstacle, obstacle_error
from securebench.gateway.server.run_budget import RunBudgetSpentError

if TYPE_CHECKING:
    from securebench.gateway.server.launch import ServedLaunch
    from securebench.gateway.server.run_budget import RunBudget, TokenReservation
    from securebench.protocol.gateway import ProviderConfig


class TokenClaim:
    """A claim on the budget; it claims nothing where the run has none.

    Args:
        budget: The budget of the run, or None.
        launch: The launch that sends the request.
        config: The provider.
    """

    def __init__(
        self, budget: RunBudget | None, launch: ServedLaunch, config: ProviderConfig
    ) -> None:
        self._budget = budget
        self._launch = launch
        self._config = config
        self._reserved: TokenReservation | None = None

    async def reserve(self, agent: AgentStream, most_bytes: int) -> None:
        """Wait until the budget has room for a request with so large a body.

        Raises:
            RefusedCallError: The budget is used up, or the request may not be sent anyway.
            UnreachableError: The volume failed.
            OSError: The agent left meanwhile.
        """
        if self._budget is None:
            return
        if not await while_there(agent, self._take(self._budget, most_bytes)):
            raise ConnectionResetError("the agent left before there was room in the run's budget")

    def shrink(self, body_bytes: int) -> None:
        """Give back what was claimed beyond the body, whose size a chunked request does not say."""
        if self._reserved is not None:
            self._reserved.shrink(request_tokens(body_bytes))

    def settle(self, call: ProviderCall | None) -> None:
        """Replace the claim by what the call has used, which is nothing without a call."""
        if self._reserved is not None:
            self._reserved.settle(0 if call is None else call.used_tokens)

    async def _take(self, budget: RunBudget, most_bytes: int) -> None:
        check_obstacle(self._launch, self._config)
        try:
            self._reserved = await budget.reserve(self._launch, request_tokens(most_bytes))
        except RunBudgetSpentError:
            raise obstacle_error(RequestRefusal.RUN_BUDGET) from None
