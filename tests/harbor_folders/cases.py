"""Task folders to read twice: each key alone with every spelling, folders as a whole, random ones.

A case is a mapping of relative paths to texts. The generator has a constant seed, so that a case
has the same number on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from itertools import product
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

Files = dict[str, str]
Config = dict[str, Any]

_TIMES = (1, 600, 0.5, "30", "1e3", 1e9, True, 0, -1, 0.0, nan, inf, "x", "", [], {})
_WHOLE = (1, 2048, 2048.0, "2048", 2048.5, True, 0, -1, 10**20, "2G", nan, [], "")
_SIZES = (
    "2G",
    "512M",
    "65536K",
    "1.5G",
    " 2g ",
    "2GB",
    "2048",
    "",
    "G",
    "infG",
    "1_0M",
    "0M",
    "-1G",
    2048,
    True,
    [],
)
_USERS = ("root", "agent", 1000, "1000", 0, -1, 1000.0, 1000.5, True, "", [], 2**40)
_MODES = ("public", "no-network", "allowlist", "Public", "none", "", 1)
_HOSTS = (
    [],
    ["example.com"],
    ["Example.COM."],
    [" pypi.org "],
    ["*.example.com"],
    ["*example.com"],
    ["*.1.2.3.4"],
    ["1.2.3.4"],
    ["::1"],
    ["[::1]"],
    ["10.0.0.0/8"],
    ["10.0.0.1/8"],
    ["2001:DB8::/32"],
    ["fe80::1%eth0"],
    ["localhost"],
    ["a_b.com"],
    ["http://a.com"],
    ["a.com:80"],
    [""],
    ["."],
    ["-a.com"],
    ["a..b"],
    "a.com",
    [1],
    ["x" * 64 + ".com"],
    ["*."],
    ["a.com", "b.org"],
    ["xn--mnchen-3ya.de"],
    ["münchen.de"],
)
_TEXTS = ("x", "", "${NAME}", "${NAME:-x}", "http://${HOST}/", 1, True, [])
_ENVS = (
    {},
    {"A": "b"},
    {"A": ""},
    {"A": "${B}"},
    {"A": "${B:-c}"},
    {"A": 1},
    {"A": True},
    {"": "x"},
    {"a-b": "x"},
    {"A=B": "x"},
    {"A B": "x"},
    {"A": "a\nb"},
    {"A": "$B"},
    [],
    "x",
    {"A": {"B": "c"}},
)
_BOOLS = (True, False, "true", "no", 0, 1, "x", 2, [])
_LISTS = ([], ["x"], ["a", "b"], [1], "x", {})
_CHECKS = (
    {"command": "true"},
    {},
    {"command": ""},
    {"command": 1},
    "true",
    {"command": "x", "retries": 0},
    {"command": "x", "retries": "4"},
    {"command": "x", "interval_sec": 0},
    {"command": "x", "timeout_sec": 2.5},
    {"command": "x", "start_period_sec": 0},
    {"command": "x", "start_period_sec": -1},
    {"command": "x", "test": 1},
    {"command": "x", "start_interval_sec": 1},
    {"command": "x", "retries": 2.5},
    {"command": "x", "retries": -3},
)
_MCP = (
    [],
    [{"name": "x", "url": "http://a"}],
    [{"name": "x"}],
    [{"name": "x", "transport": "stdio", "command": "y"}],
    [{"name": "x", "transport": "http", "url": "http://a"}],
    "x",
)
_ARTIFACTS = (
    [],
    ["/app/out"],
    ["out"],
    ["/a/../b"],
    [""],
    [1],
    "x",
    [{"source": "/a"}],
    [{}],
    [{"source": "/a", "destination": ""}],
    [{"source": "/a", "destination": "b/c"}],
    [{"source": "/a", "destination": "/b"}],
    [{"source": "/a", "destination": "../b"}],
    [{"source": "/a", "destination": "a\\b"}],
    [{"source": "/a", "destination": "manifest.json"}],
    [{"source": "/a", "destination": "."}],
    [{"source": "/a", "exclude": ["*.o"]}],
    [{"source": "/a", "exclude": "*.o"}],
    [{"source": "/a", "service": "db"}],
    [{"source": "a", "service": "db"}],
    [{"source": "a", "service": "main"}],
    [{"source": "a", "service": " main "}],
    [{"source": "/a", "service": "-x"}],
    [{"source": "C:/a", "service": "db"}],
    [{"source": "/logs/artifacts"}],
    [{"source": "/logs/artifacts/", "exclude": ["x"]}],
    ["/a", "/a/b"],
    ["/a", "/a"],
    [{"source": "/a", "mode": 1}],
)
_COLLECT = (
    [],
    [{"command": "true"}],
    [{}],
    [{"command": "x", "service": "db"}],
    [{"command": "x", "service": ""}],
    [{"command": "x", "service": " db "}],
    [{"command": "x", "timeout_sec": 0}],
    [{"command": "x", "timeout_sec": "5"}],
    [{"command": "x", "user": 7}],
    [{"command": "x", "user": ""}],
    {"command": "x"},
    ["x"],
    [{"command": "x", "when": 1}],
)
_REWARDS = (
    0.5,
    1,
    0,
    -1,
    "0.5",
    True,
    {},
    {"a": 0.5},
    {"a": "1"},
    {"a": "x"},
    [],
    nan,
    {"a": inf},
    "x",
)

ENVIRONMENT: Mapping[str, tuple[object, ...]] = {
    "build_timeout_sec": _TIMES,
    "docker_image": ("example/image:1", "", 1, []),
    "os": ("linux", "Linux", "LINUX", "windows", "Windows", "mac", "", 1),
    "cpus": (1, 2.0, 0.5, "2", "2.5", True, 0, -1, nan, inf, "x", [], 10**7),
    "memory_mb": _WHOLE,
    "storage_mb": _WHOLE,
    "memory": _SIZES,
    "storage": _SIZES,
    "gpus": (0, 1, "0", -1, False, []),
    "gpu_types": _LISTS,
    "tpu": ({"type": "v4", "topology": "2x2"}, {}, "x"),
    "env": _ENVS,
    "workdir": ("/app", "/", "", "app", "/a b", 1),
    "network_mode": _MODES,
    "allowed_hosts": _HOSTS,
    "allow_internet": _BOOLS,
    "healthcheck": _CHECKS,
    "mcp_servers": _MCP,
    "skills_dir": ("/skills", "", "skills", 1),
}
PHASE: Mapping[str, tuple[object, ...]] = {
    "timeout_sec": _TIMES,
    "user": _USERS,
    "network_mode": _MODES,
    "allowed_hosts": _HOSTS,
}
VERIFIER: Mapping[str, tuple[object, ...]] = {
    **PHASE,
    "env": _ENVS,
    "environment_mode": ("shared", "separate", "Shared", "", 1),
    "environment": ({}, {"cpus": 1}, "x", []),
    "collect": _COLLECT,
}
ROOT: Mapping[str, tuple[object, ...]] = {
    "schema_version": ("1.0", "1.4", "9.9", "", 1.4, 1, []),
    "version": ("1.0", "2", 1.0, []),
    "source": ("x", "", 1),
    "artifacts": _ARTIFACTS,
    "multi_step_reward_strategy": ("mean", "final", "Mean", "sum", 1),
    "metadata": (
        {},
        {"a": 1, "b": [1, {"c": "d"}]},
        {"when": date(2026, 1, 2)},
        {"t": time(1, 2)},
        "x",
        {"at": datetime(2026, 1, 2, 3, tzinfo=UTC), "number": 1.5},
        {"n": nan},
    ),
    "steps": ([], "x", {}),
}
TASK: Mapping[str, tuple[object, ...]] = {
    "name": (
        "org/name",
        "a.b/c_d-e",
        "name",
        "/x",
        "a/",
        "a/b/c",
        "a/..b",
        ".a/b",
        "a b/c",
        1,
        "ä/b",
    ),
    "version": ("1", "", 1),
    "description": ("x", "", 1),
    "authors": ([], [{"name": "a"}], [{"name": "a", "email": "b"}], ["a"], [{"email": "b"}], "a"),
    "keywords": _LISTS,
}
STEP: Mapping[str, tuple[object, ...]] = {
    "name": (
        "one",
        "One",
        "a b",
        "",
        ".",
        "..",
        "a/b",
        "a.",
        "a ",
        "CON",
        "con.txt",
        "x" * 255,
        "x" * 256,
        "é",
        "a:b",
        1,
    ),
    "min_reward": _REWARDS,
    "healthcheck": _CHECKS,
    "artifacts": _ARTIFACTS,
}
TABLES: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "": ROOT,
    "task": TASK,
    "environment": ENVIRONMENT,
    "agent": PHASE,
    "verifier": VERIFIER,
    "verifier.environment": ENVIRONMENT,
    "solution": {"env": _ENVS},
}

UNKNOWN = ("", "task", "environment", "agent", "verifier", "verifier.environment", "solution")
"""Tables that get an unknown key each."""


def files_of(config: Config | str, **others: str | None) -> Files:
    """Return a whole folder; ``others`` replaces files by name, or takes them away."""
    files: dict[str, str | None] = {
        "task.toml": config if isinstance(config, str) else toml(config),
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM scratch\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    }
    files.update(others)
    return {name: text for name, text in files.items() if text is not None}


def toml(config: Mapping[str, Any]) -> str:
    """Return a mapping as TOML: tables with headers at the top, everything below inline."""
    plain = {name: value for name, value in config.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in config.items() if isinstance(value, dict)}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, table in tables.items():
        lines.append(f"[{_key(name)}]")
        lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return (
        name
        if name and all(c.isalnum() or c in "_-" for c in name) and name.isascii()
        else _text(name)
    )


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return repr(value) if isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + "}"
        )
    return str(value)


def _put(config: Config, place: str, key: str, value: object) -> Config:
    table = config
    for name in filter(None, place.split(".")):
        if not isinstance(table.setdefault(name, {}), dict):
            table[name] = {}
        table = table[name]
    table[key] = value
    return config


def single_keys() -> Iterator[Files]:
    """Yield each key alone with each of its values, and each table empty and with unknown keys."""
    for place, keys in TABLES.items():
        for key, value in _pairs(keys):
            known = {"task": {"name": "org/name"}} if place == "task" else {}
            yield files_of(_put(known, place, key, value))
    for place in UNKNOWN:
        known = {"task": {"name": "org/name"}} if place == "task" else {}
        yield files_of(_put(known, place, "unheard_of", {"of": 1}))
        if place:
            yield files_of(_empty(place))
    for key, value in _pairs(STEP):
        yield with_steps([{"name": "one", key: value}])
    for table, keys in (("verifier", VERIFIER), ("agent", PHASE)):
        for key, value in _pairs(keys, 6):
            yield with_steps([{"name": "one", table: {key: value}}])


def _pairs(
    keys: Mapping[str, tuple[object, ...]], most: int | None = None
) -> Iterator[tuple[str, object]]:
    for key, values in keys.items():
        for value in values[:most]:
            yield key, value


def _empty(place: str) -> Config:
    config: Config = {}
    table = config
    for name in place.split("."):
        table = table.setdefault(name, {})
    return config


def with_steps(steps: list[Config], **config: object) -> Files:
    """Return a folder with the files of its steps."""
    files = files_of({**config, "steps": steps}, **{"instruction.md": None})
    for step in steps:
        name = step.get("name")
        if isinstance(name, str) and name.strip(". ") and "/" not in name and len(name) < 200:
            files[f"steps/{name}/instruction.md"] = f"Do {name}.\n"
    return files


def networks() -> Iterator[Files]:
    """Yield modes with and without hosts and the old key, in every table that has them."""
    places = ("environment", "agent", "verifier", "verifier.environment")
    choices = product(
        places,
        (None, "public", "no-network", "allowlist"),
        (None, [], ["a.com"]),
        (None, True, False),
    )
    for place, *values in choices:
        names = ("network_mode", "allowed_hosts", "allow_internet")
        config: Config = {}
        for name, value in zip(names, values, strict=True):
            if value is not None:
                _put(config, place, name, value)
        yield files_of(config)


def folders() -> Iterator[Files]:
    """Yield folders that differ in their files."""
    for missing in ("task.toml", "instruction.md", "environment/Dockerfile", "tests/test.sh"):
        yield files_of({}, **{missing: None})
        yield files_of({"environment": {"docker_image": "a/b:1"}}, **{missing: None})
    for instruction in INSTRUCTIONS:
        yield files_of({}, **{"instruction.md": instruction})
    for text in BROKEN:
        yield files_of(text)
    compose = "services:\n  main:\n    build: .\n  db:\n    image: a/db:1\n"
    yield files_of(
        {}, **{"environment/Dockerfile": None, "environment/docker-compose.yaml": compose}
    )
    yield files_of({}, **{"environment/docker-compose.yaml": compose})
    yield files_of(
        {}, **{"environment/Dockerfile": None, "environment/docker-compose.yml": compose}
    )
    yield files_of({}, **{"environment/Dockerfile": None, "environment/data.txt": "x"})
    yield files_of({"environment": {"docker_image": "a/b:1"}}, **{"environment/data.txt": "x"})
    yield from separate()
    yield from ignored()
    yield from stepped()


def separate() -> Iterator[Files]:
    """Yield every source of a separate verifier's image."""
    tables: tuple[Config, ...] = (
        {"environment_mode": "separate"},
        {"environment": {}},
        {"environment": {"docker_image": "v/v:1"}},
        {"environment": {"cpus": 1, "env": {"A": "b"}}},
        {"environment_mode": "shared"},
        {"environment_mode": "shared", "environment": {}},
    )
    compose = "services: {main: {image: x}}\n"
    builds = ({}, {"tests/Dockerfile": "FROM x\n"}, {"tests/docker-compose.yaml": compose})
    images = ({}, {"docker_image": "t/t:1"})
    for verifier, build, image, script in product(tables, builds, images, ("exit 0\n", None)):
        config = {"verifier": verifier, "environment": {"cpus": 2, **image}}
        yield files_of(config, **build, **{"tests/test.sh": script})


