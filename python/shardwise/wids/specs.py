"""Descriptors: the JSON files that list the shards of a data set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import ParseResult, urlparse, urlunparse

from .._core import read_remote
from ..arguments import path_of, refuse
from ..errors import InvalidArgument, VersionMismatch

_MAX_BYTES = 256 << 20
_LOCAL_SCHEMES = ("", "file", "pipe")

Shard = dict[str, Any]
"""The entry of one shard in a descriptor: url, nsamples, and further keys."""


def _is_path(url: str) -> bool:
    """True for a path, in which characters such as # and ? have no meaning."""
    return "://" not in url and not url.startswith("file:")


def _parts(url: str) -> ParseResult:
    try:
        return urlparse(url)
    except ValueError as error:
        raise InvalidArgument(f"not a URL: {url!r} ({error}); correct the URL") from None


def urldir(url: str) -> str:
    """The part of a URL or path before its file name."""
    if _is_path(url):
        return os.path.dirname(url)
    parts = _parts(url)
    return parts._replace(path=os.path.dirname(parts.path)).geturl()


def urlmerge(base: str, url: str) -> str:
    """Resolves a URL or path relative to ``base``, which supplies missing parts."""
    if url.startswith("pipe:"):
        return url
    if _is_path(base) and _is_path(url):
        return url if url.startswith("/") else os.path.normpath(os.path.join(base, url))
    above, parts = _parts(base), _parts(url)
    path = parts.path
    if not path.startswith("/"):
        path = os.path.normpath(os.path.join(above.path, path))
    return urlunparse(
        (
            parts.scheme or above.scheme,
            parts.netloc or above.netloc,
            path,
            parts.params,
            parts.query,
            parts.fragment,
        )
    )


def is_remote(url: str) -> bool:
    """True for URLs of other machines (http, https, s3 and others), and for ``pipe:``."""
    return url.startswith("pipe:") or ("://" in url and not url.startswith("file:"))


def local_path(url: str) -> str:
    """The path of a path or a ``file:`` URL."""
    return _parts(url).path if url.startswith("file:") else path_of(url)


def _text(value: Any, name: str) -> str | None:
    """A path or URL of a descriptor as text, or None. Raises InvalidArgument for other values."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, str):
        return value
    refuse(name, value, "give a path or a URL")


def _shown(shards: list[Shard], number: int) -> str:
    url = shards[number].get("url") if isinstance(shards[number], dict) else None
    return f"shardlist[{number}]" + (f" ({url!r})" if url is not None else "")


def check_shards(shards: Any) -> list[Shard]:
    """Returns the list. Raises InvalidArgument unless each entry has a ``url`` and a count
    ``nsamples``.
    """
    if not isinstance(shards, list):
        raise InvalidArgument(
            f"a shardlist must be a list of objects with url and nsamples, not {shards!r:.60}"
        )
    for number, shard in enumerate(shards):
        if not isinstance(shard, dict) or not isinstance(shard.get("url"), str):
            raise InvalidArgument(f"{_shown(shards, number)} has no url; give each shard a url")
        count = shard.get("nsamples")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidArgument(
                f"{_shown(shards, number)} has nsamples {count!r}; give the number of samples of "
                "the shard, e.g. by `widsindex create`"
            )
    return shards


def check_datasets(datasets: Any) -> list[dict[str, Any]]:
    """Returns the list. Raises InvalidArgument unless each entry is a dict."""
    if not isinstance(datasets, list) or not all(isinstance(entry, dict) for entry in datasets):
        raise InvalidArgument(
            "datasets must be a list of objects with a shardlist or a source_url, not "
            f"{datasets!r:.60}"
        )
    return datasets


def set_all(shards: list[Shard], key: str, value: Any) -> None:
    """Sets ``key`` of each shard that lacks it; the value None sets nothing."""
    if value is None:
        return
    for shard in shards:
        shard.setdefault(key, value)


def rebase_shardlist(shards: list[Shard], base: str | None) -> list[Shard]:
    """Resolves the URLs of the shards relative to ``base``, in place."""
    if base is not None:
        for shard in shards:
            if isinstance(shard, dict) and isinstance(shard.get("url"), str):
                shard["url"] = urlmerge(base, shard["url"])
    return shards


def load_remote_dsdesc_raw(source: Any) -> dict[str, Any]:
    """The unchanged JSON of a descriptor, from a path, a URL, or an open stream.

    Raises OSError, NotFound, FetchError; InvalidArgument if it is not a JSON object.
    """
    if hasattr(source, "read"):
        name = getattr(source, "name", source)
        text = source.read()
    elif is_remote(name := path_of(source)):
        if name.startswith("pipe:"):
            raise InvalidArgument(
                f"the descriptor {name!r} is a command, and commands are not run; save its "
                "output as a file"
            )
        text = read_remote(name, _MAX_BYTES)
    else:
        with open(local_path(name), "rb") as file:
            text = file.read()
    try:
        descriptor = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"the descriptor {name!r} is not JSON: {error}; make the "
            "descriptor again with `widsindex create`"
        ) from None
    if not isinstance(descriptor, dict):
        raise InvalidArgument(
            f"the descriptor {name!r} is not a JSON object; make the "
            "descriptor again with `widsindex create`"
        )
    return descriptor


def _require_remote(shards: list[Shard], source: str) -> None:
    """Refuses a remote descriptor that lists local files or commands: it must not make this machine
    read or run them."""
    for shard in shards:
        scheme = "pipe" if shard["url"].startswith("pipe:") else _parts(shard["url"]).scheme
        if scheme in _LOCAL_SCHEMES:
            raise InvalidArgument(
                f"the remote descriptor {source!r} names the local shard {shard['url']!r}; name "
                "only remote shards in a remote descriptor"
            )


def _home(descriptor: Mapping[str, Any], otherwise: str | None) -> str | None:
    """Returns the base URL of a descriptor's relative URLs."""
    base = _text(descriptor.get("base"), "base")
    if base is None:
        return otherwise
    return urlmerge(otherwise, base) if otherwise is not None else base


