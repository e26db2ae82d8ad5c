from pathlib import Path

import pytest

from securebench.analysis.results import visible
from securebench.client.output import shown_path
from securebench.text import printable, printable_lines

UNSAFE = {
    "zero width space": "\u200b",
    "soft hyphen": "\u00ad",
    "zero width no-break space": "\ufeff",
    "tag character": "\U000e0041",
    "bidirectional override": "\u202e",
    "private use": "\ue000",
    "half of a surrogate pair": "\ud800",
    "line separator": "\u2028",
    "escape": "\x1b",
    "C1 control": "\x9b",
    "carriage return": "\r",
}
SAFE = "plain é 漢 😀 e\u0301 \u00a0\u3000"


@pytest.mark.parametrize("case", UNSAFE)
def test_unsafe_characters_reach_neither_the_terminal_nor_a_page(case):
    text = f"a{UNSAFE[case]}b"
    assert printable(text) == printable_lines(text) == "a\ufffdb"
    assert visible(text) == f"a<U+{ord(UNSAFE[case]):04X}>b"


def test_other_characters_stay():
    assert printable(SAFE) == printable_lines(SAFE) == visible(SAFE) == SAFE


def test_line_ends_and_tabs_stay_in_texts_of_lines():
    assert printable("a\tb\n") == "a\ufffdb\ufffd"
    assert printable_lines("a\tb\n") == visible("a\tb\n") == "a\tb\n"


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
