"""``make bundle``: one archive that is restored without a network."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from support.image_archives import built, offline
from support.registry import command
from support.release import CommandError, call

HOST = "127.0.0.1:5000"
"""Of the registry in the network namespace, where nothing else listens."""


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory, crane: str) -> Path:  # noqa: ARG001  # built first
    place = built(tmp_path_factory.mktemp("bundle"))
    (place.archives / "pod-0123456789ab.cdx.json").write_text("{}", encoding="utf-8")
    return Path(place.run("bundle.sh", PYTHON=sys.executable).strip())


@pytest.fixture
def bundle(archive: Path, tmp_path: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / archive.name.removesuffix(".tar.gz")


def test_it_has_what_an_installation_needs(bundle: Path) -> None:
    root = Path(__file__).parents[2]
    names = {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
    crds = (root / "charts" / "securebench" / "crds").glob("*")
    schemas = (root / "operator" / "securebench" / "schemas").glob("*.json")
    assert {f"crds/{path.name}" for path in crds} <= names
    assert {f"schemas/{path.name}" for path in schemas} <= names
    assert {"README.md", "SHA256SUMS", "chart/securebench-0.1.0.tgz"} <= names
    assert {"sbom/pod-0123456789ab.cdx.json", "images/operator-0123456789ab.tar"} <= names


def test_it_is_restored_to_a_registry_without_a_network(bundle: Path, tmp_path: Path) -> None:
    words = " ".join(command(tmp_path, HOST))
    script = (
        f"ip link set lo up; {words} >/dev/null 2>&1 & server=$!; trap 'kill $server' EXIT; "
        f"for _ in $(seq 300); do (exec 3<>/dev/tcp/{HOST.replace(':', '/')}) 2>/dev/null && break;"
        f" sleep 0.1; done; {bundle}/restore.sh registry {HOST}/team;"
        f" for ref in $(sed -n 's/^  [a-z]*: //p' {bundle}/values.yaml);"
        f" do {bundle}/bin/crane manifest $ref >/dev/null; done"
    )
    printed = offline("bash", "-e", "-c", script)
    named = yaml.safe_load((bundle / "values.yaml").read_text(encoding="utf-8"))["image"]
    assert named["operator"].startswith(f"{HOST}/team/securebench-operator@sha256:")
    assert named["pod"].startswith(f"{HOST}/team/securebench-pod@sha256:")
    (line,) = (line for line in printed.splitlines() if line.startswith("helm "))
    words_of_helm = line.split()
    chart, values = words_of_helm[4], words_of_helm[-1]
    rendered = offline("helm", "template", "demo", chart, "--values", values)
    assert named["operator"] in rendered
    assert named["pod"] in rendered


def test_the_command_line_is_installed_without_a_network(bundle: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    call(sys.executable, "-m", "venv", str(place))
    pip = (str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
    offline(*pip, "--no-index", "--find-links", str(bundle / "wheels"), "securebench")
    version = offline(str(place / "bin" / "securebench"), "--version", PYTHONPATH="")
    assert version == "securebench 0.1.0\n"


@pytest.mark.parametrize("damage", ["images/pod-0123456789ab.tar", "registry.sh"])
def test_a_damaged_bundle_loads_nothing(bundle: Path, damage: str) -> None:
    with (bundle / damage).open("ab") as file:
        file.write(b" ")
    with pytest.raises(CommandError) as raised:
        offline(str(bundle / "restore.sh"), "registry", HOST)
    assert f"{damage}: FAILED" in str(raised.value)
    assert "is not what was packed: unpack its archive again" in str(raised.value)


def test_usage_and_a_missing_ctr_are_said(bundle: Path, tmp_path: Path) -> None:
    restore = str(bundle / "restore.sh")
    with pytest.raises(CommandError, match=r"usage: restore.sh registry HOST/PATH"):
        offline(restore)
    for name in ("bash", "dirname", "sha256sum", "cat"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    with pytest.raises(CommandError, match="there is no ctr here"):
        offline("env", f"PATH={tmp_path}", restore, "containerd")
