"""The recipes of docs/reference/own-agent.md run as they are printed."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from outside.model_wire import CHAT, Step
from securebench.agents.registry import harness_config
from securebench.cluster.port import ObjectKind
from support.agent_world import AgentWorld
from support.operator_world import opened

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/own-agent.md").read_text(encoding="utf-8")
TEXTS = dict(zip(("command", "image"), re.findall(r"(?s)```yaml\n(.*?)```", PAGE), strict=True))
RECIPES = {name: yaml.safe_load(text)["harness"] for name, text in TEXTS.items()}


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_of_the_recipe_ends_with_a_record(tmp_path: Path, name: str) -> None:
    with opened(AgentWorld, tmp_path, harness=RECIPES[name], key="MODELS_KEY") as world:
        uid = world.begin()
        provider = json.loads((world.root / "runs" / uid / "gateway/config.json").read_bytes())[
            "provider"
        ]
        assert (provider["name"], provider["host"]) == ("openai_chat", "models.example.org")
        (harness,) = (
            json.dumps(raw)
            for pod, raw in world.cluster.objects(ObjectKind.POD).items()
            if pod.endswith("-0-1h1")
        )
        assert "http://127.0.0.1:8081/v1" in harness
        assert ("registry.example/my-agent:1" in harness) is (name == "image")
        world.work(uid, rounds=30)
        assert world.condition()["status"] == "True"
        lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    metadata = json.loads(lines[0])["producer_metadata"]
    assert metadata["usage"]["requests"] == 2
    assert metadata["allowed_domains"] == ["models.example.org"]
    assert metadata.get("agent_image") == (
        "registry.example/my-agent:1" if name == "image" else None
    )


class Model(BaseHTTPRequestHandler):
    """Answers as the scripted provider does."""

    def do_POST(self) -> None:
        asked: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = json.loads(asked["messages"][0]["content"])["question"]
        is_right = (self.path, asked["model"]) == ("/v1/chat/completions", "Qwen/Qwen3-8B")
        answer = CHAT.document(asked, Step(message=f"Answer: {said}")) if is_right else {}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_the_program_of_the_recipe_asks_its_model(tmp_path: Path, url: str) -> None:
    (tmp_path / "task.json").write_text('{"question": "six"}')
    harness: Any = harness_config("command", RECIPES["command"]["config"])
    given = {"OPENAI_BASE_URL": url, "OPENAI_MODEL": harness.model, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(harness.argv, cwd=tmp_path, env=given, capture_output=True, check=True)
    assert done.stdout == b"Answer: six\n"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_ten_lines_besides_its_program(name: str) -> None:
    assert len(re.sub(r" {6}.*\n", "", TEXTS[name]).splitlines()) <= 10
