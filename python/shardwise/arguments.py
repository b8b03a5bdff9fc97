"""What users give, as the library takes it; what is not valid is an error that names it."""

from __future__ import annotations

import operator
import os
import reprlib
from typing import Any, NoReturn, Union

from . import _core
from .errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


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


def path_of(path: str | os.PathLike[str]) -> str:
    """A path, or a URL, as text, with the home folder for a leading ``~``. Raises TypeError;
    InvalidArgument for a name it cannot take."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(
            f"a path is a str or an os.PathLike of str, and not {text!r}; write its text, in UTF-8"
        )
    if "\0" in text:
        raise InvalidArgument(f"a path has no NUL character: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"the path is not UTF-8: {text!r}; rename the folder or the file"
        ) from None
    return _core.at_home(text)


def paths_of(sources: Iterable[Any]) -> list[str]:
    """Paths and URLs, and those in lists of them, one behind the other."""
    paths: list[str] = []
    for source in sources:
        if isinstance(source, (list, tuple)):
            paths.extend(map(path_of, source))
        else:
            paths.append(path_of(source))
    return paths


def columns_of(columns: Iterable[str]) -> list[str]:
    """The names of columns."""
    if isinstance(columns, str):
        raise InvalidArgument(
            f"columns are a list of names, and not one text: {columns!r}; write [{columns!r}]"
        )
    return list(columns)
