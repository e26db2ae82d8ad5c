"""The commands ``securebench pack push|show|list|rm``."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.files.load import check_upload
from securebench.client.output import print_error, print_json, print_line, print_table
from securebench.client.packs.source import PackFiles, pack_source, valid_pack
from securebench.client.submit.prepare import LocalPack
from securebench.client.submit.submit import pack_folder
from securebench.client.volume.connection import ClusterTarget, Connection, open_connection
from securebench.client.volume.link import LOCAL_LIMITS
from securebench.client.watch.follow import pack_path, run_state
from securebench.cluster.port import ObjectKind
from securebench.errors import InvalidInputError

_OF_A_PACK = ("digest", "files", "size_bytes")


def show_uploaded(name: str, target: ClusterTarget, *, as_json: bool = False) -> int:
    """Print digest and size of a pack on the results volume."""
    answer = asyncio.run(_ask(name, target))
    if not answer.get("present"):
        print_error(f"there is no pack {name!r} on the results volume")
        return 1
    if as_json:
        print_json({"pack": name, **{key: answer.get(key) for key in _OF_A_PACK}})
        return 0
    print_line(
        f"pack {name} content={answer.get('digest')} files={answer.get('files')}"
        f" size_bytes={answer.get('size_bytes')}"
    )
    return 0


def list_uploaded(target: ClusterTarget) -> int:
    """Print a table of the packs on the results volume."""
    packs, readers = asyncio.run(_listed(target))
    rows = [
        (str(pack.get("name")), str(pack.get("files")), str(pack.get("size_bytes")))
        for pack in packs
    ]
    print_table(
        ("NAME", "FILES", "BYTES", "ACTIVE RUNS"),
        [(*row, " ".join(readers.get(row[0], ()))) for row in rows],
    )
    return 0


def remove(name: str, target: ClusterTarget) -> int:
    """Remove a pack from the results volume, unless an active run uses it."""
    if asyncio.run(_remove(name, target)):
        print_line(f"pack {name} removed")
        return 0
    print_error(f"there is no pack {name!r} on the results volume")
    return 1


def push(files: PackFiles, name: str | None, target: ClusterTarget) -> int:
    """Upload a pack and print its folder below ``packs/``; without a name, from id and digest."""
    source = pack_source(files)
    pack = valid_pack(source, check_upload(source.manifest, source.tasks))
    folder = name or pack_folder(pack)
    sent = asyncio.run(_upload(pack, folder, target))
    print_line(f"pack {pack.id} path={folder} digest={pack.digest} uploaded={str(sent).lower()}")
    return 0


async def _listed(
    target: ClusterTarget,
) -> tuple[Sequence[Mapping[str, object]], Mapping[str, Sequence[str]]]:
    async with open_connection(target) as connection:
        return await connection.link.list_packs(), await _readers(connection)


async def _remove(name: str, target: ClusterTarget) -> bool:
    async with open_connection(target) as connection:
        readers = (await _readers(connection)).get(name)
        if readers:
            raise InvalidInputError(
                f"the pack {name!r} is in use by {', '.join(readers)}; wait, or end the run with"
                " securebench cancel"
            )
        return await connection.link.remove_pack(name)


async def _readers(connection: Connection) -> Mapping[str, Sequence[str]]:
    """Return the names of the active runs by the folder of their pack."""
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for run in (await connection.cluster.list(ObjectKind.BENCHMARK_RUN, "")).items:
        state = run_state(run)
        path = pack_path(run)
        if state.end is None and path:
            readers[path.split("/")[0]].append(state.name)
    return readers


async def _ask(name: str, target: ClusterTarget) -> Mapping[str, object]:
    async with open_connection(target) as connection:
        return await connection.link.show_pack(name)


async def _upload(pack: LocalPack, folder: str, target: ClusterTarget) -> bool:
    receipt = files_receipt(pack.files, LOCAL_LIMITS)
    async with open_connection(target) as connection:
        if await connection.link.pack_digest(folder) == receipt.digest:
            return False
        await connection.link.put_pack(folder, pack.files)
        return True
