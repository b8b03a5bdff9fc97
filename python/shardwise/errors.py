"""The exceptions that shardwise raises: one class for each kind of error, all derived from Error.

Each has one argument, its text, which says what failed, where, and what to do. The exceptions
therefore pickle, and torch's workers and Ray raise them again with their class. ``code`` is the
kind's name, the same as in C++.

Where Python has an exception for such an error, the class derives from it. OutOfRange is an
IndexError, which ends iteration. NotFound is a LookupError (not a KeyError, whose text is shown in
quotes). InvalidArgument is a ValueError; Io and NoSpace are OSErrors.
"""


class Error(Exception):
    """Base of everything that shardwise raises."""

    code = "Error"


class InvalidArgument(Error, ValueError):
    """An option or argument is invalid; the text lists the valid values."""


class OutOfRange(Error, IndexError):
    """A sample, position or rank outside its range."""


class NotFound(Error, LookupError):
    """A path, key or field that does not exist."""


class Io(Error, OSError):
    """The operating system refused; the text has its reason."""


class NoSpace(Io):
    """The disk is full, or a quota or a limit on file sizes is reached."""


class CorruptShard(Error):
    """A shard breaks the tar format, or a strict rule of WebDataset."""


class Unsupported(Error):
    """Valid, but this version does not read it, or not in this way."""


class StaleIndex(Error):
    """A shard is not the one that was indexed."""


class CorruptIndex(Error):
    """An index file is damaged."""


class VersionMismatch(Error):
    """An index or resume token of another version of its format."""


class BadField(Error, ValueError):
    """A field's bytes are not of the requested kind, e.g. a number or an image."""


class Mismatch(Error):
    """A resume token, pickled reference or part belongs to something else."""


class NotExact(Error):
    """The proof of an epoch failed."""


class Cancelled(Error):
    """The caller asked to stop."""


class Distributed(Error):
    """The ranks could not agree, or a rank was lost."""


class FetchError(Error):
    """A remote file could not be fetched."""


_BY_CODE = {
    kind.__name__.removesuffix("Error"): kind
    for kind in (
        InvalidArgument,
        OutOfRange,
        NotFound,
        Io,
        NoSpace,
        CorruptShard,
        Unsupported,
        StaleIndex,
        CorruptIndex,
        VersionMismatch,
        BadField,
        Mismatch,
        NotExact,
        Cancelled,
        Distributed,
        FetchError,
    )
}
for _code, _kind in _BY_CODE.items():
    _kind.code = _code
del _code, _kind


def of_code(code: str) -> type[Error]:
    """The class of the errors with this code."""
    return _BY_CODE.get(code, Error)
