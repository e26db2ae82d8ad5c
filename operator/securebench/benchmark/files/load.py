"""Reads packs from disk: manifest, rows, the files that tasks name, and the digest of all of it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.benchmark.files.folders import (
    EVERY_FOLDER,
    WHOLE_PACK,
    FolderOptions,
    is_folder_pack,
    read_folder_pack,
)
from securebench.benchmark.pack.lane_plan import (
    TASK_FILE,
    asset_root,
    check_task_file,
    each_reference,
    materialization_plan,
)
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.benchmark.pack.paths import (
    EnvironmentProblem,
    PathError,
    environment_problems,
    safe_relative_path,
)
from securebench.benchmark.pack.task import BenchmarkPack, CompiledTask, LoadedPack, compile_rows
from securebench.benchmark.reading.plain import PlainProblem, check_encoding, decoded
from securebench.benchmark.reading.rows import (
    BenchmarkManifest,
    RawLine,
    in_file_order,
    lines_problem,
    once_per_cause,
    parse_manifest,
    row_error,
    split_lines,
)
from securebench.benchmark.resources import Component
from securebench.digests import listing_digest
from securebench.errors import ConfigErrors, InvalidInputError, PackError, StorageError
from securebench.files import file_sha256, tree_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.benchmark.pack.lane_plan import FileReference
    from securebench.benchmark.pack.task import SecureBenchTask
    from securebench.benchmark.reading.rows import AssetRoots

_MARK_BYTES = 4
"""Bytes at the beginning of a file that tell its encoding."""


class CheckedPack(NamedTuple):
    """What was found in a pack.

    Args:
        pack: None when the manifest or the task file cannot be read.
        tasks: The rows that compile, in file order.
        errors: Everything that stops a run: manifest first, then rows in file order.
        skipped: What is wrong with task folders that are left out because the caller said so.
    """

    pack: BenchmarkPack | None
    tasks: tuple[CompiledTask, ...]
    errors: tuple[PackError, ...]
    skipped: tuple[PackError, ...] = ()


def load_benchmark_manifest(manifest: Path | str, *, shown: str | None = None) -> BenchmarkManifest:
    """Return the manifest of a file.

    Args:
        manifest: Path of the file.
        shown: Its name in errors and metadata; default: the path as given.

    Raises:
        ConfigErrors: One PackError per defect.
    """
    name = str(manifest) if shown is None else shown
    try:
        text = decoded(Path(manifest).read_bytes())
    except OSError as error:
        raise ConfigErrors([_unreadable(name, error)]) from None
    except PlainProblem as problem:
        raise ConfigErrors([PackError(problem.reason, path=name, line=problem.line)]) from None
    return parse_manifest(text, path=name)


def load_benchmark_pack(
    manifest: Path | str, tasks: Path | str, *, limit: int | None = None
) -> BenchmarkPack:
    """Return a pack whose rows are not parsed yet.

    Args:
        manifest: Manifest file.
        tasks: Task file.
        limit: Reading stops behind this many rows; None reads all.

    Raises:
        ConfigErrors: The manifest does not hold or a file cannot be read.
    """
    loaded = load_benchmark_manifest(manifest)
    return BenchmarkPack(loaded, _read_lines(Path(tasks), str(tasks), limit), str(tasks))


def check_pack(
    manifest: Path | str,
    tasks: Path | str,
    *,
    limit: int | None = None,
    task_file: str = TASK_FILE,
    is_checked: bool = False,
) -> CheckedPack:
    """Collect everything that would stop a run before its first task, without raising.

    Args:
        manifest: Manifest file; the asset roots lie below its folder.
        tasks: Task file.
        limit: Rows behind this many are not read.
        task_file: Workspace path of the public payload.
        is_checked: Whether a pack with this content was checked before: only what compiling needs
            is done again.
    """
    if is_folder_pack(Path(manifest), Path(tasks)):
        return _check_folders(Path(manifest), limit, task_file)
    try:
        pack = load_benchmark_pack(manifest, tasks, limit=limit)
    except ConfigErrors as broken:
        return CheckedPack(None, (), tuple(_pack_error(error) for error in broken.errors))
    empty = _without_rows(pack, limit)
    if empty is not None:
        return CheckedPack(pack, (), (empty,))
    compiled = compile_rows(pack, limit=limit, is_checked=is_checked)
    if is_checked:
        return CheckedPack(pack, compiled.tasks, compiled.errors)
    errors = list(compiled.errors)
    for row, task in compiled.tasks:
        errors += (
            row_error(row.context, problem, path=pack.tasks_path, line=row.line)
            for problem in task_problems(task, Path(manifest).parent, task_file=task_file)
        )
    placed = _environment_errors(pack, compiled.tasks)
    rows = once_per_cause(in_file_order([*errors, *placed.rows]))
    return CheckedPack(pack, compiled.tasks, (*placed.manifest, *rows))


def _check_folders(
    manifest: Path, limit: int | None, task_file: str, registry: str = ""
) -> CheckedPack:
    """Collect everything that would stop a run of a pack of task folders."""
    try:
        found = read_folder_pack(manifest, limit=limit, task_file=task_file, registry=registry)
    except ConfigErrors as broken:
        return CheckedPack(None, (), tuple(_pack_error(error) for error in broken.errors))
    errors = found.errors
    if not found.tasks and not errors:
        errors = (PackError("a limit below 1 leaves no task", path=str(manifest.parent)),)
    pack = BenchmarkPack(found.manifest, (), str(manifest.parent))
    return CheckedPack(pack, found.tasks, errors)


def check_upload(
    manifest: Path,
    tasks: Path,
    *,
    limit: int | None = None,
    task_file: str = TASK_FILE,
    folders: FolderOptions = EVERY_FOLDER,
) -> CheckedPack:
    """Collect what would stop a pack of this machine: its upload or, as ``check_pack``, its run.

    The files that it names come first: a FIFO is not read. What else is no file and no folder is
    told of packs without other errors.

    Args:
        manifest: As of ``check_pack``.
        tasks: As of ``check_pack``.
        limit: As of ``check_pack``.
        task_file: As of ``check_pack``.
        folders: What holds for a pack of task folders.
    """
    unreadable = named_file_problems(manifest, tasks)
    if unreadable:
        return CheckedPack(None, (), unreadable)
    if is_folder_pack(manifest, tasks):
        checked = _check_folders(manifest, limit, task_file, folders.registry)
        is_skipped = folders.skips_invalid and checked.tasks
        return checked._replace(errors=(), skipped=checked.errors) if is_skipped else checked
    checked = check_pack(manifest, tasks, limit=limit, task_file=task_file)
    if checked.pack is None or checked.errors:
        return checked
    roots = checked.pack.manifest.asset_roots
    return checked._replace(errors=root_problems(manifest, roots))


def load_tasks(
    manifest: Path | str,
    tasks: Path | str,
    *,
    limit: int | None = None,
    task_file: str = TASK_FILE,
    is_checked: bool = False,
) -> LoadedPack:
    """Return a pack and its tasks when nothing stops a run; arguments as of ``check_pack``.

    Raises:
        ConfigErrors: One PackError per defect of manifest, rows and assets.
    """
    checked = check_pack(manifest, tasks, limit=limit, task_file=task_file, is_checked=is_checked)
    if checked.pack is None or checked.errors:
        raise ConfigErrors(checked.errors)
    return LoadedPack(checked.pack, tuple(task for _, task in checked.tasks))


def pack_file(folder: Path, name: str) -> Path:
    """Return a file of a pack whose name comes from a user.

    Raises:
        PackError: The name is not relative, or it leads out of the folder or through a symlink.
    """
    relative = safe_relative_path(name, "pack file")
    base = folder.resolve()
    if _resolved(base / relative) != base / relative:
        raise PackError("must be a file of the pack and not reached by a symlink", path=name)
    return base / relative


def _resolved(path: Path) -> Path | None:
    """Return a path without symlinks, or None where one leads to itself."""
    try:
        return path.resolve()
    except RuntimeError:
        return None


def read_answers(folder: Path) -> bytes | None:
    """Return the content of a pack's reference answers, or None where it has none.

    Raises:
        PackError: The file is reached by a symlink, is no regular file, or cannot be read.
    """
    try:
        path = pack_file(folder, ANSWERS_FILE)
        for problem in named_file_problems(path):
            raise problem
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(ANSWERS_FILE, error) from None


def task_problems(
    task: SecureBenchTask, pack_root: Path, *, task_file: str = TASK_FILE
) -> Iterator[str]:
    """Yield what stops a run because of the files of one compiled task, without its context."""
    found = False
    for reference in each_reference(task):
        try:
            if isinstance(reference, PathError):
                raise reference
            asset_source(pack_root, asset_root(task, reference.lane), reference)
        except PackError as error:
            found = True
            yield error.reason
    if not found:
        yield from _plan_problems(task, task_file)


def _plan_problems(task: SecureBenchTask, task_file: str) -> Iterator[str]:
    for component in (Component.AGENT, Component.TEST_SANDBOX, Component.EVALUATOR):
        try:
            plan = materialization_plan(task, component)
            if component is Component.AGENT:
                check_task_file(plan, task_file)
        except PackError as error:
            yield error.reason
            return


class _EnvironmentErrors(NamedTuple):
    manifest: tuple[PackError, ...]
    rows: tuple[PackError, ...]


def _environment_errors(
    pack: BenchmarkPack, compiled: tuple[CompiledTask, ...]
) -> _EnvironmentErrors:
    """Return what is wrong with the tasks' environments, at the file that is the cause."""
    manifest = pack.manifest
    rows: list[PackError] = []
    inherited: Counter[EnvironmentProblem] = Counter()
    of_rows = {key for row, _ in compiled for key in row.environment}
    of_manifest = manifest.default_environment.keys()
    for row, task in compiled:
        for problem in environment_problems(task):
            is_shared = problem.key in of_manifest or problem.key not in of_rows
            if problem.key not in row.environment and is_shared:
                inherited[problem] += 1
            else:
                context, place = row.context, pack.tasks_path
                rows.append(row_error(context, problem.reason, path=place, line=row.line))
    return _EnvironmentErrors(
        tuple(
            PackError(
                f"{problem.reason} (defaults.environment.{problem.key}; rows: {count})"
                f"{_one_level_up(manifest, problem.key)}",
                path=manifest.path,
                line=manifest.line_of("defaults", "environment", problem.key),
            )
            for problem, count in inherited.items()
        ),
        tuple(rows),
    )


