"""Lines for ``--show-agent-output``: events of both tools, and what is none."""

import json

import pytest

from securebench.agents.harness import AgentCli
from securebench.agents.registry import cli_agents, cli_named
from securebench.client.progress import agent_lines, shown_agent

CODEX_CLI, CLAUDE_CLI = cli_named("codex"), cli_named("claude_code")
CLIS = [cli for _, cli in cli_agents()]


@pytest.mark.parametrize(
    ("kind", "command", "want"),
    [
        ("codex", "", CODEX_CLI),
        ("claude_code", "", CLAUDE_CLI),
        ("command", "cd x && codex exec --json", CODEX_CLI),
        ("command", "python3 agent.py", None),
        ("oracle", "", None),
    ],
)
def test_whose_events_a_harness_prints(kind: str, command: str, want: AgentCli | None) -> None:
    assert shown_agent(kind, command) is want


CODEX = [
    {"type": "item.started", "item": {"type": "command_execution", "command": "c" * 400}},
    {
        "type": "item.completed",
        "item": {"type": "command_execution", "command": "d" * 400, "exit_code": 2},
    },
    {"type": "item.completed", "item": {"type": "agent_message", "text": "hi\x1b"}},
    {"type": "turn.completed"},
    {"type": "thread.started"},
]


def test_codex_events_become_lines() -> None:
    stdout = "\n".join([*(json.dumps(event) for event in CODEX), "no json", ""])
    lines = list(agent_lines(CODEX_CLI, stdout, "warn\n"))
    assert [(line.text, line.is_shown) for line in lines] == [
        ("codex run: " + "c" * 300, True),
        ("codex done: exit=2 " + "d" * 220, False),
        ("codex: hi\ufffd", True),
        ("codex: turn complete", True),
        ("codex: no json", True),
        ("codex stderr: warn", True),
    ]


def assistant(**block: object) -> dict[str, object]:
    return {"type": "assistant", "message": {"content": [block]}}


def result(number: str, content: object, *, failed: bool) -> dict[str, object]:
    block = {"type": "tool_result", "tool_use_id": number, "content": content, "is_error": failed}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


CLAUDE = [
    {"type": "system", "subtype": "init", "cwd": "/workspace"},
    assistant(type="tool_use", id="toolu_1", name="Bash", input={"command": "c" * 400}),
    result("toolu_1", "Exit code 3\nout\nerr", failed=True),
    assistant(type="tool_use", id="toolu_2", name="Grep", input={"pattern": "x"}),
    result("toolu_2", [{"type": "text", "text": "found"}], failed=False),
    result("toolu_9", "nobody asked", failed=True),
    assistant(type="text", text="Done\x1b[2J\nAll of it."),
    {"is_error": False, "type": "result", "subtype": "success"},
]


def test_claude_events_become_lines() -> None:
    stdout = "\n".join([*(json.dumps(event) for event in CLAUDE), "no json"])
    lines = list(agent_lines(CLAUDE_CLI, stdout, "warn"))
    assert [(line.text, line.is_shown) for line in lines] == [
        ("claude run: " + "c" * 300, True),
        ("claude done: exit=3 " + "c" * 220, False),
        ('claude run: Grep {"pattern": "x"}', True),
        ('claude done: exit=0 Grep {"pattern": "x"}', False),
        ("claude done: exit=1 ", False),
        ("claude: Done\ufffd[2J All of it.", True),
        ("claude: turn complete", True),
        ("claude: no json", True),
        ("claude stderr: warn", True),
    ]


FAILED = {
    "codex": {"type": "turn.failed", "error": {"message": "no quota"}},
    "claude": {"type": "result", "subtype": "success", "is_error": True, "result": "no quota"},
    "mini": {"type": "exit", "status": "", "text": "no quota"},
    "opencode": {"type": "error", "error": {"name": "APIError", "data": {"message": "no quota"}}},
}


@pytest.mark.parametrize("agent", CLIS, ids=lambda agent: agent.title)
def test_a_failed_turn_is_none_that_completed(agent: AgentCli) -> None:
    (line,) = agent_lines(agent, json.dumps(FAILED[agent.title]), "")
    assert line.text == f"{agent.title}: turn failed: no quota"


@pytest.mark.parametrize("agent", CLIS, ids=lambda agent: agent.title)
@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": ["turn.completed"]},
        {"type": "item.completed", "item": "text"},
        {"type": "assistant", "message": {"content": "text"}},
        {"type": "assistant", "message": {"content": [1, {"type": None}]}},
        {"type": "user", "message": []},
    ],
)
def test_an_event_of_another_form_says_nothing(agent: AgentCli, event: object) -> None:
    assert list(agent_lines(agent, json.dumps(event), "")) == []


@pytest.mark.parametrize("agent", CLIS, ids=lambda agent: agent.title)
@pytest.mark.parametrize("text", ["[1]", "3", "[" * 100_000, "{" + "x" * 50_000])
def test_what_is_no_event_is_a_line_with_a_bound(agent: AgentCli, text: str) -> None:
    (line,) = agent_lines(agent, text, "")
    assert line.is_shown
    assert line.text == f"{agent.title}: {text}"[:4000]