def _component(descriptor: dict[str, Any], home: str | None) -> list[Shard]:
    """Returns the shards of an entry of ``datasets``."""
    source = _text(descriptor.get("source_url"), "source_url")
    name, weight = descriptor.get("name"), descriptor.get("weight")
    if source is not None:
        source = urlmerge(home, source) if home is not None else source
        descriptor = load_remote_dsdesc_raw(source)
        if "source_url" in descriptor or "datasets" in descriptor:
            raise InvalidArgument(
                f"the referenced descriptor {source!r} refers to other descriptors; refer only to "
                "descriptors that have a shardlist"
            )
        home = urldir(source)
    if "shardlist" not in descriptor:
        where = repr(source) if source else f"the entry {name!r} of datasets"
        raise InvalidArgument(f"no shardlist in {where}; add a shardlist")
    shards = rebase_shardlist(check_shards(descriptor["shardlist"]), _home(descriptor, home))
    if source is not None and is_remote(source):
        _require_remote(shards, source)
    set_all(shards, "weight", weight)
    set_all(shards, "source_url", source)
    set_all(shards, "dataset", name or descriptor.get("name"))
    return shards


def resolve_dsdesc(
    dsdesc: dict[str, Any],
    *,
    options: Mapping[str, Any] | None = None,
    base: str | None = None,
    home: str | None = None,
) -> dict[str, Any]:
    """The descriptor with all its shards in ``shardlist``, and their URLs resolved.

    options: replace keys of the descriptor. base: the folder to which its relative URLs refer; by
    default its ``base``, or ``home``. An entry of ``datasets`` may hold a shardlist, or name
    another descriptor by its ``source_url``.

    Raises InvalidArgument, VersionMismatch if its wids_version is not 1, and what reading other
    descriptors raises.
    """
    if not isinstance(dsdesc, dict):
        raise InvalidArgument(f"a descriptor must be a JSON object, not {dsdesc!r:.60}")
    dsdesc = {**dsdesc, **(options or {})}
    if dsdesc.get("wids_version") != 1:
        raise VersionMismatch(
            f"the descriptor has wids_version {dsdesc.get('wids_version')!r}; give a descriptor "
            "of version 1"
        )
    base = _text(base, "base")
    home = base if base is not None else _home(dsdesc, home)
    shards = list(rebase_shardlist(check_shards(dsdesc.get("shardlist", [])), home))
    set_all(shards, "weight", dsdesc.get("weight"))
    set_all(shards, "name", dsdesc.get("name"))
    for component in check_datasets(dsdesc.get("datasets", [])):
        shards.extend(_component(component, home))
    if not shards:
        raise InvalidArgument(
            "the descriptor names no shards; check that the descriptor is complete"
        )
    dsdesc["shardlist"] = shards
    return dsdesc


def load_dsdesc_and_resolve(
    source: Any,
    *,
    options: Mapping[str, Any] | None = None,
    base: str | None = None,
) -> dict[str, Any]:
    """Reads a descriptor from a path, a URL or a stream, and resolves it: see resolve_dsdesc()."""
    is_named = not hasattr(source, "read")
    home = urldir(os.fspath(source)) if is_named else None
    resolved = resolve_dsdesc(load_remote_dsdesc_raw(source), options=options, base=base, home=home)
    if is_named and is_remote(os.fspath(source)):
        _require_remote(resolved["shardlist"], source)
    return resolved


__all__ = [
    "check_datasets",
    "check_shards",
    "is_remote",
    "load_dsdesc_and_resolve",
    "load_remote_dsdesc_raw",
    "local_path",
    "rebase_shardlist",
    "resolve_dsdesc",
    "set_all",
    "urldir",
    "urlmerge",
]
