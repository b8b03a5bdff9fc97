"""Arguments that are not valid are errors that name them."""

from __future__ import annotations

import operator
import reprlib
from typing import Any, NoReturn, Union

from .errors import InvalidArgument


def refuse(name: str, value: Any, advice: str) -> NoReturn:
    """Raises InvalidArgument: what was given, shortened, and what to give."""
    raise InvalidArgument(f"not valid: {name}={reprlib.repr(value)}; {advice}")


def whole_number(name: str, value: Any, most: int = 2**64 - 1) -> int:
    """The value as an int, if it is a whole number from 0 to ``most``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        refuse(name, value, "give a whole number, 0 or more" if number < 0 else f"{most} at most")
    return number


def require(
    name: str, value: Any, kind: Union[type, tuple[type, ...]], advice: str, none: bool = False
) -> None:
    """Raises InvalidArgument if the value is not of this type, or with ``none`` None."""
    if not isinstance(value, kind) and not (none and value is None):
        refuse(name, value, advice)