def ignored() -> Iterator[Files]:
    """Yield ignore files at every place, with every form of a pattern."""
    names = (
        "a.txt",
        "b.txt",
        "keep.txt",
        "sub/a.txt",
        "sub/c.log",
        "sub/deep/a.txt",
        "sub/deep/x y.txt",
        "build/a.txt",
        "#x",
        "!y",
    )
    below = {f"tests/{name}": "x" for name in names} | {f"solution/{name}": "x" for name in names}
    for patterns in PATTERNS:
        yield files_of({}, **below, **{"tests/.harborignore": patterns, "solution/solve.sh": "x"})
    yield files_of(
        {}, **below, **{"tests/sub/.harborignore": "*.txt\n", "solution/.harborignore": "sub/\n"}
    )
    yield files_of(
        {}, **below, **{"tests/.harborignore": "*.txt\n", "tests/sub/.harborignore": "!a.txt\n"}
    )
    yield files_of({}, **below, **{".harborignore": "*.txt\n", "environment/.harborignore": "*\n"})
    yield files_of({}, **below, **{"tests/.harborignore": "test.sh\n"})


def stepped() -> Iterator[Files]:
    """Yield folders with steps."""
    one, two = {"name": "one"}, {"name": "two"}
    yield with_steps([one, two])
    yield with_steps([one, two], multi_step_reward_strategy="final")
    yield with_steps([one, {"name": "ONE"}])
    yield with_steps([{"name": "é"}, {"name": "e\u0301"}])
    yield with_steps([one, one])
    yield with_steps([one]) | {"instruction.md": "Unread.\n"}
    yield {name: text for name, text in with_steps([one, two]).items() if "two" not in name}
    yield {name: text for name, text in with_steps([one]).items() if name != "tests/test.sh"}
    yield {name: text for name, text in with_steps([one]).items() if name != "tests/test.sh"} | {
        "steps/one/tests/test.sh": "x"
    }
    yield with_steps([one]) | {"steps/one/tests/Dockerfile": "FROM x\n"}
    yield with_steps([{**one, "verifier": {"environment": {"docker_image": "s/s:1"}}}, two])
    yield with_steps([{**one, "verifier": {"environment_mode": "separate"}}, two]) | {
        "steps/one/tests/Dockerfile": "FROM x\n"
    }
    yield with_steps(
        [{**one, "verifier": {"environment_mode": "shared"}}, two],
        verifier={"environment": {"docker_image": "v/v:1"}},
    )
    yield with_steps([one, two], verifier={"environment": {"cpus": 1}, "timeout_sec": 30})
    yield with_steps([{**one, "verifier": {"environment": {"allow_internet": False}}}])
    yield with_steps([one]) | {
        "steps/one/instruction.md": "<!-- canary 1 -->\n\nDo.\n",
        "steps/one/workdir/setup.sh": "x",
        "steps/one/solution/solve.sh": "x",
    }
    yield with_steps([one]) | {
        "steps/one/tests/.harborignore": "a*\n",
        "steps/one/tests/a": "x",
        "steps/one/tests/b": "x",
    }
    yield with_steps([one]) | {"steps/extra/instruction.md": "x\n"}


