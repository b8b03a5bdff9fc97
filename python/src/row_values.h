#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "shardwise/loader/columns.h"

namespace shardwise::python {

/// What a function written in Python declares of its rows.
struct RowType {
  DType dtype = DType::kUInt8;
  std::optional<std::vector<std::int64_t>> shape;  ///< none: ragged
};

/// Writes what such a function gave into its row: an array of any library (buffers, or what has
/// __array__), bytes, which are the row's memory as it is, or numbers and lists of them.
/// REQUIRES: the GIL. Errors: InvalidArgument for masks, nulls and values of another type, BadField
/// for another shape; what Python raises.
void write_row(nanobind::handle result, const RowType& type, columns::Row& row);

}  // namespace shardwise::python
