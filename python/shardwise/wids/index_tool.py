"""widsindex: makes and shows descriptors. ``python -m shardwise.wids.index_tool --help``."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from ..braces import expand_braces
from ..building import index
from ..errors import Error, InvalidArgument
from ..opening import open as open_dataset
from .dataset import ShardListDataset
from .specs import (
    check_datasets,
    check_shards,
    is_remote,
    load_remote_dsdesc_raw,
    local_path,
    urldir,
)


def format_with_suffix(number: float) -> str:
    """1234567 as "1.2M"."""
    for suffix in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.1f}{suffix}"
        number /= 1000
    return f"{number:.1f}E"


def shorten_name(name: str) -> str:
    """The words of a path except numbers, each once, joined by dashes."""
    words = [word for word in re.split(r"\W+", name) if word and not word.isdigit()]
    return "-".join(dict.fromkeys(words))


def _write_json(path: str, data: dict[str, Any], keep: str | None = None) -> None:
    """Writes a file completely or not at all. keep: the new name for an existing file."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=folder)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(data, file, indent=2)
            file.write("\n")
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        if keep is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(keep)
            os.link(path, keep)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def AtomicJsonUpdate(filename: str) -> Iterator[dict[str, Any]]:  # noqa: N802
    """The content of a JSON file, written back at the end; the old file stays as ``.bak``."""
    data = load_remote_dsdesc_raw(filename)
    yield data
    _write_json(filename, data, keep=filename + ".bak")


def describe_shards(urls: list[str], md5: bool = True) -> list[dict[str, Any]]:
    """The descriptor's entries for these shards: url, nsamples, filesize, md5sum.

    md5: computed for local shards only, since a remote one would have to be fetched completely.
    Cost: one pass over the headers; with md5 over all bytes. Raises CorruptShard, NotFound,
    InvalidArgument.
    """
    sources = [url if is_remote(url) else os.path.abspath(local_path(url)) for url in urls]
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "all.idx")
        index(made, *sources)
        shards = open_dataset(made).shards
    if len(shards) != len(urls):
        raise InvalidArgument(
            f"{len(urls)} names match {len(shards)} shards, because a name is a glob or a "
            "folder; name each shard, or use braces"
        )
    described = []
    for url, source, shard in zip(urls, sources, shards):
        entry: dict[str, Any] = {"url": url}
        if md5 and not is_remote(source):
            with open(source, "rb") as file:
                entry["md5sum"] = hashlib.file_digest(file, "md5").hexdigest()
        entry["nsamples"] = shard.num_samples
        entry["filesize"] = shard.size_bytes
        described.append(entry)
    return sorted(described, key=lambda entry: str(entry["url"]))


def main_create(args: argparse.Namespace) -> None:
    """Makes a descriptor of shards."""
    given = args.files
    if given == ["-"]:
        given = [line.strip() for line in sys.stdin if line.strip()]
    urls = [url for pattern in given for url in expand_braces(pattern)]
    if not urls:
        raise InvalidArgument("no shards are given; name at least one shard")
    result: dict[str, Any] = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "shardlist": describe_shards(urls, md5=not args.no_md5),
    }
    name = shorten_name(os.path.splitext(given[0])[0]) if args.name is None else args.name
    if name:
        result["name"] = name
    if args.base is not None:
        result["base"] = args.base
    if args.info is not None:
        with open(args.info) as file:
            result["info"] = file.read()
    _write_json(args.output, result)


def _only_folder(shards: list[dict[str, Any]]) -> str:
    folders = {urldir(shard["url"]) for shard in shards}
    if len(folders) != 1:
        raise InvalidArgument(
            f"--rebase needs all shards in one folder, not in {len(folders)}: "
            f"{', '.join(repr(folder) for folder in sorted(folders)[:3])}"
        )
    folder = folders.pop()
    return folder if is_remote(folder) else os.path.abspath(local_path(folder))


def main_update(args: argparse.Namespace) -> None:
    """Changes a descriptor."""
    with AtomicJsonUpdate(args.filename) as data:
        shards = check_shards(data.get("shardlist", []))
        for key in ("name", "info", "base"):
            if getattr(args, key):
                data[key] = getattr(args, key)
        if args.keep or args.nokeep:
            data["keep"] = args.keep
        if args.rebase:
            data["base"] = _only_folder(shards)
        if args.dir or args.nodir or args.rebase:
            folder = args.dir if not args.nodir else ""
            for shard in shards:
                name = os.path.basename(shard["url"].split("?")[0])
                shard["url"] = os.path.join(folder, name)
            shards.sort(key=lambda shard: str(shard["url"]))
        data.setdefault("name", os.path.splitext(os.path.basename(args.filename))[0])


def _total(shards: list[dict[str, Any]], key: str) -> int:
    return sum(shard.get(key, 0) for shard in shards)


