"""Runs the examples in the docstrings, one class or function after another."""

from __future__ import annotations

import ast
import doctest
import inspect
import itertools
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import needs, write_shown_files

import shardwise

needs("numpy")

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


def is_docstring(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def undocumented(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yields public classes, functions, properties and fields (no leading underscore) that lack a
    docstring."""
    for node, after in itertools.zip_longest(body, body[1:]):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            marks = {ast.unparse(mark).split(".")[-1] for mark in node.decorator_list}
            if not is_docstring(node.body[0]) and not marks & {"overload", "setter"}:
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node.body, f"{prefix}{node.name}.")
        elif prefix and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if not node.target.id.startswith("_") and not is_docstring(after):
                yield prefix + node.target.id


PACKAGE = Path(shardwise.__file__).parent


@pytest.mark.parametrize(
    "path",
    sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py*") if path.suffix != ".pyc"),
)
def test_all_that_is_public_has_a_docstring(path: str) -> None:
    body = ast.parse((PACKAGE / path).read_text()).body
    if path.endswith(".pyi"):  # users see only these classes of the extension
        seen = {*shardwise.__all__, "Column", "SampleIterator"}
        body = [node for node in body if isinstance(node, ast.ClassDef) and node.name in seen]
        body = [node for node in body if node.name != "Loader"]
    assert list(undocumented(body)) == []
