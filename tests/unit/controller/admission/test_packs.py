import base64
import json
import os
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest

from securebench.benchmark.files.bundle import BundleLimits
from securebench.benchmark.files.folders import read_folder_pack
from securebench.benchmark.files.load import load_tasks
from securebench.cluster.port import ObjectKind
from securebench.controller.packs import KeyedSource, freeze, frozen, keyed_files
from securebench.errors import ConfigErrors, PackError, SpecError
from securebench.names import USABLE_LABEL as USABLE
from securebench.run.api.models import Pack, VolumePack
from support.build import MANIFEST, question, write_pack
from support.fake_cluster import FakeCluster
from support.harbor_packs import folder_pack
from support.stored_packs import freeze_stored

TASKS = (
    '{"id": "a", "input": {"question": "Which?", "choices": ["x", "y"]}, "eval": {"answer": 1}}\n'
)
LABEL = {USABLE: "pack"}
PATHS = "securebench.dev/pack-paths"


def volume(path="smoke", **changes):
    return Pack.parse({"volume": {"path": path}, **changes})


@pytest.fixture
def root(tmp_path):
    write_pack(tmp_path / "packs/smoke", [question("a")])
    return tmp_path


# From the volume


def test_a_pack_is_frozen_where_its_content_says(root):
    pack = freeze_stored(root, volume())
    assert pack.digest.startswith("sha256:")
    assert pack.folder.parent == root / "packs/.content"
    assert pack.manifest.read_text() == MANIFEST
    assert pack.tasks.is_file()
    assert freeze_stored(root, volume()) == pack
    assert frozen(root, pack.digest) == pack


def test_a_frozen_pack_does_not_change_with_its_source(root):
    first = freeze_stored(root, volume())
    before = first.tasks.read_bytes()
    write_pack(root / "packs/smoke", [question("b")])
    second = freeze_stored(root, volume())
    assert second.digest != first.digest
    assert second.folder != first.folder
    assert first.tasks.read_bytes() == before


def test_nothing_half_done_stays(root):
    freeze_stored(root, volume())
    names = [path.name for path in (root / "packs/.content").iterdir()]
    assert [name for name in names if name.startswith(".")] == []


def test_equal_content_at_two_places_is_one_pack(root):
    write_pack(root / "packs/copy", [question("a")])
    assert freeze_stored(root, volume("copy")) == freeze_stored(root, volume())


def test_a_pin_that_fits(root):
    digest = freeze_stored(root, volume()).digest
    assert freeze_stored(root, volume(digest=digest)).digest == digest


def test_a_pin_that_does_not_fit(root):
    with pytest.raises(PackError, match=r"spec\.pack\.digest says sha256:0000"):
        freeze_stored(root, volume(digest="sha256:" + "0" * 64))
    assert list((root / "packs/.content").iterdir()) == []


@pytest.mark.parametrize("path", ["missing", "smoke/manifest.yaml"])
def test_a_pack_that_is_not_there(root, path):
    with pytest.raises(PackError, match=r"there is no pack folder .* push it"):
        freeze_stored(root, volume(path))


