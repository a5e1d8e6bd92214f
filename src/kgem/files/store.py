"""A folder of files that can be trusted: tensors and JSON, hashed in a manifest, checked whenever they are read.

A store is `<group>.safetensors` and `<document>.json` files, `manifest.json` with the sha256 and size of each, and
`manifest.sha256` with that of the manifest, as `sha256sum` writes it. It is written whole or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kgem.errors import ArtifactError, Damaged
from kgem.files.atomic import is_at, locate, replace_folder, sync

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "TENSORS",
    "FileRecord",
    "Manifest",
    "Others",
    "Store",
    "hash_file",
    "is_store",
    "kgem_version",
    "read_document",
    "read_kind",
    "read_store",
    "system_error",
    "write_group",
    "write_store",
]

T = TypeVar("T")

MANIFEST, SEAL = "manifest.json", "manifest.sha256"
TENSORS, DOCUMENT = ".safetensors", ".json"
UNGROUPED = "tensors"  # the group of tensors whose names have no "/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OTHER_HASH = "is damaged: its sha256 is not the one in the manifest"
_ANEW = "restore the folder from a copy, or make it anew"


@dataclass(frozen=True)
class FileRecord:
    """What a file must be."""

    sha256: str
    size: int  # bytes


@dataclass(frozen=True)
class Manifest:
    """What a store is, which kgem wrote it, and what its files must be."""

    kind: str
    version: int  # of the format
    kgem: str
    files: dict[str, FileRecord]


@dataclass(frozen=True, eq=False)
class Store:
    """The content of a store that was found to be exactly what was written."""

    tensors: dict[str, Tensor]
    documents: dict[str, Any]
    manifest: Manifest
    folder: Path  # where it was found


Others = Callable[[Path], Callable[[], Mapping[str, "FileRecord"]]]
"""Others are told of the folder that is being filled; what that returns waits for the files that they put there."""


def write_store(
    folder: Path,
    tensors: Mapping[str, Tensor],
    documents: Mapping[str, Any],
    *,
    kind: str,
    version: int,
    others: Others | None = None,
) -> None:
    """Write a store, in place of the one that may be there; on any failure that one stays.

    A tensor "group/name" goes to `group.safetensors`, one without "/" to `tensors.safetensors`. Equal content gives
    equal bytes. A store that is replaced goes with everything in it; a folder that is no store is not replaced.
    `others` add files of theirs: the store is there when all of them are.
    """
    from safetensors import SafetensorError

    groups = _group(tensors)
    _check_documents(documents)
    try:
        _check_replaceable(folder)
        with replace_folder(folder) as new:
            _fill(new, groups, documents, Manifest(kind, version, kgem_version(), {}), others)
    except (OSError, SafetensorError) as error:
        raise _not_written(folder, error) from error


def write_group(folder: Path, group: str, tensors: Mapping[str, Tensor]) -> FileRecord:
    """One of the `others`: a file of tensors in the folder that is being filled, on disk before its name is told."""
    from safetensors import SafetensorError

    path = folder / f"{group}{TENSORS}"
    try:
        record = _write_tensors(path, _group(tensors)[UNGROUPED])
        sync(path)
    except (OSError, SafetensorError) as error:
        raise _not_written(path, error) from error
    return record


def read_store(
    folder: Path,
    *,
    kind: str,
    version: int,
    mapped: bool = False,
    wanted: Callable[[str], bool] = lambda group: True,
) -> Store:
    """Read a store of this kind and at most this format version; all of it is checked. Tensors are on the CPU.

    `mapped` tensors are the files themselves, of which the system holds in memory what is looked at: to copy from.
    Groups of tensors that are not `wanted` are not opened.
    """
    while found := _locate(folder):
        place, handle = found
        try:
            store = _read(place, kind, version, mapped, wanted)
            if is_at(handle, place):
                return store  # else it was replaced while being read, and may be of two
        except ArtifactError:
            if is_at(handle, place):
                raise  # else it was replaced, and is not damaged
        finally:
            os.close(handle)
    raise ArtifactError(f"there is no {kind} here", where=str(folder), remedy="check the path")


def read_document(folder: Path, name: str, *, kind: str, version: int) -> Any:
    """One document of a store, checked; of the other files only that they are there with the right size."""
    while found := _locate(folder):
        place, handle = found
        try:
            manifest = _read_manifest(place, kind, version)
            for other, record in manifest.files.items():
                _check_size(place / other, record)
            path = place / f"{name}{DOCUMENT}"
            return _from_json(path, _read_checked(path, manifest.files[path.name]))
        except ArtifactError:
            if is_at(handle, place):
                raise  # else it was replaced while being read
        finally:
            os.close(handle)
    raise ArtifactError(f"there is no {kind} here", where=str(folder), remedy="check the path")


def is_store(folder: Path) -> bool:
    """Whether the folder says that it is a store; nothing is checked."""
    return (folder / MANIFEST).is_file()


def read_kind(folder: Path) -> str | None:
    """What the folder says it is a store of, if it is one; nothing is checked."""
    try:
        return str(json.loads((folder / MANIFEST).read_bytes())["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_replaceable(folder: Path) -> None:
    elsewhere = "choose another folder, or move this one away"
    if folder.exists() and not folder.is_dir():
        raise ArtifactError("is a file, not a folder", where=str(folder), remedy=elsewhere)
    if folder.exists() and not is_store(folder) and any(folder.iterdir()):
        what = f"has files that kgem did not write (no {MANIFEST}); it is not overwritten"
        raise ArtifactError(what, where=str(folder), remedy=elsewhere)


def _group(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Tensors by file, as safetensors wants them: on the CPU, contiguous, none sharing memory."""
    groups: dict[str, dict[str, Tensor]] = {}
    seen: set[int] = set()
    for full_name, given in tensors.items():
        group, slash, name = full_name.rpartition("/")
        if not name or (slash and (group == UNGROUPED or not _NAME.fullmatch(group))):
            raise ValueError(f"not a name for a tensor: {full_name!r}")
        tensor = given.detach().cpu().resolve_conj().resolve_neg().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        groups.setdefault(group or UNGROUPED, {})[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return groups


def _check_documents(documents: Mapping[str, Any]) -> None:
    bad = [name for name in documents if not _NAME.fullmatch(name) or name + DOCUMENT == MANIFEST]
    if bad:
        raise ValueError(f"not names for documents: {bad}")


def _fill(
    folder: Path,
    groups: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    manifest: Manifest,
    others: Others | None,
) -> None:
    """Write all files of a store into an empty folder; the manifest, to which they are added, last."""
    files = manifest.files
    wait = others(folder) if others else dict
    try:
        for group, tensors in sorted(groups.items()):
            files[f"{group}{TENSORS}"] = _write_tensors(folder / f"{group}{TENSORS}", tensors)
    finally:
        files |= wait()  # they must be heard out whatever happens here
    for name, document in sorted(documents.items()):
        path = folder / f"{name}{DOCUMENT}"
        path.write_bytes(_to_json(document))
        files[path.name] = FileRecord(hash_file(path), path.stat().st_size)
    (folder / MANIFEST).write_bytes(_to_json(asdict(manifest)))
    (folder / SEAL).write_bytes(_seal(hash_file(folder / MANIFEST)))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileRecord:
    from safetensors.torch import save_file

    save_file(dict(tensors), path)
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors lets nobody else read it
    return FileRecord(hash_file(path), path.stat().st_size)


def _to_json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _seal(sha256: str) -> bytes:
    return f"{sha256}  {MANIFEST}\n".encode()


def hash_file(path: Path) -> str:
    """sha256 of what the file holds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def kgem_version() -> str:
    """Of this kgem, as files say who wrote them."""
    from importlib import metadata  # slow to import

    try:
        return metadata.version("kgem")
    except metadata.PackageNotFoundError:  # run from the source folder, not installed
        return "source"


def system_error(error: Exception) -> int | None:
    """The system's number of an error in writing; safetensors and polars tell it in their text only."""
    told = re.search(r"os error (\d+)", str(error))
    return error.errno if isinstance(error, OSError) else int(told[1]) if told else None


def _not_written(folder: Path, error: Exception) -> ArtifactError:
    """Say why a store could not be written."""
    number = system_error(error)
    if number in _FULL:
        what, remedy = "the disk is full: nothing was written", "make room on the disk and try again"
    else:
        reason = os.strerror(number) if number else str(error)
        what, remedy = f"cannot be written: {reason}", "check the path, its permissions and the disk"
    return ArtifactError(what, where=str(folder), remedy=f"{remedy}; what was there before is still there")


def _locate(folder: Path) -> tuple[Path, int] | None:
    try:
        return locate(folder)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ArtifactError(what, where=str(folder), remedy="check the path and its permissions") from error


def _read(folder: Path, kind: str, version: int, mapped: bool, wanted: Callable[[str], bool]) -> Store:
    manifest = _read_manifest(folder, kind, version)
    tensors: dict[str, Tensor] = {}
    documents: dict[str, Any] = {}
    for name, record in manifest.files.items():
        path = folder / name
        if path.suffix == DOCUMENT:
            documents[path.stem] = _from_json(path, _read_checked(path, record))
        elif not wanted(path.stem):
            _check_size(path, record)
        else:
            prefix = "" if path.stem == UNGROUPED else f"{path.stem}/"
            tensors |= {prefix + key: tensor for key, tensor in _from_safetensors(path, record, mapped).items()}
    return Store(tensors, documents, manifest, folder)


def _read_manifest(folder: Path, kind: str, version: int) -> Manifest:
    path = folder / MANIFEST
    content, seal = (_read_with(each, Path.read_bytes) for each in (path, folder / SEAL))
    if seal != _seal(hashlib.sha256(content).hexdigest()):
        raise Damaged(f"is damaged: it does not agree with {SEAL}", where=str(path), remedy=_ANEW)
    try:
        fields = json.loads(content)
        files = {_check_name(name): FileRecord(**record) for name, record in fields["files"].items()}
        manifest = Manifest(str(fields["kind"]), int(fields["version"]), str(fields["kgem"]), files)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged("is not a manifest that kgem wrote", where=str(path), remedy=_ANEW) from error
    if manifest.kind != kind:
        what = f"this is a {manifest.kind}, not a {kind}"
        raise ArtifactError(what, where=str(folder), remedy=f"give the folder of a {kind}")
    if manifest.version > version:
        what = f"this {kind} has format {manifest.version}, of kgem {manifest.kgem}; this kgem reads up to {version}"
        raise ArtifactError(what, where=str(folder), remedy="use a newer kgem: pip install --upgrade kgem")
    return manifest


def _check_name(name: str) -> str:
    """The name, if it is one that write_store gives: nothing outside the folder is ever opened."""
    stem = name.removesuffix(TENSORS).removesuffix(DOCUMENT)
    if stem == name or not _NAME.fullmatch(stem):
        raise ValueError(name)
    return name


def _read_with(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Damaged("is missing", where=str(path), remedy=_ANEW) from error
    except PermissionError as error:
        raise ArtifactError("may not be read", where=str(path), remedy="check its permissions") from error
    except OSError as error:
        raise Damaged(f"cannot be read: {error.strerror}", where=str(path), remedy=_ANEW) from error


def _read_checked(path: Path, record: FileRecord) -> bytes:
    """What the file holds, if it is what was written."""
    _check_size(path, record)
    content = _read_with(path, Path.read_bytes)
    if hashlib.sha256(content).hexdigest() != record.sha256:
        raise Damaged(_OTHER_HASH, where=str(path), remedy=_ANEW)
    return content


def _check_size(path: Path, record: FileRecord) -> None:
    size = _read_with(path, Path.stat).st_size
    if size != record.size:
        how = "cut short" if size < record.size else "longer than written"
        raise Damaged(f"is {how}: {size:,} bytes instead of {record.size:,}", where=str(path), remedy=_ANEW)


def _from_json(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise Damaged("is not JSON", where=str(path), remedy=_ANEW) from error


def _from_safetensors(path: Path, record: FileRecord, mapped: bool) -> dict[str, Tensor]:
    """The tensors of a file, in memory that torch itself aligned unless `mapped`: how sums round can depend on it."""
    from safetensors import SafetensorError, safe_open

    def view(path: Path) -> dict[str, Tensor]:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in sorted(file.keys())}

    _check_size(path, record)
    if _read_with(path, hash_file) != record.sha256:
        raise Damaged(_OTHER_HASH, where=str(path), remedy=_ANEW)
    try:
        views = _read_with(path, view)
    except SafetensorError as error:
        raise Damaged("is not in safetensors format", where=str(path), remedy=_ANEW) from error
    return views if mapped else {name: view.clone() for name, view in views.items()}
