"""Checkpoints: a folder of safetensors files and a JSON manifest, written atomically, verified on loading.

A run keeps them as `checkpoints/<step>/`: one `<group>.safetensors` per group of arrays (`agent`, `replay`)
and `checkpoint.json` with all the rest. The manifest has the SHA-256 of every file, itself included, so that
a flipped bit is an error and never a silently different agent. Nothing in a checkpoint is executed.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from aql.errors import UserError

FORMAT = 4
MANIFEST = "checkpoint.json"
_TEMPORARY = ".tmp"  # suffix; with the leading dot such a folder is never taken for a checkpoint

Arrays = dict[str, dict[str, np.ndarray]]
Tree = TypeVar("Tree")


class DamagedError(UserError):
    """A checkpoint whose files are not what was written."""


def save(folder: Path, arrays: Mapping[str, Mapping[str, np.ndarray]], meta: dict[str, Any]) -> None:
    """Writes a checkpoint, which appears under its name only when all of it is on the disk.

    `meta` is what JSON can hold: integers of any size; keys come back as strings, tuples as lists.
    A folder of the same name is replaced, which takes two renames. A kill between them leaves neither: to
    have a checkpoint at every moment, write the next one under another name, as a run does.
    """
    temporary = _temporary(folder)
    shutil.rmtree(temporary, ignore_errors=True)  # what a killed process left
    try:
        _write(temporary, arrays, meta)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)  # room for the next try
        raise UserError(
            f"{folder} cannot be written ({error}): free some space; checkpoints before it stand"
        ) from error
    replaced = _put_aside(folder) if folder.exists() else None
    os.rename(temporary, folder)
    _sync(folder.parent)
    if replaced:
        shutil.rmtree(replaced)


def _write(folder: Path, arrays: Mapping[str, Mapping[str, np.ndarray]], meta: dict[str, Any]) -> None:
    """Puts all files of a checkpoint into a new folder, and on the disk."""
    folder.mkdir(parents=True)
    files = {}
    for group, named in arrays.items():
        path = folder / f"{group}.safetensors"
        # safetensors writes the memory as it lies, so strided arrays must be made contiguous first.
        save_file({name: np.asarray(array, order="C") for name, array in named.items()}, path)
        _sync(path)
        files[path.name] = {"sha256": _sha256(path), "size": path.stat().st_size}
    # Through JSON and back, so that what is hashed is what `load` will read.
    body = json.loads(json.dumps({"format": FORMAT, "files": files, "meta": meta}))
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(body | {"sha256": _sha256_of_body(body)}, indent=1) + "\n", encoding="utf-8")
    _sync(manifest)
    _sync(folder)


def load(folder: Path, groups: Collection[str] | None = None) -> tuple[Arrays, dict[str, Any]]:
    """The arrays (of the named groups only, if any are) and the meta of a checkpoint, their hashes verified."""
    manifest = _read_manifest(folder)
    arrays = {}
    for name, expected in manifest["files"].items():
        path = folder / name
        if groups is not None and path.stem not in groups:
            continue
        try:
            if _sha256(path) != expected["sha256"]:
                raise _damaged(folder, name, "its SHA-256 is not the one in the manifest")
            arrays[path.stem] = load_file(path)
        except (OSError, SafetensorError) as error:
            raise _damaged(folder, name, str(error)) from error
    return arrays, manifest["meta"]


def folder_of(root: Path, step: int) -> Path:
    """Where the run in `root` keeps its checkpoint of this step."""
    return root / "checkpoints" / f"{step:012d}"


def latest(root: Path) -> Path | None:
    """The newest checkpoint of the run that looks intact: its manifest reads, its files have their sizes."""
    return next(_intact(root), None)


def any_folder(root: Path) -> bool:
    """Whether the run has a checkpoint at all, intact or not."""
    return bool(_folders(root))


def load_latest(root: Path, groups: Collection[str] | None = None) -> tuple[Arrays, dict[str, Any]]:
    """Loads the newest checkpoint of the run; if it is damaged, warns and takes the one before."""
    for folder in _folders(root):
        try:
            return load(folder, groups)
        except DamagedError as error:
            warnings.warn(f"falling back to an earlier checkpoint: {error}", RuntimeWarning, stacklevel=2)
    raise UserError(f"{root} has no intact checkpoint to load: name another run, or train again")


def prune(root: Path, keep: int) -> None:
    """Removes all but the newest `keep` intact-looking checkpoints of the run, and what killed saves left."""
    if keep < 1:
        raise UserError(f"cannot keep {keep} checkpoints: keep 1 or more")
    for leftover in (root / "checkpoints").glob(f".*{_TEMPORARY}"):
        shutil.rmtree(leftover)
    kept = list(_intact(root))[:keep]
    for folder in _folders(root):
        if kept and folder.name < kept[-1].name:
            # Put aside first: a kill half-way leaves a temporary folder, not half a checkpoint.
            shutil.rmtree(_put_aside(folder))


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a pytree by their paths, such as `params/critic/Dense_0/kernel`.

    JAX arrays are copied, because a view would hinder the donation of their buffers; NumPy arrays are not.
    """
    flat: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree):
        if name in flat:
            raise ValueError(f"two leaves are called {name!r}: a key contains the separator '/'")
        flat[name] = np.array(leaf) if isinstance(leaf, jax.Array) else np.asarray(leaf)
    return flat


