"""task.toml: typed values, refusals with their key, remarks, and lines of TOML errors."""

import pytest

from securebench.benchmark.harbor.config import (
    FindingKind,
    HarborNetwork,
    Template,
    VerifierMode,
    read_config,
    template,
)

REFUSED = {
    "environment.gpus": "[environment]\ngpus = 1",
    "environment.gpu_types": "[environment]\ngpu_types = ['H100']",
    "environment.tpu": "[environment.tpu]\ntype = 'v4'\ntopology = '2x2'",
    "environment.os": "[environment]\nos = 'Windows'",
    "environment.mcp_servers": "[[environment.mcp_servers]]\nname = 'x'\nurl = 'http://x'",
    "environment.cpus": "[environment]\ncpus = 0",
    "environment.memory_mb": "[environment]\nmemory_mb = -1",
    "environment.memory": "[environment]\nmemory = '2GB'",
    "environment.storage": "[environment]\nstorage = '1G'\nstorage_mb = 7",
    "environment.workdir": "[environment]\nworkdir = 'app'",
    "environment.network_mode": "[environment]\nnetwork_mode = 'none'",
    "environment.allowed_hosts": "[environment]\nallowed_hosts = ['a.com']",
    "environment.allowed_hosts[1]": (
        "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.com', 'http://b.com']"
    ),
    "environment.env": "[environment.env]\n'A=B' = 'c'",
    "environment.env.A": "[environment.env]\nA = 1",
    "environment.healthcheck.command": "[environment.healthcheck]\nretries = 2",
    "agent.timeout_sec": "[agent]\ntimeout_sec = 0",
    "agent.user": "[agent]\nuser = -1",
    "agent.allowed_hosts": "[agent]\nallowed_hosts = []",
    "verifier.timeout_sec": "[verifier]\ntimeout_sec = inf",
    "verifier.environment": "[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]",
    "verifier.environment.gpus": "[verifier.environment]\ngpus = 1",
    "verifier.collect[0].command": "[[verifier.collect]]\nservice = 'db'",
    "artifacts[0].source": "artifacts = [{source = '/a/../b'}]",
    "artifacts[0]": "artifacts = ['/a/../b']",
    "artifacts[1].destination": "artifacts = ['/a', {source = '/b', destination = '/c'}]",
    "steps[1].name": "[[steps]]\nname = 'one'\n[[steps]]\nname = 'ONE'",
    "steps[0].min_reward": "[[steps]]\nname = 'one'\nmin_reward = 'x'",
    "steps[0].agent.timeout_sec": "[[steps]]\nname = 'one'\nagent.timeout_sec = -5",
    "task.name": "[task]\nname = 'no-organization'",
    "schema_version": "schema_version = 1.4",
    "multi_step_reward_strategy": "multi_step_reward_strategy = 'sum'",
}


def keys(text, kind=FindingKind.REFUSED):
    return [each.key for each in read_config(text).findings if each.kind is kind]


@pytest.mark.parametrize("key", REFUSED)
def test_a_refusal_names_its_key(key):
    assert keys(REFUSED[key]) == [key]


def test_all_refusals_of_a_file_come_together():
    text = """
    multi_step_reward_strategy = 'sum'
    [environment]
    gpus = 1
    memory = '2GB'
    cpus = 'many'
    allowed_hosts = ['a.com']
    [verifier]
    environment_mode = 'shared'
    timeout_sec = 0
    [verifier.environment]
    os = 'windows'
    """
    assert set(keys(text)) == {
        "multi_step_reward_strategy",
        "environment.gpus",
        "environment.memory",
        "environment.cpus",
        "environment.allowed_hosts",
        "verifier.environment",
        "verifier.timeout_sec",
        "verifier.environment.os",
    }


