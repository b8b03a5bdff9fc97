"""What becomes of an exception of a stage: the handler is given it, and raises, or gives True
(leave the sample out and go on) or False (end the pass here)."""

from __future__ import annotations

import warnings
from typing import NoReturn


def reraise_exception(exn: BaseException) -> NoReturn:
    """Raises it: the default."""
    raise exn


def ignore_and_continue(exn: BaseException) -> bool:
    """Leaves the sample out."""
    return True


def warn_and_continue(exn: BaseException) -> bool:
    """Warns, and leaves the sample out."""
    warnings.warn(repr(exn), stacklevel=2)
    return True


def ignore_and_stop(exn: BaseException) -> bool:
    """Ends the pass."""
    return False


def warn_and_stop(exn: BaseException) -> bool:
    """Warns, and ends the pass."""
    warnings.warn(repr(exn), stacklevel=2)
    return False


__all__ = [
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "warn_and_continue",
    "warn_and_stop",
]