def _one_level_up(manifest: BenchmarkManifest, key: str) -> str:
    """Return the end of a message about a key of the environment that stands above it."""
    if f"defaults.{key}" not in dict(manifest.unknown_keys):
        return ""
    return f"; {key} stands under defaults: write it one level deeper, under environment"


def _without_rows(pack: BenchmarkPack, limit: int | None) -> PackError | None:
    """Return what is wrong with a pack that no task comes from (contract 21.19)."""
    if limit is not None and limit < 1:
        return PackError(f"a limit of {limit} leaves no task", path=pack.tasks_path)
    if not pack.lines:
        reason = "the file has no task; write one JSON object per line"
        return PackError(reason, path=pack.tasks_path)
    problem = lines_problem(pack.lines)
    line = pack.lines[0].number
    return None if problem is None else PackError(problem, path=pack.tasks_path, line=line)


def _read_lines(path: Path, shown: str, limit: int | None) -> tuple[RawLine, ...]:
    try:
        with path.open("rb") as stream:
            check_encoding(stream.read(_MARK_BYTES))
            stream.seek(0)
            return tuple(islice(split_lines(stream), limit))
    except OSError as error:
        raise ConfigErrors([_unreadable(shown, error)]) from None
    except PlainProblem as problem:
        raise ConfigErrors([PackError(problem.reason, path=shown, line=problem.line)]) from None