@pytest.mark.parametrize(
    ("text", "want_line"),
    {
        "no value": ("a = 1\nb =\n", 2),
        "a table twice": ("[a]\n[a]\n", 2),
        "an open string": ("a = 1\nb = '''\nx\n", 3),
        "an open list": ("a = [\n1,\n", 2),
        "a mark of the encoding": ("\ufeffa = 1\n", 1),
        "brackets beyond what Python reads": (f"a = 1\nb = {'[' * 9000}{']' * 9000}\nc = 2\n", 2),
        "brackets beyond our bound": (f"a = 1\n\nb = {'[' * 70}{']' * 70}\nc = 2\n", 3),
        "a number of 5,000 digits": (f"a = 1\nb = {'9' * 5000}\nc = 2\n", 2),
    }.values(),
)
def test_a_toml_error_has_its_line(text, want_line):
    (finding,) = read_config(text).findings
    assert (finding.kind, finding.line) == (FindingKind.REFUSED, want_line)
    assert finding.reason.startswith("invalid TOML: ")
    assert read_config(text).config is None


def test_no_message_shows_a_value():
    text = """
    [environment]
    cpus = 'hunter2'
    env.A = {B = 'hunter2'}
    [agent]
    user = "hunter2\\n"
    """
    assert all("hunter2" not in str(each) for each in read_config(text).findings)


REMARKS = {
    "unheard_of": "unheard_of = 1",
    "environment.cpu": "[environment]\ncpu = 1",
    "agent.kwargs": "[agent]\nkwargs = {a = 1}",
    "agent.allow_internet": "[agent]\nallow_internet = false",
    "steps[0].inherit_prior_session": "[[steps]]\nname = 'one'\ninherit_prior_session = true",
    "environment.'a b'": "[environment]\n'a b' = 1",
    "version": "version = '1.0'\nschema_version = '1.3'",
    "schema_version": "schema_version = '9'",
    "environment.memory": "[environment]\nmemory = 2048",
    "environment.allow_internet": "[environment]\nallow_internet = false\nnetwork_mode = 'public'",
    "multi_step_reward_strategy": "multi_step_reward_strategy = 'mean'",
}


@pytest.mark.parametrize("key", REMARKS)
def test_what_has_no_effect_is_a_remark(key):
    reading = read_config(REMARKS[key])
    assert keys(REMARKS[key], FindingKind.REMARK) == [key]
    assert reading.config is not None
    assert not keys(REMARKS[key])


def test_a_misspelt_key_is_named_with_the_nearest_one():
    (finding,) = read_config("[environment]\nmemory_mib = 5").findings
    assert "memory_mb" in finding.reason


def test_values_of_metadata_are_free():
    assert read_config("[metadata]\nunheard_of = {deep = [1]}\nwhen = 2026-01-01").findings == ()


def test_ignored_keys_are_listed():
    text = "source = 'x'\n[environment]\nbuild_timeout_sec = 60"
    assert keys(text, FindingKind.IGNORED) == ["source", "environment.build_timeout_sec"]


ALLOWLIST = """
network_mode = 'allowlist'
allowed_hosts = [' A.com. ', '*.b.org', '10.0.0.0/8', '2001:DB8::1']
"""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", HarborNetwork("public")),
        ("allow_internet = false", HarborNetwork("no-network")),
        ("allow_internet = true", HarborNetwork("public")),
        ("allow_internet = false\nnetwork_mode = 'public'", HarborNetwork("public")),
        ("allow_internet = false\nallowed_hosts = []", HarborNetwork("public")),
        (
            ALLOWLIST,
            HarborNetwork("allowlist", ("a.com", "*.b.org", "10.0.0.0/8", "2001:db8::1")),
        ),
    ],
)
def test_the_network_of_a_container(text, want):
    assert read_config(f"[environment]\n{text}").config.environment.network == want


def test_a_phase_says_nothing_or_has_its_own_network():
    config = read_config("[agent]\nnetwork_mode = 'no-network'").config
    assert (config.agent.network, config.verifier.network) == (HarborNetwork("no-network"), None)


@pytest.mark.parametrize(
    ("text", "want_mode", "want_cpus"),
    [
        ("[environment]\ncpus = 2", VerifierMode.SHARED, None),
        (
            "[environment]\ncpus = 2\n[verifier]\nenvironment_mode = 'separate'",
            VerifierMode.SEPARATE,
            2,
        ),
        ("[environment]\ncpus = 2\n[verifier.environment]\ncpus = 1.0", VerifierMode.SEPARATE, 1),
    ],
)
def test_where_the_tests_run(text, want_mode, want_cpus):
    config = read_config(text).config
    environment = config.verifier_environment()
    assert config.verifier_mode() is want_mode
    assert (None if environment is None else environment.cpus) == want_cpus


