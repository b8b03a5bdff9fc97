"""Conditions of Ray Data as conditions of SQL over an index."""

from __future__ import annotations

import math
from typing import Any

import ray.data.expressions as rx

from .. import _core
from .blocks import Column

_MOST_LISTED = 10_000

_COMPARISONS = {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "=", "ne": "!="}
_TURNED = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "=": "=", "!=": "!="}


class _Stays(Exception):
    """Raised for a condition that Ray has to apply itself."""


def to_sql(condition: Any, columns: tuple[Column, ...], data: _core.Dataset) -> str | None:
    """A condition for Dataset.where() that holds for the same rows; None if there is no condition,
    or no certain equivalent.

    It may compare columns of metadata, "__key__" and "__index__" with numbers and texts, test for
    membership in a list and for null, and join such conditions by and, or, not.
    """
    try:
        return _Translation(columns, data).sql(condition)
    except _Stays:
        return None


class _Translation:
    def __init__(self, columns: tuple[Column, ...], data: _core.Dataset) -> None:
        self._kinds = {column.name: column.kind for column in columns}
        self._data = data

    def sql(self, expr: Any) -> str:
        if isinstance(expr, rx.BinaryExpr):
            return self._binary(expr.op.value, expr.left, expr.right)
        if isinstance(expr, rx.UnaryExpr):
            return self._unary(expr.op.value, expr.operand)
        raise _Stays

    def _unary(self, op: str, operand: Any) -> str:
        if op == "not":
            return f"(NOT {self.sql(operand)})"
        if op in ("is_null", "is_not_null"):
            name, _ = self._column(operand)
            return f"({name} IS {'NOT ' if op == 'is_not_null' else ''}NULL)"
        raise _Stays

    def _binary(self, op: str, left: Any, right: Any) -> str:
        if op in ("and", "or"):
            return f"({self.sql(left)} {op.upper()} {self.sql(right)})"
        if op in ("in", "not_in"):
            return self._listed(left, self._value(right), op == "not_in")
        if op not in _COMPARISONS:
            raise _Stays
        sign = _COMPARISONS[op]
        if isinstance(left, rx.LiteralExpr):
            left, right, sign = right, left, _TURNED[sign]
        name, kind = self._column(left)
        value = self._value(right)
        if kind == "__index__":
            return f"({self._of_number(sign, self._whole(value))})"
        return f"({name} {sign} {self._literal(value, kind)})"

    def _listed(self, column: Any, values: Any, is_not: bool) -> str:
        """Translates "in" and "not in". In Ray, a null is in no list. In SQL, both conditions would
        be null for it, so ifnull() is used."""
        name, kind = self._column(column)
        if not isinstance(values, (list, tuple)) or len(values) > _MOST_LISTED:
            raise _Stays
        if kind == "__index__":
            places = [self._place(self._whole(value)) for value in values]
            listed = [str(place) for place in places if place is not None]
        else:
            listed = [self._literal(value, kind) for value in values]
        return f"({'NOT ' if is_not else ''}ifnull({name} IN ({', '.join(listed)}), 0))"

    def _column(self, expr: Any) -> tuple[str, str]:
        """Returns the column's name in SQL, and its kind."""
        if not isinstance(expr, rx.ColumnExpr):
            raise _Stays
        kind = self._kinds.get(expr.name, "")
        if kind == "__key__":
            return "key", "text"
        if kind == "__index__":
            return "sample", kind
        if kind not in ("integer", "real", "text"):
            raise _Stays
        return '"' + expr.name.replace('"', '""') + '"', kind

    def _value(self, expr: Any) -> Any:
        if not isinstance(expr, rx.LiteralExpr):
            raise _Stays
        return expr.value

    def _literal(self, value: Any, kind: str) -> str:
        if kind == "text":
            if not isinstance(value, str) or not value.isprintable():
                raise _Stays
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _Stays
        if not math.isfinite(value) or abs(value) > 2**53:
            raise _Stays
        return repr(float(value) if isinstance(value, float) else int(value))  # NumPy's to Python's

    def _whole(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _Stays
        return value

    def _place(self, number: int) -> int | None:
        """Returns the number in the index of the dataset's sample, or None if there is no such
        sample."""
        if not 0 <= number < len(self._data):
            return None
        return self._data.number_in_index(number)

    def _of_number(self, sign: str, number: int) -> str:
        """Translates a comparison with a sample number of the dataset to one with a number of the
        index."""
        if sign in ("=", "!="):
            place = self._place(number)
            return f"sample {sign} {-1 if place is None else place}"
        if sign in ("<=", ">"):
            sign, number = {"<=": "<", ">": ">="}[sign], number + 1
        if number >= len(self._data):
            return "1" if sign == "<" else "0"
        return f"sample {sign} {self._data.number_in_index(max(0, number))}"