def unflatten(like: Tree, flat: Mapping[str, np.ndarray]) -> Tree:
    """The inverse of `flatten`, for a tree with the structure, shapes and dtypes of `like`.

    Where `like` has a JAX array or a `jax.ShapeDtypeStruct`, so has the result; elsewhere NumPy arrays.
    """
    names = [name for name, _ in _named_leaves(like)]
    if unexpected := sorted(flat.keys() - set(names)):
        raise _mismatch(unexpected[0], "is in the checkpoint, but not expected")
    leaves = []
    for name, leaf in _named_leaves(like):
        if name not in flat:
            raise _mismatch(name, "is not in the checkpoint")
        on_device = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        expected = leaf if on_device else np.asarray(leaf)
        found = flat[name]
        if found.shape != expected.shape:
            raise _mismatch(name, f"has shape {found.shape}, expected {expected.shape}")
        if found.dtype != expected.dtype:
            raise _mismatch(name, f"has dtype {found.dtype}, expected {expected.dtype}")
        # A copy: JAX may otherwise alias the memory of the NumPy array.
        leaves.append(jnp.array(found) if on_device else found)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def _named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path, simple=True, separator="/"), leaf


def _mismatch(name: str, what: str) -> UserError:
    return UserError(f"{name!r} {what}: load it with the agent, environment and config that it was saved with")


def _folders(root: Path) -> list[Path]:
    """All checkpoints of a run, newest first; zero padding makes the order of names that of steps."""
    folders = (root / "checkpoints").glob("[0-9]*")
    return sorted((f for f in folders if f.name.isdecimal() and f.is_dir()), reverse=True)


def _intact(root: Path) -> Iterator[Path]:
    for folder in _folders(root):
        try:
            _read_manifest(folder)
        except DamagedError:
            continue
        yield folder


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, its own hash verified and the sizes of its files compared; their hashes are not."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(f"there is no checkpoint {folder}: name a folder that has a {MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found, version = manifest.pop("sha256"), manifest["format"]
    except (OSError, ValueError, AttributeError, LookupError, TypeError) as error:
        raise _damaged(folder, MANIFEST, f"it cannot be read: {error}") from error
    if found != _sha256_of_body(manifest):
        raise _damaged(folder, MANIFEST, "its SHA-256 is not the one it names")
    if version != FORMAT:
        remedy = "load it with the version of aql that wrote it"
        raise UserError(f"checkpoint {folder} has format {version}, expected {FORMAT}: {remedy}")
    for name, expected in manifest["files"].items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != expected["size"]:
            what = "it is missing" if size is None else f"it has {size} bytes, expected {expected['size']}"
            raise _damaged(folder, name, what)
    return manifest


def _damaged(folder: Path, name: str, what: str) -> DamagedError:
    return DamagedError(f"{folder / name} is damaged ({what}): use the checkpoint before it, or copy it anew")


def _temporary(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{_TEMPORARY}")


def _put_aside(folder: Path) -> Path:
    aside = _temporary(folder.with_name(f"{folder.name}.old"))
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(folder, aside)
    return aside


def _sync(path: Path) -> None:
    """Waits until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_of_body(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