def test_the_verifier_of_a_step_comes_before_that_of_the_task():
    text = """
    [verifier.environment]
    cpus = 1
    [[steps]]
    name = 'one'
    verifier.environment_mode = 'shared'
    [[steps]]
    name = 'two'
    verifier.environment.cpus = 4
    [[steps]]
    name = 'three'
    """
    config = read_config(text).config
    found = [config.verifier_environment(step) for step in config.steps]
    assert [None if each is None else each.cpus for each in found] == [None, 4, 1]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("${NAME}", Template("NAME", None)),
        ("${NAME:-}", Template("NAME", "")),
        ("${NAME:-a b}", Template("NAME", "a b")),
        ("http://${HOST}/", None),
        ("$NAME", None),
        ("", None),
    ],
)
def test_a_template_is_a_whole_value(value, want):
    assert template(value) == want


def test_a_hostile_file_has_a_bounded_report():
    text = "".join(f"k{number} = 1\n" for number in range(5000))
    findings = read_config(text + f"artifacts = [{'1, ' * 5000}]\nagent = 1\n").findings
    assert len(findings) < 500
    assert {each.kind for each in findings} == {FindingKind.REMARK, FindingKind.REFUSED}
    assert "not listed" in str(findings[200])


@pytest.mark.parametrize(
    ("text", "want_agent", "want_verifier"),
    [
        ("", "public", "public"),
        ("environment.network_mode = 'no-network'", "no-network", "no-network"),
        ("agent.network_mode = 'no-network'", "no-network", "public"),
        ("verifier.network_mode = 'no-network'", "public", "no-network"),
        (
            "environment.network_mode = 'no-network'\nverifier.environment_mode = 'separate'",
            "no-network",
            "no-network",
        ),
        (
            "environment.network_mode = 'no-network'\nverifier.environment.cpus = 1",
            "no-network",
            "public",
        ),
        (
            "verifier.network_mode = 'no-network'\nverifier.environment.network_mode = 'public'",
            "public",
            "no-network",
        ),
    ],
)
def test_the_network_of_each_phase(text, want_agent, want_verifier):
    config = read_config(text).config
    assert (config.agent_network().mode, config.verifier_network().mode) == (
        want_agent,
        want_verifier,
    )


def test_a_step_has_its_own_networks_or_those_of_the_task():
    text = """
    agent.network_mode = 'no-network'
    [[steps]]
    name = 'one'
    agent.network_mode = 'public'
    verifier.network_mode = 'no-network'
    [[steps]]
    name = 'two'
    """
    config = read_config(text).config
    found = [
        (config.agent_network(step).mode, config.verifier_network(step).mode)
        for step in config.steps
    ]
    assert found == [("public", "no-network"), ("no-network", "public")]


def test_variables_from_outside_are_found_in_every_table():
    text = """
    environment.env = {A = '${A}', B = 'x${A}'}
    solution.env = {C = '${X:-1}'}
    verifier.env = {D = '${KEY}'}
    verifier.environment.env = {E = '${KEY}'}
    [[steps]]
    name = 'one'
    verifier.env = {F = '${KEY}'}
    verifier.environment.env = {G = '${KEY}'}
    """
    assert dict(read_config(text).config.templates()) == {
        "environment.env.A": Template("A", None),
        "solution.env.C": Template("X", "1"),
        "verifier.env.D": Template("KEY", None),
        "verifier.environment.env.E": Template("KEY", None),
        "steps[0].verifier.env.F": Template("KEY", None),
        "steps[0].verifier.environment.env.G": Template("KEY", None),
    }


def test_a_key_of_the_root_below_a_table_says_where_it_belongs():
    text = "[environment]\nmulti_step_reward_strategy = 'final'"
    (finding,) = read_config(text).findings
    assert str(finding) == (
        "environment.multi_step_reward_strategy: unknown key, which Harbor drops;"
        " multi_step_reward_strategy stands before the first table of the file"
    )
