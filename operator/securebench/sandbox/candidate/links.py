"""Which symbolic links of a workspace may cross into a verifier. Pure.

supervise keeps to the same rule when it unpacks (``images/supervise/links.go``), both to one table
of cases, ``images/supervise/testdata/links.json``.
"""

from __future__ import annotations

from securebench.protocol.messages import FRAMEWORK_FOLDER


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link stays in its tree and out of our folder, whatever else lies in the tree.

    It may climb only at its beginning and not above the root, and must not name our folder. Then it
    leads from a real folder downwards, through other links that do the same. Where another link, or
    a file of the pack in place of one, could turn a later ``..`` (``x/../..`` where ``x`` leads to
    ``a/b``), neither the text nor today's tree says where it leads in the verifier.

    Args:
        path: Of the link, from the tree's root; clean, its parents are folders.
        target: Its text.

    Source: contract 13.3, 21.2; decision 0043.
    """
    if not target or target.startswith("/"):
        return False
    depth = path.count("/")
    goes_down = False
    for component in target.split("/"):
        if component == "..":
            depth -= 1
            if goes_down or depth < 0:
                return False
        elif component not in {"", "."}:
            goes_down = True
            if component == FRAMEWORK_FOLDER:
                return False
    return True