def _unreadable(name: str, error: OSError) -> PackError:
    return PackError(f"cannot be read: {error.strerror or 'unknown reason'}", path=name)


def _pack_error(error: InvalidInputError) -> PackError:
    return error if isinstance(error, PackError) else PackError(error.reason)


_SPECIAL: Final[Mapping[int, str]] = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def named_file_problems(*files: Path) -> tuple[PackError, ...]:
    """Return which of these files are symlinks or special; reading a FIFO would never end.

    Args:
        files: Manifest and task file; that one is absent or a folder is for its reader to say.
    """
    found = (_problem(path) for path in files if os.path.lexists(path))
    return tuple(problem for problem in found if problem is not None)


def root_files(manifest: Path, roots: AssetRoots) -> dict[str, Path]:
    """Return the files of both asset roots by their path in the pack; the rest is left out."""
    entries = _root_entries(manifest, roots)
    return {name: path for name, path in entries if stat.S_ISREG(path.lstat().st_mode)}


def root_problems(manifest: Path, roots: AssetRoots) -> tuple[PackError, ...]:
    """Return what is neither file nor folder in the asset roots."""
    found = (_problem(path) for _, path in _root_entries(manifest, roots))
    return tuple(problem for problem in found if problem is not None)


def _root_entries(manifest: Path, roots: AssetRoots) -> Iterator[tuple[str, Path]]:
    for root in (roots.public, roots.eval):
        name = safe_relative_path(root, "asset root")
        folder = manifest.parent / name
        for parent, folders, names in os.walk(folder, followlinks=False):
            for entry in sorted((*folders, *names)):
                path = Path(parent, entry)
                yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _problem(path: Path) -> PackError | None:
    kind = stat.S_IFMT(path.lstat().st_mode)
    if kind in {stat.S_IFREG, stat.S_IFDIR}:
        return None
    if kind == stat.S_IFLNK:
        target = "folder" if path.is_dir() else "file"
        what = f"a symlink: replace it by the {target}"
    else:
        what = _SPECIAL.get(kind, "a special file")
    return PackError(f"is {what}; packs hold files and folders only", path=str(path))


