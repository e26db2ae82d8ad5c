"""Names of images: what every registry takes, and what none does."""

import pytest

from securebench.benchmark.pack.paths import image_problem

DIGEST = "sha256:" + "0a" * 32
GOOD = (
    "python",
    "python:3.11-slim",
    "library/python:3.11",
    "registry.example/team/image",
    "registry.example:5000/a__b/c-d.e:v1_2.3",
    "localhost/image",
    "LOCALHOST:5000/image",
    "[2001:db8::1]:5000/image",
    f"python@{DIGEST}",
    f"registry.example:5000/python:3.11@{DIGEST}",
    "0123abc",
    "a/" + "b" * 253,
)
BAD = {
    "Python:3.11 slim": "holds a blank",
    " python": "holds a blank",
    "python:3.11\n": "holds a blank",
    "Python:3.11": "small letters only",
    "registry.example/Team/image": "small letters only",
    "python:": "'' is no tag",
    "python:-slim": "'-slim' is no tag",
    "python:" + "a" * 129: "is no tag",
    "python@sha256:12": "is no digest",
    "python@": "is no digest",
    "python:3.11:4": "'python:3.11' is no name",
    "https://registry.example/image": "is no name of a repository",
    "registry.example/a//b": "is no name of a repository",
    "-python": "is no name of a repository",
    "python/": "is no name of a repository",
    "a/" + "b" * 254: "more than 255",
    "pythön": "is no name of a repository",
    "@": "is no name of a repository",
}


@pytest.mark.parametrize("image", GOOD)
def test_a_name(image):
    assert image_problem(image) is None


@pytest.mark.parametrize("image", BAD)
def test_no_name(image):
    assert BAD[image] in (image_problem(image) or "")
