"""The stages of a pipeline: functions of an iterator that give an iterator.

``wds.map(f)`` is a stage, for a DataPipeline; ``dataset.map(f)`` adds it to a pipeline. handler:
how an exception is handled, see shardwise.webdataset.handlers.
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import numbers
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from typing import Any

from ..errors import InvalidArgument, Unsupported
from .base import PipelineStage
from .collating import default_collation_fn
from .decoding import Decoder
from .handlers import reraise_exception
from .source import tarfile_samples

_Handler = Callable[[Exception], Any]

PER_SAMPLE = "per sample"
"""Yields at most one item for each input item, as a function of that item alone."""
PER_BATCH = "per batch"
"""Yields an item after a fixed number of input items, and then keeps none of them. A state after
such a stage can be exact."""
KEEPS = "keeps"
"""Keeps items, counts them, or draws at random. A state after such a stage would not be exact."""


class Stage:
    """A stage with its arguments: a function from iterator to iterator. Picklable if they are."""

    def __init__(
        self, f: Callable[..., Iterator[Any]], kind: str, args: Any = (), kw: Any = None
    ) -> None:
        self.f, self.kind, self.args, self.kw = f, kind, args, kw or {}
        try:
            given = inspect.signature(f).bind(None, *self.args, **self.kw).arguments
        except ValueError:  # functions in C may have no signature
            return
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        for name in ("batchsize", "bufsize"):
            if f in (_batched, _shuffle) and not isinstance(given.get(name, 1), numbers.Real):
                raise InvalidArgument(
                    f"not valid: {self.name}({name}={given[name]!r:.60}); give a number"
                )
        if f is _batched and not given.get("batchsize", 1) >= 1:
            raise InvalidArgument(
                f"not valid: batched(batchsize={given['batchsize']!r}); give 1 or more"
            )

    @property
    def name(self) -> str:
        """The name of its function, for errors."""
        return self.f.__name__.strip("_")

    def argument(self, name: str) -> Any:
        """Returns an argument, or its default. None means: the stage has no such parameter."""
        bound = inspect.signature(self.f).bind(None, *self.args, **self.kw)
        bound.apply_defaults()
        return bound.arguments.get(name)

    def __call__(self, data: Iterable[Any]) -> Iterator[Any]:
        return self.f(data, *self.args, **self.kw)

    def __repr__(self) -> str:
        shown = [repr(one) for one in self.args]
        shown += [f"{name}={value!r}" for name, value in self.kw.items()]
        return f"{self.name}({', '.join(shown)})"


class StageMaker:
    """``maker(*args, **kw)`` is the stage that calls ``f(iterator, *args, **kw)``."""

    def __init__(self, f: Callable[..., Iterator[Any]], kind: str) -> None:
        self.f, self.kind = f, kind
        functools.update_wrapper(self, f)

    def __call__(self, *args: Any, **kw: Any) -> Stage:
        return Stage(self.f, self.kind, args, kw)

    def __reduce__(self) -> tuple[Any, ...]:
        return StageMaker, (self.f, self.kind)


def pipelinefilter(f: Callable[..., Iterator[Any]]) -> StageMaker:
    """Turns your generator function into a stage: after ``g = pipelinefilter(f)``, ``g(x)`` calls
    ``f(iterator, x)``. Pipelines with such a stage have no state; prefer map()."""
    return StageMaker(f, KEEPS)


def identity(x: Any) -> Any:
    """Returns ``x``."""
    return x


def getfirst(
    a: dict[Any, Any], keys: Any, default: Any = None, missing_is_error: bool = True
) -> Any:
    """Returns the value of the first key that exists. keys: "png;jpg", or a list."""
    for key in keys.split(";") if isinstance(keys, str) else keys:
        if key in a:
            return a[key]
    if missing_is_error:
        raise ValueError(
            f"the sample has none of the fields {keys!r}; choose from its fields: {list(a)}"
        )
    return default


def _require_items(items: Any, kinds: tuple[type, ...], stage: str) -> None:
    if not isinstance(items, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidArgument(
            f"{stage}() needs a {wanted}, not a {type(items).__name__}: {items!r:.60}; check the "
            "stages before it"
        )


def _each(
    data: Iterable[Any],
    f: Callable[[Any], Any],
    handler: _Handler,
    stage: str = "",
    kinds: tuple[type, ...] = (object,),
) -> Iterator[tuple[Any, Any]]:
    """Yields (item, f(item)). If f raises, the handler decides whether to continue. An item of a
    wrong type raises without the handler, which would silently drop all items."""
    for item in data:
        _require_items(item, kinds, stage)
        try:
            result = f(item)
        except Exception as error:
            if handler(error):
                continue
            return
        yield item, result


def _map(
    data: Iterable[Any], f: Callable[[Any], Any], handler: _Handler = reraise_exception
) -> Iterator[Any]:
    """Applies ``f`` to each item. Drops the item if ``f`` returns None. If ``f`` turns a dict into
    a dict, the result keeps the ``__key__``."""
    for sample, result in _each(data, f, handler):
        if result is None:
            continue
        if isinstance(sample, dict) and isinstance(result, dict):
            result["__key__"] = sample.get("__key__")
        yield result


def _decode(
    data: Iterable[Any], *args: Any, handler: _Handler = reraise_exception, **kw: Any
) -> Iterator[Any]:
    """Decodes fields; see Decoder."""
    for _, result in _each(data, Decoder(args, **kw), handler, "decode", (dict,)):
        yield result


def _select(data: Iterable[Any], predicate: Callable[[Any], Any]) -> Iterator[Any]:
    """Yields the samples for which ``predicate`` is true."""
    return (sample for sample in data if predicate(sample))


def _rename(
    data: Iterable[Any], handler: _Handler = reraise_exception, keep: bool = True, **kw: Any
) -> Iterator[Any]:
    """Renames fields: ``rename(image="jpg;png")``. keep: also keep the other fields."""
    taken = {old for olds in kw.values() for old in _listed(olds)}

    def renamed(sample: dict[str, Any]) -> dict[str, Any]:
        result = {name: sample[name] for name in sample if keep and name not in taken}
        result.update({new: getfirst(sample, old) for new, old in kw.items()})
        return result

    for _, result in _each(data, renamed, handler):
        yield result


def _listed(names: Any) -> Sequence[str]:
    return names.split(";") if isinstance(names, str) else names


def _associate(data: Iterable[Any], associator: Any, **kw: Any) -> Iterator[Any]:
    """Adds to each sample the fields that ``associator`` returns for its key. associator: a dict by
    key, or a function of the key."""
    look = associator if callable(associator) else lambda key: associator.get(key, {})
    for sample in data:
        sample.update(look(sample["__key__"]))
        yield sample


def _map_dict(
    data: Iterable[Any], handler: _Handler = reraise_exception, **kw: Callable[[Any], Any]
) -> Iterator[Any]:
    """Applies a function to each named field."""
    if not kw or not all(callable(f) for f in kw.values()):
        raise InvalidArgument(
            f"not valid: map_dict({kw!r}); give a function for each field, e.g. jpg=f"
        )

    def mapped(sample: dict[str, Any]) -> dict[str, Any]:
        for name, f in kw.items():
            sample[name] = f(sample[name])
        return sample

    for _, result in _each(data, mapped, handler, "map_dict", (dict,)):
        yield result


def _map_tuple(
    data: Iterable[Any], *args: Callable[[Any], Any] | None, handler: _Handler = reraise_exception
) -> Iterator[Any]:
    """Applies a function to each element of a tuple. Keeps the element if the function is None."""
    for f in args:
        if f is not None and not callable(f):
            raise InvalidArgument(
                f"not valid: map_tuple({f!r}); give a function or None for each field"
            )

    def mapped(sample: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(transform_with(sample, args[: len(sample)]))

    for _, result in _each(data, mapped, handler, "map_tuple", (list, tuple)):
        yield result


def _to_tuple(
    data: Iterable[Any],
    *args: Any,
    handler: _Handler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool | None = None,
) -> Iterator[Any]:
    """Turns each sample into a tuple of fields. Names: "jpg;png", "cls", or all in one text,
    separated by spaces."""
    if len(args) == 1 and isinstance(args[0], str):
        args = tuple(args[0].split())
    refuses_none = missing_is_error if none_is_error is None else none_is_error

    def taken(sample: dict[str, Any]) -> tuple[Any, ...]:
        result = tuple(getfirst(sample, one, missing_is_error=missing_is_error) for one in args)
        if refuses_none and any(value is None for value in result):
            raise ValueError(
                f"a field of {args} is None in the sample "
                f"{sample.get('__key__')!r}; to accept this, give "
                "none_is_error=False"
            )
        return result

    for _, result in _each(data, taken, handler):
        yield result


def _extract_keys(
    source: Iterable[Any],
    *patterns: Any,
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
) -> Iterator[Any]:
    """Turns each sample into a tuple of the fields that match patterns: "*.jpg;*.png"."""
    for sample in source:
        result = []
        for pattern in patterns:
            wanted = _listed(pattern)
            found = [
                name
                for name in sample
                if any(fnmatch("." + name, one) or fnmatch(name, one) for one in wanted)
            ]
            if len(found) > 1 and duplicate_is_error:
                raise ValueError(
                    f"the pattern {pattern!r} matches several fields of a sample: "
                    f"{found}; narrow the pattern, or give duplicate_is_error=False "
                    "to take the first"
                )
            if found:
                result.append(sample[found[0]])
            elif not ignore_missing:
                raise ValueError(
                    f"the pattern {pattern!r} matches no field of the sample: {list(sample)}; "
                    "correct the pattern, or give ignore_missing=True"
                )
        yield tuple(result)


def _rename_keys(
    source: Iterable[Any],
    *args: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **kw: str,
) -> Iterator[Any]:
    """Renames the fields that match patterns: ``rename_keys(image="*.jpg")``."""
    rules = [(pattern, name) for name, pattern in [*args, *kw.items()]]
    for sample in source:
        result: dict[str, Any] = {}
        matched = set()
        for field, value in sample.items():
            last = field.rsplit("/", 1)[-1].lower()
            rule = next((one for one in reversed(rules) if fnmatch(last, one[0])), None)
            if rule is None and not keep_unselected:
                continue
            name = field if rule is None else rule[1]
            if rule is not None:
                matched.add(rule[0])
                if name in result:
                    if duplicate_is_error:
                        raise ValueError(
                            f"two fields of a sample would get the name {name!r}: "
                            f"{list(sample)}; narrow the patterns, or give "
                            "duplicate_is_error=False to keep the first"
                        )
                    continue
            result[name] = value
        missing = [pattern for pattern, _ in rules if pattern not in matched]
        if must_match and missing:
            raise ValueError(
                f"the patterns {missing} match no field of the sample: "
                f"{list(sample)}; correct the patterns, or give must_match=False"
            )
        yield result


def _xdecode(
    source: Iterable[Any],
    *args: tuple[str, Any],
    must_decode: bool = True,
    defaults: Sequence[tuple[str, Any]] | None = None,
    **kw: Any,
) -> Iterator[Any]:
    """Decodes fields whose names match patterns, by functions of a stream: ``xdecode(("*.jpg", f),
    txt=g)``."""
    basic: list[tuple[str, Any]] = [
        ("*.bin", lambda stream: stream.read()),
        ("*.txt", lambda stream: str(stream.read(), "utf-8")),
    ]
    rules = [*(basic if defaults is None else defaults), *args]
    rules += [("*." + name, f) for name, f in kw.items()]

    def decoded(field: str, value: Any) -> Any:
        name = field.rsplit("/", 1)[-1].lower()
        for pattern, f in reversed(rules):
            if fnmatch(name, pattern) or fnmatch("." + name, pattern):
                if f is False:
                    return value
                return f(io.BytesIO(value) if isinstance(value, bytes) else value)
        if must_decode:
            raise ValueError(
                f"xdecode() has no function for the field {field!r}; give a "
                "function, or must_decode=False"
            )
        return value

    for sample in source:
        yield {k: v if k.startswith("__") else decoded(k, v) for k, v in sample.items()}


def _log_keys(data: Iterable[Any], logfile: str | None = None) -> Iterator[Any]:
    """Appends a line per sample, with its key, to a file."""
    for number, sample in enumerate(data):
        if logfile:
            names = ("__worker__", "__rank__", "__key__")
            line = "\t".join([str(number), *(str(sample.get(name)) for name in names)])
            with open(logfile, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        yield sample


def _info(
    data: Iterable[Any],
    fmt: str | None = None,
    n: int = 3,
    every: int = -1,
    width: int = 50,
    stream: Any = None,
    name: str = "",
) -> Iterator[Any]:
    """Prints the first ``n`` samples, and then every ``every``-th sample."""
    for number, sample in enumerate(data):
        if number < n or (every > 0 and (number + 1) % every == 0):
            lines = [f"--- {name}"] + [f"{k} {v!r}"[:width] for k, v in sample.items()]
            print(fmt.format(**sample) if fmt else "\n".join(lines), file=stream or sys.stderr)
        yield sample


def _batched(
    data: Iterable[Any],
    batchsize: int = 20,
    collation_fn: Callable[[list[Any]], Any] | None = default_collation_fn,
    partial: bool = True,
) -> Iterator[Any]:
    """Yields collated batches of ``batchsize`` items. partial: also yield a smaller last batch."""
    batch: list[Any] = []
    for sample in data:
        batch.append(sample)
        if len(batch) >= batchsize:
            yield batch if collation_fn is None else collation_fn(batch)
            batch = []
    if batch and partial:
        yield batch if collation_fn is None else collation_fn(batch)


def _unlisted(data: Iterable[Any]) -> Iterator[Any]:
    """Yields the items of lists."""
    for batch in data:
        _require_items(batch, (list,), "unlisted")
        yield from batch


def _lengths(batch: dict[str, Any]) -> str:
    return ", ".join(f"{name} {len(values)}" for name, values in batch.items())


def _unbatched(data: Iterable[Any]) -> Iterator[Any]:
    """Yields the samples of batches."""
    for batch in data:
        if isinstance(batch, dict):
            lengths = {len(values) for values in batch.values()}
            if len(lengths) > 1:
                raise InvalidArgument(
                    f"the fields of a batch have different lengths: {_lengths(batch)}; "
                    "make the fields equally long before unbatched()"
                )
            for place in range(lengths.pop() if lengths else 0):
                yield {name: values[place] for name, values in batch.items()}
        elif isinstance(batch, (list, tuple)):
            for place in range(len(batch[0]) if batch else 0):
                yield tuple(values[place] for values in batch)
        else:
            raise InvalidArgument(
                f"unbatched needs batches that are dicts or tuples, not {batch!r:.60}"
            )


def _rsample(data: Iterable[Any], p: float = 0.5) -> Iterator[Any]:
    """Keeps each sample with probability ``p``."""
    if not 0 <= p <= 1:
        raise InvalidArgument(f"rsample() takes a probability from 0 to 1, not {p!r}")
    return (sample for sample in data if random.random() < p)


def _slice(data: Iterable[Any], *args: int | None) -> Iterator[Any]:
    """Yields a slice of the items, like itertools.islice()."""
    return itertools.islice(data, *args)


def _shuffle(
    data: Iterable[Any],
    bufsize: int = 1000,
    initial: int = 100,
    rng: Any = None,
    seed: Any = None,
    handler: Any = None,
) -> Iterator[Any]:
    """Yields items in random order, from a buffer of ``bufsize`` items. If only per-sample stages
    precede this stage, there is no buffer: the order of the data set shuffles, at least as well."""
    rng = random.Random(seed) if rng is None else rng
    buffer: list[Any] = []
    items = iter(data)
    for item in items:
        buffer.append(item)
        if len(buffer) < bufsize:  # while the buffer grows, take two items for each that is yielded
            buffer.extend(itertools.islice(items, 1))
        if len(buffer) >= min(initial, bufsize):
            yield _drawn(buffer, rng)
    while buffer:
        yield _drawn(buffer, rng)


def _drawn(buffer: list[Any], rng: Any) -> Any:
    place = rng.randrange(len(buffer))
    buffer[place], buffer[-1] = buffer[-1], buffer[place]
    return buffer.pop()


class detshuffle(PipelineStage):
    """A shuffle() whose order depends only on the seed and the pass."""

    kind = KEEPS
    name = "detshuffle"

    def __init__(
        self, bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1
    ) -> None:
        self.bufsize, self.initial, self.seed, self.epoch = bufsize, initial, seed, epoch

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        """Yields the items of ``src``, shuffled. Each call advances the epoch."""
        self.epoch += 1
        rng = random.Random(self.seed + self.epoch)
        return _shuffle(src, self.bufsize, self.initial, rng)


class Cached(PipelineStage):
    """Stores the items of the first pass, and yields them again in later passes."""

    kind = KEEPS
    name = "mcached"

    def __init__(self) -> None:
        self.cached: list[Any] | None = None

    def run(self, source: Iterable[Any]) -> Iterator[Any]:
        """Yields the items of the first pass."""
        if self.cached is not None:
            yield from self.cached
            return
        seen = []
        for sample in source:
            seen.append(sample)
            yield sample
        self.cached = seen


class LMDBCached(PipelineStage):
    """Raises Unsupported, which names the alternative."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        raise Unsupported(
            "LMDB is not supported; cache remote shards by WebDataset(cache_dir=...), and store "
            "decoded samples with wds.ShardWriter"
        )


