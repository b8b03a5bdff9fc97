"""Checks and converts what users give; an invalid value raises an error that names it."""

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
    """Raises InvalidArgument, which shows the value, shortened, and the advice."""
    raise InvalidArgument(f"not valid: {name}={reprlib.repr(value)}; {advice}")


def whole_number(name: str, value: Any, most: int = 2**64 - 1) -> int:
    """The value as an int. Raises InvalidArgument unless it is a whole number from 0 to
    ``most``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        advice = "give a whole number, 0 or more" if number < 0 else f"give at most {most}"
        refuse(name, value, advice)
    return number


def require(
    name: str, value: Any, kind: Union[type, tuple[type, ...]], advice: str, none: bool = False
) -> None:
    """Raises InvalidArgument unless the value has this type; with ``none``, None is valid."""
    if not isinstance(value, kind) and not (none and value is None):
        refuse(name, value, advice)


def parsed_json(text: bytes) -> Any:
    """The value of a text that is JSON by the library's rules; see Sample.json()."""
    import json

    _core.require_json(text)
    return json.loads(text)


def path_of(path: str | os.PathLike[str]) -> str:
    """A path or URL as text; a leading ``~`` becomes the home folder. Raises TypeError;
    InvalidArgument for an empty path, a NUL character, or text that is not UTF-8."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(
            f"a path must be a str or an os.PathLike of str, not {text!r}; give its text in UTF-8"
        )
    if not text:
        raise InvalidArgument('a path is empty; the current folder is "."')
    if "\0" in text:
        raise InvalidArgument(f"the path has a NUL character: {text!r}; correct the path")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"the path is not UTF-8: {text!r}; rename the folder or the file"
        ) from None
    return _core.at_home(text)


def paths_of(sources: Iterable[Any]) -> list[str]:
    """Paths and URLs as text; lists among them are flattened."""
    paths: list[str] = []
    for source in sources:
        if isinstance(source, (list, tuple)):
            paths.extend(map(path_of, source))
        else:
            paths.append(path_of(source))
    return paths


def columns_of(columns: Iterable[str]) -> list[str]:
    """The names of columns as a list. Raises InvalidArgument for a single str."""
    if isinstance(columns, str):
        raise InvalidArgument(
            f"columns must be a list of names, not a str: {columns!r}; write [{columns!r}]"
        )
    return list(columns)