INSTRUCTIONS = (
    "plain",
    "plain\n",
    " leading\n",
    "\n\nblank first\n",
    "trailing  \n\n\n",
    "<!-- canary 1 -->\nDo.\n",
    "# CANARY x\n\n \nDo.\n",
    "<!-- harbor-canary GUID x -->\n# canary two\nDo.\n",
    "<!-- note -->\n<!-- canary -->\nDo.\n",
    "Do <!-- canary -->\n",
    "#canary\n",
    "# Title\nDo.\n",
    "   <!-- canary -->   \n\tDo.\n",
    "<!-- canary\n-->\nDo.\n",
    "a\r\nb\r\n",
    "<!-- canary -->\r\n\r\nDo.\r\n",
    "a\rb\n",
    "\ufeffDo.\n",
    "\ufeff# canary\nDo.\n",
    "",
    "\n",
    "ä\u2028b\n",
    "tab\there\n",
    "\u00a0\nDo.\n",
    "\x0c\nDo.\n",
    "<!-- canary -->",
    "# a canary in a title\nDo.\n",
    "## canary\nDo.\n",
    "x\x00y\n",
)

BROKEN = (
    "",
    "\n",
    "a",
    "a = ",
    "[x",
    "[environment]\n[environment]\n",
    "a = 1\na = 2\n",
    "x = 'a\n",
    "x = [1,\n",
    "\ufeffversion = '1.0'\n",
    "a.b.c = 1\n",
    "a = 1\r\nb = 2\r\n",
    "a = 1\rb = 2\r",
    "environment = 1\n",
    "agent = []\n",
    "verifier = 'x'\n",
    "solution = 1\n",
    "task = {}\n",
    "task = 'x'\n",
    "x = " + "[" * 70 + "]" * 70 + "\n",
    "x = " + "9" * 5000 + "\n",
    "y = 1\nx = " + "[" * 3000 + "]" * 3000 + "\n",
    'x = """\nopen\n',
    "[metadata]\nx = 1\n[metadata.y]\nz = 2\n",
    "environment.cpus = 2\n",
    "[environment]\ncpus = 2\n[environment.env]\nA = 'b'\n",
    "[[steps]]\nname = 'one'\n[steps.agent]\ntimeout_sec = 1\n",
    "x = 1979-05-27T07:32:00Z\n",
    "# only a comment\n",
    "\x00 = 1\n",
    "a = '\x01'\n",
    "'environment' = { cpus = 1 }\n",
    '"envir\\u006fnment" = { cpus = 3 }\n',
    "[environment]\n'memory' = '1G'\nmemory_mb = 1024\n",
    "[environment]\nmemory = '1G'\nmemory_mb = 1000\n",
    "[environment]\nmemory = '1G'\nmemory_mb = '1024'\n",
    "[environment]\nmemory = '1G'\nmemory_mb = 1024.0\n",
    "[environment]\nstorage = 5\nstorage_mb = 7\n",
    "version = '1.0'\nschema_version = '1.3'\n",
    "version = 1\nschema_version = '1.3'\n",
)

