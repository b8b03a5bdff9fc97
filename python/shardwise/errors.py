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

    code = "InvalidArgument"


class OutOfRange(Error, IndexError):
    """A sample, position or rank outside its range."""

    code = "OutOfRange"


class NotFound(Error, LookupError):
    """A path, key or field that does not exist."""

    code = "NotFound"


class Io(Error, OSError):
    """The operating system refused; the text has its reason."""

    code = "Io"


class NoSpace(Io):
    """The disk, a quota or a limit on file sizes is full."""

    code = "NoSpace"


class CorruptShard(Error):
    """A shard breaks the tar format, or a strict rule of WebDataset."""

    code = "CorruptShard"


class Unsupported(Error):
    """Valid, but this version does not read it, or not in this way."""

    code = "Unsupported"


class StaleIndex(Error):
    """A shard is not the one that was indexed."""

    code = "StaleIndex"


class CorruptIndex(Error):
    """An index file is damaged."""

    code = "CorruptIndex"


class VersionMismatch(Error):
    """An index or resume token of another version of its format."""

    code = "VersionMismatch"


class BadField(Error, ValueError):
    """A field's bytes are not of the requested kind, e.g. a number or an image."""

    code = "BadField"


class Mismatch(Error):
    """A resume token, pickled reference or part belongs to something else."""

    code = "Mismatch"


class NotExact(Error):
    """The proof of an epoch failed."""

    code = "NotExact"


class Cancelled(Error):
    """The caller asked to stop."""

    code = "Cancelled"


class Distributed(Error):
    """The ranks could not agree, or a rank was lost."""

    code = "Distributed"


class FetchError(Error):
    """A remote file could not be fetched."""

    code = "Fetch"


_BY_CODE = {
    kind.code: kind
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


def of_code(code: str) -> type[Error]:
    """The class of the errors with this code."""
    return _BY_CODE.get(code, Error)
