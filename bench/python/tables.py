"""Tables of measured values: printed, and as JSON for bench/report.py."""

from __future__ import annotations

import json
import statistics
from typing import Any


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Returns the first quartile, the median and the third quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


class Table:
    """Rows that were measured in turn: a value for each row and round.

    The ratio of a row is the median over the rounds of its value divided by that of its
    reference: the row in `references`, or `reference`, or the first row."""

    def __init__(self, title: str, unit: str, digits: int = 0, reference: str = "") -> None:
        self.title = title
        self.unit = unit
        self.digits = digits
        self.reference = reference
        self.rows: dict[str, list[float]] = {}
        self.notes: dict[str, str] = {}
        self.references: dict[str, str] = {}

    def add(self, row: str, value: float) -> None:
        self.rows.setdefault(row, []).append(value)

    def note(self, row: str, text: str) -> None:
        """Adds a text to a row, which may have no values."""
        before = self.notes.get(row)
        self.notes[row] = text if before is None else f"{before}; {text}"

    def reference_of(self, row: str) -> str:
        return self.references.get(row) or self.reference or next(iter(self.rows), "")

    def ratio(self, row: str) -> float | None:
        base = self.rows.get(self.reference_of(row), [])
        pairs = [(a, b) for a, b in zip(self.rows.get(row, []), base) if b]
        return statistics.median(a / b for a, b in pairs) if pairs else None

    def show(self) -> None:
        print(self.title)
        width = max(map(len, [*self.rows, *self.notes]), default=0)
        for row in [*self.rows, *(name for name in self.notes if name not in self.rows)]:
            cells = []
            if row in self.rows:
                low, middle, high = (f"{v:,.{self.digits}f}" for v in quartiles(self.rows[row]))
                cells.append(f"{middle:>12} {self.unit}  ({low} to {high})")
                ratio = self.ratio(row)
                cells += [f"{ratio:8.3f} x"] if ratio is not None else []
            print(f"  {row:{width}}", *cells, self.notes.get(row, ""), flush=True)

    def as_json(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Table:
        made = cls(fields["title"], fields["unit"], fields["digits"], fields["reference"])
        made.rows, made.notes = fields["rows"], fields["notes"]
        made.references = fields["references"]
        return made


def write_json(path: str | None, tables: list[Table]) -> None:
    """Writes the tables. None means: do not."""
    if path is not None:
        with open(path, "w") as file:
            json.dump({"tables": [table.as_json() for table in tables]}, file)
