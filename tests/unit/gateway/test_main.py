"""The gateway as a process: what it refuses to run with, SIGTERM, its probe's file."""

import asyncio
import json
import signal
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

from securebench.clock import SystemClock
from securebench.errors import ConfigError
from securebench.gateway import dial as dial_module
from securebench.gateway.__main__ import main, make_gateway, routes
from securebench.gateway.decisions import RefusedError
from securebench.gateway.dial import RESOLVER_THREADS
from securebench.protocol.gateway import CONFIG_FILE, LAUNCHES, ProviderConfig, Route, encode
from support.gateways import EC_KEY, POD, PROVIDER, Running, config, jwk, launch, write_keys
from support.waiting import until

PROGRAM = """
import sys
from pathlib import Path
from securebench.gateway.__main__ import main
sys.exit(main([sys.argv[1]], port=0, ready=Path(sys.argv[2])))
"""


@contextmanager
def process(folder, ready):
    """Run a gateway until it listens; yield it."""
    started = subprocess.Popen([sys.executable, "-c", PROGRAM, folder, ready])
    try:
        until(
            lambda: started.poll() is not None or (ready.exists() and ready.read_text()),
            "the gateway does not listen",
            30,
            step_seconds=0.02,
        )
        assert started.poll() is None
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.mark.timeout(60)
async def test_sigterm_ends_it_with_everything_written_down(tmp_path):
    ready = tmp_path / "ready"
    ready.write_text("")
    (tmp_path / CONFIG_FILE).write_bytes(encode(config()))
    write_keys(tmp_path, jwk(EC_KEY, "one"))
    with process(tmp_path, ready) as gateway:
        run = Running(None, None, int(ready.read_text()))
        line, reader, writer = await run.knock()
        assert line == b"OK\n"
        writer.write(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
        gateway.send_signal(signal.SIGTERM)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        assert gateway.wait(20) == 0
    assert not ready.exists()
    report = json.loads((tmp_path / LAUNCHES / f"{POD}.json").read_text())
    assert (report["blocked"], report["closed"], report["bytes_up"] > 0) == (1, False, True)
    (entry,) = (tmp_path / LAUNCHES / f"{POD}.jsonl").read_text().splitlines()
    assert json.loads(entry)["reason"] == "not_listed"


REFUSED = {
    "no file": (None, "No such file"),
    "no JSON": (b"{", "not a valid gateway configuration"),
    "nothing allowed": (encode(config(domains=())), "no allowed domains and no provider"),
    "no authorities": (encode(config(provider=PROVIDER, authorities="/nowhere")), "No such file"),
}


@pytest.mark.parametrize(("text", "want"), REFUSED.values(), ids=REFUSED)
def test_it_does_not_run_without_a_use(tmp_path, caplog, text, want):
    if text is not None:
        (tmp_path / CONFIG_FILE).write_bytes(text)
    ready = tmp_path / "ready"
    ready.write_text("stale")
    assert main([str(tmp_path)], port=0, ready=ready) == 1
    assert want in caplog.text
    assert not ready.exists()


def test_only_configured_routes_are_open():
    assert set(routes(config())) == {Route.PROXY}
    assert set(routes(config(domains=(), provider=PROVIDER))) == {Route.PROVIDER}


async def test_names_of_agents_never_keep_that_of_the_provider_waiting(monkeypatch):
    answer = threading.Event()

    def getaddrinfo(host, *_, **__):
        if host.startswith("slow"):
            answer.wait(4)
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    async def agent(number):
        with suppress(RefusedError):
            await gateway.dial(launch(), f"slow{number}.docs.dev", 443)

    monkeypatch.setattr(dial_module.socket, "getaddrinfo", getaddrinfo)
    gateway = make_gateway(config(provider=PROVIDER), SystemClock())
    agents = [asyncio.create_task(agent(number)) for number in range(RESOLVER_THREADS + 8)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(2):
            with pytest.raises(RefusedError):  # it was looked up; the address is not public
                await gateway.dial_provider(launch(), PROVIDER)
    finally:
        answer.set()
        await asyncio.gather(*agents)


def gateway_with(tmp_path, key):
    path = tmp_path / "key"
    path.write_bytes(key)
    provider = ProviderConfig("openai", "api.openai.com", str(path))
    return make_gateway(config(provider=provider), SystemClock())


def test_the_key_is_read_each_time(tmp_path):
    gateway = gateway_with(tmp_path, b"sk-one\n")
    assert gateway.provider_key() == "sk-one"
    (tmp_path / "key").write_bytes(b"sk-two")
    assert gateway.provider_key() == "sk-two"


@pytest.mark.parametrize("key", [b"", b"\n", b"a\nb", b"a\x00b", b"\xff", b"x" * 5000])
def test_an_unusable_key_is_none(tmp_path, key):
    with pytest.raises(ConfigError, match="provider openai has no usable key"):
        gateway_with(tmp_path, key).provider_key()


def test_without_a_provider_there_is_no_key():
    with pytest.raises(ConfigError, match="no model provider"):
        make_gateway(config(), SystemClock()).provider_key()


def test_tls_to_the_provider_requires_its_certificate():
    context = make_gateway(config(provider=PROVIDER), SystemClock()).provider_tls
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.cert_store_stats()["x509_ca"] > 50
