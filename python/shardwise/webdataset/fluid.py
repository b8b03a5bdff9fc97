"""The stages as methods of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from . import stages
from .handlers import reraise_exception

__all__ = ["FluidInterface"]


class FluidInterface:
    """The stages as methods. Each returns a copy of the pipeline with one more stage."""

    def compose(self, *args: Any) -> Self:
        """Returns a copy with these stages appended; implemented by the pipeline."""
        raise NotImplementedError

    def batched(
        self,
        batchsize: int,
        collation_fn: Any = stages.default_collation_fn,
        partial: bool = True,
    ) -> Self:
        """Makes batches of ``batchsize`` items. partial: keep a worker's smaller last batch.
        collation_fn: maps a list of items to a batch; None keeps the list."""
        return self.compose(
            stages.batched(batchsize, collation_fn=collation_fn, partial=partial)
        )

    def listed(self, batchsize: int, partial: bool = True) -> Self:
        """Makes lists of ``batchsize`` items."""
        return self.compose(stages.batched(batchsize, collation_fn=None, partial=partial))

    def unbatched(self) -> Self:
        """Splits batches into samples."""
        return self.compose(stages.unbatched())

    def unlisted(self) -> Self:
        """Splits lists into their items."""
        return self.compose(stages.unlisted())

    def shuffle(self, size: int, **kw: Any) -> Self:
        """Shuffles. Before batched(), the order of the data set does this, over at least ``size``
        samples. After batched(), a buffer of ``size`` items does this."""
        return self if size < 1 else self.compose(stages.shuffle(size, **kw))

    def map(self, f: Callable[[Any], Any], handler: Any = reraise_exception) -> Self:
        """Applies ``f`` to each sample or batch. Drops it if ``f`` returns None."""
        return self.compose(stages.map(f, handler=handler))

    def decode(
        self,
        *args: Any,
        pre: Any = None,
        post: Any = None,
        only: Any = None,
        partial: bool = False,
        handler: Any = reraise_exception,
    ) -> Self:
        """Decodes fields by their names: see Decoder. args: "pil", "rgb8" and others of
        ImageHandler, torch_video, torch_audio, handlers of yours."""
        options = {"pre": pre, "post": post, "only": only, "partial": partial}
        return self.compose(stages.decode(*args, handler=handler, **options))

    def map_dict(self, handler: Any = reraise_exception, **kw: Any) -> Self:
        """Applies a function to each named field."""
        return self.compose(stages.map_dict(handler=handler, **kw))

    def map_tuple(self, *args: Any, handler: Any = reraise_exception) -> Self:
        """Applies a function to each element of a tuple. With None in place of a function, the
        element stays unchanged."""
        return self.compose(stages.map_tuple(*args, handler=handler))

    def to_tuple(self, *args: Any, **kw: Any) -> Self:
        """Turns each sample into a tuple of these fields. "jpg;png" means the first that
        exists."""
        return self.compose(stages.to_tuple(*args, **kw))

    def select(self, predicate: Callable[[Any], Any], **kw: Any) -> Self:
        """Keeps the samples for which ``predicate`` is true."""
        return self.compose(stages.select(predicate, **kw))

    def slice(self, *args: Any) -> Self:
        """Keeps a slice of each worker's items, like itertools.islice()."""
        return self.compose(stages.slice(*args))

    def rename(self, **kw: Any) -> Self:
        """Renames fields: rename(image="jpg;png")."""
        return self.compose(stages.rename(**kw))

    def rename_keys(self, *args: Any, **kw: Any) -> Self:
        """Renames the fields that match patterns."""
        return self.compose(stages.rename_keys(*args, **kw))

    def extract_keys(self, *args: Any, **kw: Any) -> Self:
        """Turns each sample into a tuple of the fields that match patterns."""
        return self.compose(stages.extract_keys(*args, **kw))

    def xdecode(self, *args: Any, **kw: Any) -> Self:
        """Decodes fields by name pattern, with functions of a stream."""
        return self.compose(stages.xdecode(*args, **kw))

    def rsample(self, p: float = 0.5) -> Self:
        """Keeps each sample with probability ``p``."""
        return self.compose(stages.rsample(p))

    def log_keys(self, logfile: str | None = None) -> Self:
        """Appends a line with the key of each sample to a file."""
        return self.compose(stages.log_keys(logfile))

    def mcached(self) -> Self:
        """Stores the items of the first pass, and yields them again in later passes."""
        return self.compose(stages.Cached())

    def lmdb_cached(self, *args: Any, **kw: Any) -> Self:
        """Raises Unsupported, which names the alternative."""
        return self.compose(stages.LMDBCached(*args, **kw))
