"""Runs the examples in the docstrings, one class or function after another."""

from __future__ import annotations

import doctest
import inspect
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import write_shown_files

import shardwise

pytest.importorskip("numpy")

OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def documented() -> Iterator[tuple[str, object]]:
    """Returns all public objects by name. Inherited members do not count as a class's own."""
    modules = {name: getattr(shardwise, name) for name in shardwise.__all__}
    for name, thing in modules.items():
        yield name, thing
        if isinstance(thing, types.ModuleType):
            for inner in getattr(thing, "__all__", vars(thing)):
                if not inner.startswith("_"):
                    yield f"{name}.{inner}", getattr(thing, inner)


def examples_of(thing: object) -> Iterator[str]:
    """Returns the object's docstring, and those of its members in the order of the file."""
    yield inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        for name, member in vars(thing).items():
            if not name.startswith("_"):
                yield inspect.getdoc(member) or ""


def with_examples() -> list[tuple[str, str]]:
    found = {}
    for name, thing in documented():
        text = "\n\n".join(text for text in examples_of(thing) if ">>>" in text)
        if text and text not in found.values():
            found[name] = text
    return list(found.items())


def test_there_are_examples() -> None:
    names = {name for name, _ in with_examples()}
    assert {"open", "index", "Dataset", "Sample", "Sampler", "Audit", "Loader"} <= names


@pytest.mark.parametrize(("name", "text"), with_examples(), ids=[n for n, _ in with_examples()])
def test_examples_give_what_they_show(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shown_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    known = {"shardwise": shardwise, "columns": shardwise.columns, "ds": shardwise.open("train.idx")}
    test = doctest.DocTestParser().get_doctest(text, known, name, None, None)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    if report:
        pytest.fail("".join(report), pytrace=False)
