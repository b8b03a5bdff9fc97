"""The members of shards one after another, for programs that group them into samples themselves.

The process that names a shard reads all of it. The program deals the shards to such pipelines, and
they have no state. Prefer tarfile_to_samples().
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .handlers import reraise_exception
from .source import tarfile_samples


def base_plus_ext(path: str) -> tuple[str | None, str | None]:
    """Key and field of a member: what comes before and after the first dot of its file's name."""
    folder, slash, name = path.rpartition("/")
    base, dot, field = name.partition(".")
    return (folder + slash + base, field) if base and dot else (None, None)


def valid_sample(sample: Any) -> bool:
    """True for a non-empty dict whose ``__bad__`` is missing or false."""
    return isinstance(sample, dict) and bool(sample) and not sample.get("__bad__", False)


def url_opener(
    data: Iterable[dict[str, Any]], handler: Any = reraise_exception, **kw: Any
) -> Iterator[dict[str, Any]]:
    """Passes the URLs of the shards on: tar_file_expander() opens the shards."""
    del handler, kw
    yield from data


class _End(dict[str, Any]):
    """The empty dict after the members of a shard. Its file name is "", so functions that expect
    only members, e.g. those of open_clip, skip it."""

    def __missing__(self, name: str) -> str:
        return ""


def tar_file_expander(
    data: Iterable[dict[str, Any]],
    handler: Any = reraise_exception,
    select_files: Any = None,
    rename_files: Any = None,
    eof_value: Any = _End(),  # noqa: B008
) -> Iterator[dict[str, Any]]:
    """``{"fname": ..., "data": ..., "__url__": ...}`` for each member of the shards, with
    ``eof_value`` after each shard, by default an empty dict."""
    for item in data:
        for sample in tarfile_samples([item], handler):
            for field, value in sample.items():
                if field.startswith("__"):
                    continue
                name = f"{sample['__key__']}.{field}"
                name = name if rename_files is None else rename_files(name)
                if select_files is None or select_files(name):
                    yield {"fname": name, "data": value, "__url__": sample["__url__"]}
        if eof_value is not None:
            yield eof_value


def group_by_keys(
    data: Iterable[dict[str, Any]],
    keys: Any = base_plus_ext,
    lcase: bool = True,
    suffixes: Any = None,
    handler: Any = reraise_exception,
) -> Iterator[dict[str, Any]]:
    """Samples of members that follow each other, and have one key."""
    sample: dict[str, Any] | None = None
    prefix: Any
    suffix: Any
    for member in data:
        prefix, suffix = keys(member["fname"]) if member else (None, None)
        if sample is not None and (not member or prefix not in (None, sample["__key__"])):
            yield sample
            sample = None
        if prefix is None:
            continue
        suffix = suffix.lower() if lcase else suffix
        if sample is None:
            sample = {"__key__": prefix, "__url__": member["__url__"]}
        if suffix in sample:
            if handler(
                ValueError(
                    f"a sample has a field twice: {member['fname']!r}; remove or "
                    "rename one of the members"
                )
            ):
                continue
            return
        if suffixes is None or suffix in suffixes:
            sample[suffix] = member["data"]
    if sample is not None:
        yield sample


__all__ = ["base_plus_ext", "group_by_keys", "tar_file_expander", "url_opener", "valid_sample"]