PATTERNS = (
    "*.txt\n",
    "a.txt\n",
    "/a.txt\n",
    "sub\n",
    "sub/\n",
    "sub/a.txt\n",
    "sub/*\n",
    "sub/**\n",
    "**/a.txt\n",
    "sub/**/a.txt\n",
    "**\n!*.txt\n",
    "*.txt\n!keep.txt\n",
    "sub/\n!sub/a.txt\n",
    "*\n!*/\n!test.sh\n",
    "*\n!test.sh\n",
    "# comment\n\n \na.txt\n",
    "\\#x\n",
    "\\!y\n",
    "#x\n",
    "!y\n",
    "[ab].txt\n",
    "[!a].txt\n",
    "[^a].txt\n",
    "?.txt\n",
    "a.txt   \n",
    "x\\ y.txt\n",
    "sub/deep/x*y.txt\n",
    "**/deep\n",
    "deep/**\n",
    "**/deep/**\n",
    "/**/a.txt\n",
    "a.*\n",
    "sub/d*p/a.txt\n",
    "SUB\n",
    "/\n",
    "//\n",
    "a**t\n",
    "[a-b].txt\n",
    "*.log\r\n*.txt\r\n!test.sh\r\n",
    "build/\n",
    "/sub/*.log\n",
    "*/a.txt\n",
    "sub/?.txt\n",
    "keep.txt\n*.txt\n!keep.txt\n",
    "[\n",
    "[]a].txt\n",
    "a.txt\\\n",
)


def mixed(number: int, seed: int = 36) -> Iterator[Files]:
    """Yield folders with several keys each, most of them with a usual value."""
    chance = random.Random(seed)  # noqa: S311 - reproducible cases
    for _ in range(number):
        config: Config = {}
        for place, keys in TABLES.items():
            if place and chance.random() < 0.4:
                continue
            for key, values in keys.items():
                if chance.random() < 0.25:
                    usual = values[: 2 if chance.random() < 0.9 else len(values)]
                    _put(config, place, key, chance.choice(usual))
        if "task" in config:
            config["task"].setdefault("name", "org/name")
        if chance.random() < 0.2:
            config.pop("steps", None)
            yield with_steps([{"name": "one"}, {"name": "two", "min_reward": 0.5}], **config)
        else:
            yield files_of(config)


def all_cases(random_cases: int = 400) -> list[Files]:
    """Return all cases in a fixed order."""
    return [*single_keys(), *networks(), *folders(), *mixed(random_cases)]


def write(folder: Path, files: Files) -> None:
    """Write the files of a case into a new folder."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
