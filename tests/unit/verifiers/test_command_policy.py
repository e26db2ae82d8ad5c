import pytest

from securebench.verifiers.command_policy import (
    CommandAttempt,
    CommandError,
    CommandPolicy,
    PolicySandbox,
    executable_name,
)

NAMES = {
    "string": ("git status --short", "git"),
    "path": ("/usr/bin/git status", "git"),
    "quoted": ("'/opt/my tools/run' x", "run"),
    "argv": (["/bin/sh", "-c", "git status"], "sh"),
    "argv is not split": (["git status"], "git status"),
}


@pytest.mark.parametrize("case", NAMES)
def test_the_name_is_the_last_component_of_the_first_word(case):
    command, want_name = NAMES[case]
    assert executable_name(command) == want_name


@pytest.mark.parametrize("command", ["", "   ", [], ()])
def test_a_command_without_a_word_is_a_value_error(command):
    with pytest.raises(ValueError, match="empty"):
        CommandPolicy().decide(command)


DECISIONS = {
    "no rules": (CommandPolicy(), "ls", ""),
    "allowed": (CommandPolicy(allow=frozenset({"ls"})), "/bin/ls -l", ""),
    "not allowed": (CommandPolicy(allow=frozenset({"ls"})), "cat x", "'cat' is not in allow list"),
    "denied": (CommandPolicy(deny=frozenset({"rm"})), ["/bin/rm", "x"], "'rm' is denied"),
    "another is denied": (CommandPolicy(deny=frozenset({"rm"})), "ls rm", ""),
    "deny wins": (
        CommandPolicy(allow=frozenset({"rm"}), deny=frozenset({"rm"})),
        "rm x",
        "'rm' is denied",
    ),
    "everything is denied": (
        CommandPolicy(allow=frozenset({"ls"}), deny=frozenset({"*"})),
        "ls",
        "'ls' is denied",
    ),
    "the star is no pattern of allow": (
        CommandPolicy(allow=frozenset({"*"})),
        "ls",
        "'ls' is not in allow list",
    ),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_decisions(case):
    policy, command, want_reason = DECISIONS[case]
    attempt = policy.decide(command)
    assert (attempt.allowed, attempt.reason) == (not want_reason, want_reason)


def test_the_sandbox_logs_every_attempt_and_refuses_before_it_delegates():
    ran = []

    def run(command):
        ran.append(command)
        return f"ran {command}"

    sandbox = PolicySandbox(run, CommandPolicy(deny=frozenset({"rm"})))
    assert sandbox.run("ls -l") == "ran ls -l"
    for refused in (["rm", "x"], "rm 'x", []):
        with pytest.raises(CommandError):
            sandbox.run(refused)
    assert ran == ["ls -l"]
    assert sandbox.attempts == [
        CommandAttempt("ls -l", "ls", allowed=True, reason=""),
        CommandAttempt(["rm", "x"], "rm", allowed=False, reason="'rm' is denied"),
        CommandAttempt(
            "rm 'x", "", allowed=False, reason="the command cannot be split: No closing quotation"
        ),
        CommandAttempt([], "", allowed=False, reason="the command is empty"),
    ]