def test_a_pack_folder_is_not_reached_by_a_link(root, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    write_pack(outside / "secret", [question("a")])
    (root / "packs/link").symlink_to(outside / "secret")
    (root / "packs/folder").symlink_to(outside)
    for path in ("link", "folder/secret"):
        with pytest.raises(PackError, match="there is no pack folder"):
            freeze_stored(root, volume(path))


def test_links_inside_stay_links(root):
    (root / "packs/smoke/passwd").symlink_to("/etc/passwd")
    pack = freeze_stored(root, volume())
    assert (pack.folder / "passwd").is_symlink()


def test_the_task_file_is_no_link(root):
    tasks = root / "packs/smoke/tasks.jsonl"
    tasks.rename(root / "packs/rows")
    tasks.symlink_to(root / "packs/rows")
    with pytest.raises(PackError, match="not reached by a symlink"):
        freeze_stored(root, volume())


@pytest.mark.parametrize("name", ["manifest.yaml", "tasks.jsonl"])
def test_a_file_that_the_pack_lacks(root, name):
    (root / "packs/smoke" / name).unlink()
    with pytest.raises(PackError, match=f"^{name}.*the pack has no such file"):
        freeze_stored(root, volume())


def test_a_folder_inside_a_pack_is_no_pack(root):
    write_pack(root / "packs/smoke/hidden/other", [question("b")])
    with pytest.raises(PackError, match="is a part of the pack 'smoke': name that"):
        freeze_stored(root, volume("smoke/hidden/other"))


def test_a_folder_of_packs_is_no_pack(root):
    write_pack(root / "packs/team/deep/one", [question("b")])
    assert freeze_stored(root, volume("team/deep/one")).tasks.is_file()


def test_a_manifest_that_does_not_hold_is_named_as_the_user_did(root):
    (root / "packs/smoke/manifest.yaml").write_text("version: 1\n")
    with pytest.raises(ConfigErrors, match=r"^manifest\.yaml"):
        freeze_stored(root, volume())


# From a ConfigMap or Secret


def keyed(kind="configMap", **changes):
    return Pack.parse({kind: {"name": "pack"}, **changes})


async def fetched(pack, kind, **manifest):
    cluster = FakeCluster()
    meta = {"name": "pack", **manifest.pop("metadata", {})}
    body = {"apiVersion": "v1", "kind": kind.value, "metadata": meta, **manifest}
    await cluster.create(kind, body)
    return KeyedSource(await keyed_files(cluster, pack))


async def test_a_config_map(tmp_path):
    pack = keyed()
    source = await fetched(
        pack,
        ObjectKind.CONFIG_MAP,
        data={"manifest.yaml": MANIFEST, "tasks.jsonl": TASKS, "odd": "1"},
        binaryData={"assets--deep--image.ppm": base64.b64encode(b"\xffP6").decode()},
        metadata={"annotations": {PATHS: json.dumps({"odd": "assets/odd--name"})}},
    )
    made = freeze(tmp_path, pack, source)
    assert made.tasks.read_text() == TASKS
    assert (made.folder / "assets/deep/image.ppm").read_bytes() == b"\xffP6"
    assert (made.folder / "assets/odd--name").read_text() == "1"


async def test_task_folders_in_a_config_map(tmp_path):
    pack = keyed()
    local = folder_pack(tmp_path / "local/pack", "fix-it")
    data = {
        path.relative_to(local).as_posix().replace("/", "--"): path.read_text()
        for path in local.rglob("*")
        if path.is_file()
    }
    made = freeze(tmp_path, pack, await fetched(pack, ObjectKind.CONFIG_MAP, data=data))
    assert made.digest == read_folder_pack(local / "manifest.yaml").digest
    loaded = load_tasks(made.manifest, made.tasks, is_checked=True)
    assert (loaded.pack.manifest.id, loaded.tasks[0].id) == ("pack", "fix-it")


def test_one_task_folder_on_the_volume(tmp_path):
    folder = folder_pack(tmp_path / "packs", "fix-it") / "fix-it"
    (folder / "evidence").mkdir()
    (folder / "evidence/log").write_text("no part of the task")
    want = read_folder_pack(folder / "manifest.yaml").digest
    made = freeze_stored(tmp_path, volume("fix-it"))
    assert made.digest == want
    assert {each.name for each in made.folder.iterdir()} == {"manifest.yaml", "fix-it"}
    assert not (made.folder / "fix-it/evidence").exists()
    assert freeze_stored(tmp_path, volume("fix-it")) == made


@pytest.mark.parametrize("target", ["../../secret", "/etc/hostname"])
def test_the_manifest_of_task_folders_is_no_link(tmp_path, target):
    folder_pack(tmp_path / "packs/mine", "good")
    (tmp_path / "secret").write_text("id: secret\nversion: 1\n")
    (tmp_path / "packs/mine/manifest.yaml").symlink_to(target)
    with pytest.raises(ConfigErrors) as caught:
        freeze_stored(tmp_path, volume("mine"))
    (error,) = caught.value.errors
    assert str(error) == "manifest.yaml: is a symbolic link, not a regular file"


def test_a_bad_task_folder_is_named_by_its_path_in_the_pack(tmp_path):
    folder_pack(tmp_path / "packs/mine", "good", "bad")
    (tmp_path / "packs/mine/bad/instruction.md").unlink()
    with pytest.raises(ConfigErrors) as caught:
        freeze_stored(tmp_path, volume("mine"))
    assert [str(each) for each in caught.value.errors] == ["bad/instruction.md: does not exist"]


async def test_reference_answers_in_a_config_map():
    source = await fetched(keyed(), ObjectKind.CONFIG_MAP, data={"oracle--answers.jsonl": "{}"})
    assert source.answers() == b"{}"


@pytest.mark.parametrize("kind", ["configMap", "secret"])
@pytest.mark.parametrize(
    "changes",
    [
        {"items": [{"key": "hidden--tests.py", "path": "assets/data.csv"}]},
        {"manifest": "hidden/manifest.yaml"},
        {"tasks": "oracle/answers.jsonl"},
    ],
)
def test_a_run_gives_a_pack_no_other_shape(kind, changes):
    """What the agent sees of a pack is its author's to say: a submitter may not read the object."""
    (field,) = changes
    given = {kind: {"name": "pack"}}
    (given[kind] if field == "items" else given).update(changes)
    with pytest.raises(SpecError, match=field):
        Pack.parse(given)


async def test_a_secret_with_the_label(tmp_path):
    data = {"manifest.yaml": MANIFEST, "tasks.jsonl": TASKS}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    pack = keyed("secret")
    source = await fetched(pack, ObjectKind.SECRET, data=encoded, metadata={"labels": LABEL})
    assert freeze(tmp_path, pack, source).manifest.read_text() == MANIFEST


@pytest.mark.parametrize(
    "labels", [None, {}, {USABLE: "yes"}, {USABLE: "true"}, {USABLE: "gateway"}]
)
async def test_a_secret_without_the_label_is_not_read(labels):
    metadata = {} if labels is None else {"labels": labels}
    with pytest.raises(PackError, match=f'lacks the label {USABLE}: "pack"'):
        await fetched(keyed("secret"), ObjectKind.SECRET, data={}, metadata=metadata)


@pytest.mark.parametrize("kind", ["configMap", "secret"])
async def test_an_object_that_does_not_exist(kind):
    with pytest.raises(PackError, match="'pack' does not exist in this namespace"):
        await keyed_files(FakeCluster(), keyed(kind))


BAD = {
    "a key that is not there": ('{"x": "y"}', {"a": "1"}, "'pack' has no key x"),
    "two keys at one place": ('{"a": "b"}', {"a": "1", "b": "2"}, "two keys are placed at 'b'"),
    "two keys of one path": ("", {"a--b": "1", "a----b": "2"}, "two keys are placed at 'a/b'"),
    "a file that is a folder": ("", {"b--c": "1", "b": "2"}, "'b' is a file and the folder of"),
    "a path that leads out": ('{"a": "../a"}', {"a": "1"}, "the path of key 'a' must not contain"),
    "a key that leads out": ("", {"..--a": "1"}, "the path of key '..--a' must not contain"),
    "a key at the root": ("", {"--etc": "1"}, "the path of key '--etc' must be relative"),
    "no JSON": ("assets", {"a": "1"}, "must be a JSON object of keys and paths"),
    "no texts": ('{"a": 1}', {"a": "1"}, "must be a JSON object of keys and paths"),
}


@pytest.mark.parametrize("name", BAD)
async def test_keys_that_make_no_pack(name):
    paths, data, words = BAD[name]
    metadata = {"annotations": {PATHS: paths}}
    with pytest.raises(PackError, match=words):
        await fetched(keyed(), ObjectKind.CONFIG_MAP, data=data, metadata=metadata)


async def test_a_value_that_is_no_base64():
    with pytest.raises(PackError, match="a value is not base64"):
        await fetched(keyed(), ObjectKind.CONFIG_MAP, binaryData={"a": "%%%"})


# Hostile folders


@pytest.mark.parametrize("path", [".content", "smoke/.hidden"])
def test_a_hidden_folder_is_refused_without_the_rule_of_the_api(root, path):
    (root / "packs" / path).mkdir(parents=True, exist_ok=True)
    (root / "packs/.content/marker").mkdir(parents=True, exist_ok=True)
    pack = Pack.model_construct(
        **{**dict(volume()), "volume": VolumePack.model_construct(path=path)}
    )
    with pytest.raises(PackError, match="begin with a dot"):
        freeze_stored(root, pack)
    assert [each.name for each in (root / "packs/.content").iterdir()] == ["marker"]


TOO_MUCH = {
    "entries": (BundleLimits(files=4), "more than 4 entries (settings.bounds.packFiles)"),
    "bytes": (BundleLimits(size_bytes=4096), "more than 4096 bytes (settings.bounds.packBytes)"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_folder_that_is_too_large_is_not_copied(root, name):
    limits, words = TOO_MUCH[name]
    folder = root / "packs/smoke/data"
    folder.mkdir()
    with (folder / "sparse").open("wb") as file:
        file.truncate(4097)
    (folder / "link").symlink_to("sparse")
    with (
        mock.patch.object(shutil, "copy2", side_effect=AssertionError),
        pytest.raises(PackError, match=re.escape(words)),
    ):
        freeze_stored(root, volume(), limits)
    assert list((root / "packs/.content").iterdir()) == []


def test_what_is_no_file_is_refused_by_name(root):
    os.mkfifo(root / "packs/smoke/pipe")
    with pytest.raises(PackError, match="'pipe' is no file, folder or symlink"):
        freeze_stored(root, volume())


def test_links_folders_and_modes_are_copied_as_they_are(root):
    folder = root / "packs/smoke/data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/run").write_text("x")
    (folder / "deep/run").chmod(0o755)
    (folder / "link").symlink_to("/nowhere")
    copied = freeze_stored(root, volume()).folder / "data"
    assert (copied / "deep/run").stat().st_mode & 0o777 == 0o755
    assert (copied / "link").readlink() == Path("/nowhere")
