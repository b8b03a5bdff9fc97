"""Signatures of the extension's classes, for inspect.signature() and notebooks.

The extension's functions have theirs in the first line of their docstrings, and in the stubs: an
object of nanobind accepts no ``__signature__``.
"""

from __future__ import annotations

import re
from typing import Any


def signature_of(method: Any) -> Any:
    """The signature of a method of the extension, without self."""
    import inspect

    text, _, defaults = method.__nb_signature__[0]
    text = re.sub(r"\\(\d+)", lambda found: f"_defaults[{found[1]}]", text)
    names: dict[str, Any] = {"_defaults": defaults}
    exec(f"from __future__ import annotations\n{text}: ...", names)
    made = inspect.signature(names[method.__name__])
    return made.replace(
        parameters=list(made.parameters.values())[1:], return_annotation=inspect.Signature.empty
    )


class ClassSignature:
    """Makes the signature of a class at the first access."""

    def __get__(self, instance: object, owner: Any) -> Any:
        return signature_of(owner.__init__)


def give_signatures(*classes: Any) -> None:
    """Lets inspect.signature() know how these classes are called."""
    for one in classes:
        one.__signature__ = ClassSignature()
