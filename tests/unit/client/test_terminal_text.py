from pathlib import Path

import pytest

from securebench.client.terminal_text import shown_path


@pytest.fixture
def places(tmp_path, monkeypatch):
    for name in ("packs/p", "results", "far/away/deep", "far/results"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/away/deep")
    monkeypatch.chdir(tmp_path / "packs")
    return tmp_path


PATHS = {
    "dots": ("{root}/packs/p/../../results/c", "{root}/results/c"),
    "single dots": ("{root}/./packs/./c", "{root}/packs/c"),
    "relative": ("p/c", "{root}/packs/p/c"),
    "relative with dots": ("../results/c", "{root}/results/c"),
    "missing": ("{root}/new/../other/c", "{root}/other/c"),
    "a link stays": ("{root}/link/c", "{root}/link/c"),
    "dots behind a link": ("{root}/link/../../results/c", "{root}/link/../../results/c"),
    "dots behind a link that mean the same": ("{root}/link/../deep/c", "{root}/link/../deep/c"),
}


@pytest.mark.parametrize("case", PATHS)
def test_shown_paths(case, places):
    path, want = (text.format(root=places) for text in PATHS[case])
    assert shown_path(Path(path)) == want