def _resampled(src: Iterable[Any], n: int | None = None) -> Iterator[Any]:
    """Draws random items, with replacement."""
    items = list(src)
    for _ in itertools.count() if n is None else range(n):
        yield random.choice(items)


def bufsize_of(stage: Any) -> int | None:
    """Returns the buffer size of a shuffle(), or None for other stages."""
    if isinstance(stage, detshuffle):
        return stage.bufsize
    if not isinstance(stage, Stage) or stage.f is not _shuffle:
        return None
    return int(stage.argument("bufsize"))


def seed_of(stage: Any) -> int | None:
    """Returns the seed of a shuffle(), or None."""
    seed = stage.seed if isinstance(stage, detshuffle) else stage.argument("seed")
    return seed if isinstance(seed, int) else None


def batchsize_of(stage: Any) -> int | None:
    """Returns the batch size of batched(), or None for other stages."""
    if not isinstance(stage, Stage) or stage.f is not _batched:
        return None
    return int(stage.argument("batchsize"))


def handler_of(stage: Any) -> Any:
    """Returns the handler of a stage, or None."""
    return stage.argument("handler") if isinstance(stage, Stage) else None


def is_expander(stage: Any) -> bool:
    """Returns True for tarfile_to_samples()."""
    return isinstance(stage, Stage) and stage.f is tarfile_samples


