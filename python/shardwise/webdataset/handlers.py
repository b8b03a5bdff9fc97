"""Handlers of exceptions in a stage. A handler raises, or returns True (drop the sample and
continue) or False (end the pass)."""

from __future__ import annotations

import warnings
from typing import NoReturn


def reraise_exception(exn: BaseException) -> NoReturn:
    """Raises the exception. This is the default."""
    raise exn


def ignore_and_continue(exn: BaseException) -> bool:
    """Drops the sample."""
    return True


def warn_and_continue(exn: BaseException) -> bool:
    """Warns, and drops the sample."""
    warnings.warn(repr(exn), stacklevel=2)
    return True


def ignore_and_stop(exn: BaseException) -> bool:
    """Ends the pass."""
    return False


def warn_and_stop(exn: BaseException) -> bool:
    """Warns, and ends the pass."""
    warnings.warn(repr(exn), stacklevel=2)
    return False


ENDING = (ignore_and_stop, warn_and_stop)
"""Handlers that end a pass early. A state is not exact after that."""

__all__ = [
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "warn_and_continue",
    "warn_and_stop",
]