def _print_long_info(data: dict[str, Any], filename: str) -> None:
    shards = check_shards(data.get("shardlist", []))
    size, samples = _total(shards, "filesize"), _total(shards, "nsamples")
    lines = [
        ("name", data.get("name")),
        ("info", data.get("info")),
        ("base", f"{data.get('base')} (assumed: {urldir(filename)})"),
        ("total size", format_with_suffix(size)),
        ("total samples", format_with_suffix(samples)),
    ]
    if shards:
        lines += [
            ("avg sample size", format_with_suffix(size // max(samples, 1))),
            ("avg shard size", format_with_suffix(size // len(shards))),
            ("first shard", shards[0]["url"]),
            ("last shard", shards[-1]["url"]),
        ]
    for dataset in check_datasets(data.get("datasets", [])):
        lines.append(("dataset name", dataset.get("name")))
        listed = check_shards(dataset.get("shardlist", []))
        source = dataset.get("source_url", f"{len(listed)} shards")
        lines.append(("dataset url", source))
    print("filename:", filename)
    for name, value in lines:
        print(f"{name:>16}: {value}")
    print()


def main_info(args: argparse.Namespace) -> None:
    """Shows descriptors."""
    if args.table:
        print("file", "name", "nbytes", "nsamples", "base", "last", "datasets", sep="\t")
    for filename in args.filenames:
        data = load_remote_dsdesc_raw(filename)
        if not args.table:
            _print_long_info(data, filename)
            continue
        shards = check_shards(data.get("shardlist", []))
        print(
            filename,
            data.get("name"),
            _total(shards, "filesize"),
            _total(shards, "nsamples"),
            data.get("base"),
            shards[-1]["url"] if shards else None,
            len(check_datasets(data.get("datasets", []))),
            sep="\t",
        )


def main_sample(args: argparse.Namespace) -> None:
    """Shows a sample."""
    is_raw = args.raw or args.python or args.cat is not None
    dataset: ShardListDataset[dict[str, Any]] = ShardListDataset(
        args.filename, transformations=[] if is_raw else "PIL"
    )
    sample = dataset[args.index]
    fields = {k: v.read() if hasattr(v, "read") else v for k, v in sample.items()}
    if args.cat is not None:
        key = args.cat if args.cat in sample else "." + args.cat
        if key not in fields:
            raise InvalidArgument(
                f"the sample has no field {args.cat!r}; its fields are {', '.join(fields)}"
            )
        data = fields[key]
        sys.stdout.buffer.write(data if isinstance(data, bytes) else str(data).encode())
        return
    print("dataset size:", len(dataset), file=sys.stderr)
    width = max(map(len, fields))
    for name, value in sorted(fields.items()):
        print(name.ljust(width), repr(value)[: max(args.width - width - 1, 1)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="widsindex", description="Makes, changes and shows the descriptors of wids."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    create = commands.add_parser("create", help="make a descriptor from shards")
    create.add_argument(
        "files",
        nargs="+",
        help="shards, or brace patterns, e.g. a-{00..99}.tar; - reads a list from standard input",
    )
    create.add_argument("-o", "--output", default="shardindex.json", help="path of the descriptor")
    create.add_argument(
        "-n", "--name", help="name of the data set (default: made from the shards' names)"
    )
    create.add_argument("-i", "--info", help="file with a description of the data set")
    create.add_argument("-b", "--base", help="base of relative URLs")
    create.add_argument(
        "--no-md5",
        action="store_true",
        help="do not compute md5sum, so that only the headers of shards are read",
    )
    create.set_defaults(run=main_create)

    update = commands.add_parser("update", help="change a descriptor; the old one stays as .bak")
    update.add_argument("filename", help="path of the descriptor")
    update.add_argument("-n", "--name", default="", help="name of the data set")
    update.add_argument("-i", "--info", default="", help="description of the data set")
    update.add_argument("-b", "--base", default="", help="base of relative URLs")
    kept = update.add_mutually_exclusive_group()
    kept.add_argument(
        "-k", "--keep", action="store_true", help='set "keep": true in the descriptor'
    )
    kept.add_argument(
        "-K", "--nokeep", action="store_true", help='set "keep": false in the descriptor'
    )
    where = update.add_mutually_exclusive_group()
    where.add_argument(
        "-D", "--nodir", action="store_true", help="remove the folders from the shards' URLs"
    )
    where.add_argument("-d", "--dir", default="", help="folder of the shards")
    where.add_argument(
        "-B",
        "--rebase",
        action="store_true",
        help="set the base of URLs to the folder of the shards",
    )
    update.set_defaults(run=main_update)

    info = commands.add_parser("info", help="show descriptors")
    info.add_argument("filenames", nargs="+", help="descriptors: paths or URLs")
    info.add_argument(
        "-t", "--table", action="store_true", help="print a table with one line per descriptor"
    )
    info.set_defaults(run=main_info)

    sample = commands.add_parser("sample", help="show a sample")
    sample.add_argument("filename", help="path of the descriptor")
    sample.add_argument("index", type=int, nargs="?", default=0, help="number of the sample")
    sample.add_argument("-p", "--python", action="store_true", help="alias of --raw")
    sample.add_argument("-r", "--raw", action="store_true", help="print bytes, not decoded values")
    sample.add_argument("-c", "--cat", help="write the bytes of this field")
    sample.add_argument("-w", "--width", type=int, default=250, help="maximum width of a line")
    sample.set_defaults(run=main_sample)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The program. Returns its exit code: 1, with a line on standard error, if it failed."""
    args = _parser().parse_args(arguments)
    try:
        args.run(args)
    except (Error, OSError) as error:
        print(f"widsindex: {error}", file=sys.stderr)
        return 1
    return 0


__all__ = [
    "AtomicJsonUpdate",
    "describe_shards",
    "expand_braces",
    "format_with_suffix",
    "main",
    "main_create",
    "main_info",
    "main_sample",
    "main_update",
    "shorten_name",
]

if __name__ == "__main__":
    sys.exit(main())