def kind_of(stage: Any) -> str:
    """Returns PER_SAMPLE, PER_BATCH or KEEPS for a stage."""
    return str(getattr(stage, "kind", KEEPS))


def name_of(stage: Any) -> str:
    """Returns the name of a stage, for errors."""
    name = getattr(stage, "name", None) or getattr(stage, "__name__", None)
    return str(name or type(stage).__name__)


associate = StageMaker(_associate, PER_SAMPLE)
batched = StageMaker(_batched, PER_BATCH)
decode = StageMaker(_decode, PER_SAMPLE)
extract_keys = StageMaker(_extract_keys, PER_SAMPLE)
info = StageMaker(_info, PER_SAMPLE)
log_keys = StageMaker(_log_keys, PER_SAMPLE)
map = StageMaker(_map, PER_SAMPLE)  # noqa: A001
map_dict = StageMaker(_map_dict, PER_SAMPLE)
map_tuple = StageMaker(_map_tuple, PER_SAMPLE)
rename = StageMaker(_rename, PER_SAMPLE)
rename_keys = StageMaker(_rename_keys, PER_SAMPLE)
resampled = StageMaker(_resampled, KEEPS)
rsample = StageMaker(_rsample, KEEPS)
select = StageMaker(_select, PER_SAMPLE)
shuffle = StageMaker(_shuffle, KEEPS)
slice = StageMaker(_slice, KEEPS)  # noqa: A001
tarfile_to_samples = StageMaker(tarfile_samples, KEEPS)
to_tuple = StageMaker(_to_tuple, PER_SAMPLE)
unbatched = StageMaker(_unbatched, KEEPS)
unlisted = StageMaker(_unlisted, KEEPS)
xdecode = StageMaker(_xdecode, PER_SAMPLE)


def transform_with(sample: Sequence[Any], transformers: Sequence[Any] | None) -> Any:
    """Applies a function to each element of a list. If the function is None, keeps the element."""
    if not transformers:
        return sample
    result = list(sample)
    for place, f in enumerate(transformers):
        if f is not None:
            result[place] = f(sample[place])
    return result


__all__ = [
    "Cached",
    "LMDBCached",
    "Stage",
    "associate",
    "batched",
    "decode",
    "default_collation_fn",
    "detshuffle",
    "extract_keys",
    "getfirst",
    "identity",
    "info",
    "log_keys",
    "map",
    "map_dict",
    "map_tuple",
    "pipelinefilter",
    "rename",
    "rename_keys",
    "resampled",
    "rsample",
    "select",
    "shuffle",
    "slice",
    "tarfile_samples",
    "tarfile_to_samples",
    "to_tuple",
    "transform_with",
    "unbatched",
    "unlisted",
    "xdecode",
]