def asset_source(pack_root: Path, root: str, reference: FileReference) -> Path:
    """Return the file or folder that a reference names, after checking all of it.

    Args:
        pack_root: Folder of the manifest.
        root: Asset root as the manifest has it.
        reference: What the task names.

    Raises:
        PackError: It does not exist, leaves its root, is or holds a symlink, or is or holds
            something else than files and folders.
    """
    base = pack_root.resolve()
    below = "" if root == WHOLE_PACK else safe_relative_path(root, "asset root")
    folder = _resolved(base / below)
    if folder is None:
        raise PackError(f"asset root {root!r} is a symlink that leads to itself")
    if not folder.is_relative_to(base):
        raise PackError(f"asset root {root!r} lies outside the benchmark package")
    source = folder / reference.source
    what = f"{reference.name}.path {reference.source!r}"
    if source.is_symlink():
        raise PackError(f"{what} is a symlink; packs hold files and folders only")
    if not source.exists():
        raise PackError(f"asset source does not exist: {what} below {root!r}")
    if not source.resolve().is_relative_to(folder):
        raise PackError(f"{what} lies outside its root {root!r}")
    for entry, mode in _entries(source):
        _check_entry(what, source, entry, mode)
    return source


def _entries(source: Path) -> Iterator[tuple[Path, int]]:
    yield source, source.lstat().st_mode
    if source.is_dir():
        for folder, folders, files in os.walk(source, followlinks=False):
            for name in sorted((*folders, *files)):
                entry = Path(folder) / name
                yield entry, entry.lstat().st_mode


def _check_entry(what: str, source: Path, entry: Path, mode: int) -> None:
    place = what if entry == source else f"{what}: {str(entry.relative_to(source))!r}"
    if stat.S_ISLNK(mode):
        raise PackError(f"{place} is a symlink; packs hold files and folders only")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise PackError(f"{place} is neither a file nor a folder")


def pack_digest(manifest: Path, tasks: Path, roots: AssetRoots) -> str:
    """Return the digest that binds results to a pack.

    Args:
        manifest: Manifest file; the asset roots lie below its folder.
        tasks: Task file.
        roots: Asset roots of the manifest; a missing one counts as empty.

    Returns:
        ``sha256:`` and hex over manifest bytes, task file bytes and path and content of
        every file of both roots. A symlink counts by its target's text, it is not followed.
        Of a pack of task folders it is that of ``FolderPack``.

    Raises:
        StorageError: A root holds something else than files, folders and symlinks.
    """
    if is_folder_pack(manifest, tasks):
        return read_folder_pack(manifest).digest
    return listing_digest(
        (
            (b"manifest", file_sha256(manifest)),
            (b"tasks", file_sha256(tasks)),
            *_digested_entries(b"public", manifest.parent / roots.public),
            *_digested_entries(b"eval", manifest.parent / roots.eval),
        )
    )


def _digested_entries(name: bytes, root: Path) -> list[tuple[bytes, str]]:
    """Return path and content of every entry of an asset root, in byte order of the paths."""
    if not root.is_dir():
        return []
    return [(name + b"/" + path, _entry_digest(entry)) for path, entry in tree_entries(root)]


def _entry_digest(entry: Path) -> str:
    mode = entry.lstat().st_mode
    if stat.S_ISREG(mode):
        return file_sha256(entry)
    if stat.S_ISLNK(mode):
        return f"link:{hashlib.sha256(os.fsencode(entry.readlink())).hexdigest()}"
    raise StorageError(f"{entry.name!r} is no regular file")
