#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "shardwise/loader/columns.h"

namespace shardwise::python {

/// The declared type of rows that a Python function makes.
struct RowType {
  DType dtype = DType::kUInt8;
  std::optional<std::vector<std::int64_t>> shape;  ///< not set if rows are ragged
};

/// Writes a Python function's result into its row. Accepts arrays of any library (with a buffer or
/// __array__), bytes (the row's raw memory), numbers, and lists of numbers.
/// REQUIRES: the GIL.
/// Errors: InvalidArgument for masks, nulls and values of another type; BadField for another shape;
/// exceptions from Python.
void write_row(nanobind::handle result, const RowType& type, columns::Row& row);

}  // namespace shardwise::python
