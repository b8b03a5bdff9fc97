"""Checks and converts what users give; an invalid value raises an error that names it."""

from __future__ import annotations

import functools
import operator
import os
import reprlib
from typing import Any, NoReturn, TypeVar, Union

from . import _core
from .errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")


def refuse(name: str, value: Any, advice: str) -> NoReturn:
    """Raises InvalidArgument, which shows the value, shortened, and the advice."""
    raise InvalidArgument(f"not valid: {name}={reprlib.repr(value)}; {advice}")


def _unpacked(maker: Any, annotation: Any) -> list[str]:
    """The keywords that ``**options: Unpack[SomeTypedDict]`` stands for."""
    import inspect

    if not str(annotation).startswith("Unpack["):
        return []
    named = eval(annotation, inspect.unwrap(maker).__globals__)
    return list(named.__args__[0].__annotations__)


def _keywords(called: Any) -> list[str]:
    """The keywords of a class or a function. A constructor that passes keywords on also has those
    of its base classes."""
    import inspect

    makers = [called]
    if not hasattr(called, "__signature__") and "__init__" in getattr(called, "__dict__", {}):
        makers = [vars(one)["__init__"] for one in called.__mro__ if "__init__" in vars(one)]
    names: list[str] = []
    for maker in makers:
        parameters = inspect.signature(maker).parameters.values()
        kinds = {parameter.kind for parameter in parameters}
        for one in parameters:
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                names.append(one.name)
            elif one.kind == one.VAR_KEYWORD:
                names += _unpacked(maker, one.annotation)
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return [name for name in names if name != "self"]


def refuse_unknown(called: Any, name: str) -> NoReturn:
    """Raises TypeError for a keyword that a class or a function does not have. The text names the
    option to use instead: the one in the class's ``_instead``, else the most similar keyword."""
    import difflib

    keywords = _keywords(called)
    instead: Mapping[str, str] = getattr(called, "_instead", {})
    near = difflib.get_close_matches(name, keywords, 1)
    if name in instead:
        advice = f"give {instead[name]}"
    elif near:
        advice = f"did you mean {near[0]!r}?"
    else:
        advice = f"choose from {', '.join(keywords)}"
    raise TypeError(f"{called.__name__}() has no option {name!r}; {advice}")


def suggests(called: T) -> T:
    """Decorates a class or a function: a call with an unknown keyword raises the error of
    refuse_unknown()."""
    made: Any = called
    if not isinstance(called, type):
        return _suggesting(made, made)  # type: ignore[no-any-return]
    maker = "__init__" if "__init__" in made.__dict__ else "__new__"  # of a NamedTuple
    setattr(made, maker, _suggesting(made.__dict__[maker], made))
    return called


def _suggesting(function: Any, named: Any) -> Any:
    @functools.wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        try:
            return function(*given, **options)
        except TypeError:
            keywords = _keywords(named) if options else []
            unknown = [name for name in options if name not in keywords]
            if not unknown:
                raise
        refuse_unknown(named, unknown[0])

    made: Any = call
    made.__kwdefaults__ = getattr(function, "__kwdefaults__", None)
    return made


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


def threads_of(threads: Any) -> Union[int, None]:
    """The argument ``threads`` of a function: a number, or None for the function's default."""
    return None if threads is None else whole_number("threads", threads, 2**32 - 1)


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
    """A path or URL as text; a leading ``~`` becomes the home folder. Raises TypeError if the path
    is not text; InvalidArgument if it is empty, has a NUL character, or is not UTF-8."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(
            f"a path must be a str or an os.PathLike of str, not {text!r}; give its text in UTF-8"
        )
    if not text:
        raise InvalidArgument('the path is empty; give a path, e.g. "." for the current folder')
    if "\0" in text:
        raise InvalidArgument(f"the path has a NUL character: {text!r}; give a path without NUL")
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
