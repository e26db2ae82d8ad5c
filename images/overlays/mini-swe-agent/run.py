"""Runs mini-swe-agent on one task without a terminal, and prints what it does as JSON lines.

Loop, prompts, configuration (``mini.yaml``) and environment are mini-swe-agent's own. The model
class speaks Chat Completions to the sidecar: litellm would take seconds to import in each launch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "site"))

import requests
import yaml
from minisweagent import __version__
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.openrouter_model import OpenRouterModel
from minisweagent.models.utils.actions_toolcall import BASH_TOOL

ANSWER_SECONDS = 1800
"""Longest wait for an answer; the gateway cuts silent ones sooner."""
OUTPUT_CHARACTERS = 10_000
"""Of a command's output in an event; the trajectory is not kept."""
REPEATED = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Statuses of refused requests that may pass when they are repeated."""
SUBMITTED = "Submitted"


class RefusedError(Exception):
    """The request itself is refused: repeating it would not help."""


class ChatModel(OpenRouterModel):
    """A model behind Chat Completions.

    Args:
        url: Base URL of the API.
        key: Sent as bearer.
        config: Of mini-swe-agent's model.
    """

    abort_exceptions = (RefusedError, KeyboardInterrupt)

    def __init__(self, url: str, key: str, **config: Any) -> None:
        super().__init__(cost_tracking="ignore_errors", **config)
        self._url = f"{url}/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}"}

    def _query(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        body = {"model": self.config.model_name, "messages": messages, "tools": [BASH_TOOL]}
        body |= self.config.model_kwargs | more
        answer = requests.post(self._url, headers=self._headers, json=body, timeout=ANSWER_SECONDS)
        status = answer.status_code
        is_refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        if is_refused and status not in REPEATED:
            raise RefusedError(f"HTTP {status}: {answer.text[:2000]}")
        answer.raise_for_status()
        return answer.json()

    def _calculate_cost(self, _response: object) -> dict[str, float]:
        return {"cost": 0.0}


class TellingAgent(DefaultAgent):
    """Prints each message as one event."""

    def __init__(self, *arguments: Any, **config: Any) -> None:
        super().__init__(*arguments, **config)
        self._commands: list[str] = []

    def add_messages(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        """Print and keep messages."""
        for message in messages:
            self._tell(message)
        return super().add_messages(*messages)

    def _tell(self, message: Mapping[str, Any]) -> None:
        extra = message.get("extra", {})
        if message.get("role") == "assistant":
            self._commands = [action["command"] for action in extra.get("actions", [])]
            tell("assistant", text=message.get("content") or "", commands=self._commands)
        elif message.get("role") == "tool":
            output = str(extra.get("raw_output", ""))[:OUTPUT_CHARACTERS]
            command = self._commands.pop(0) if self._commands else ""
            tell("result", command=command, exit_code=extra.get("returncode"), output=output)
        elif message.get("role") == "exit":
            told = "" if extra.get("exit_status") == SUBMITTED else message.get("content", "")
            tell("exit", status=extra.get("exit_status", ""), text=told)


def tell(kind: str, **fields: object) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the agent once; return 0 where it has handed in its work."""
    parser = argparse.ArgumentParser(prog="mini-swe-agent")
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--model", required=True)
    parser.add_argument("task")
    given = parser.parse_args()
    config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
    kept = {name: value for name, value in config["model"].items() if name != "model_kwargs"}
    model = ChatModel(
        os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], model_name=given.model, **kept
    )
    agent = TellingAgent(
        model, LocalEnvironment(**config["environment"]), **config["agent"] | {"cost_limit": 0}
    )
    try:
        return 0 if agent.run(given.task).get("exit_status") == SUBMITTED else 1
    except Exception as error:  # noqa: BLE001 - the agent has told it as its exit
        sys.stderr.write(f"mini-swe-agent: {type(error).__name__}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
