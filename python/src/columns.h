#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/columns.h"

namespace shardwise::python {

/// The contents of a `shardwise.columns.Column`.
struct ColumnObject {
  Column column;
  /// The function that `column` calls, or None. The column itself does not own it, so that Python's
  /// garbage collector sees every owner.
  nanobind::object function;
  /// Arguments from which made_again() of shardwise.columns makes the same column: a tuple, or None
  /// if that is impossible.
  nanobind::object made_from = nanobind::none();
};

/// The Python objects of a loader's data sets, for the samples that its functions get.
struct Parts {
  MixedDataset data;
  std::vector<PyObject*> datasets;  ///< the object of each part; the loader's owner owns them
};

/// Returns the column for a loader over these data sets.
Column column_over(const ColumnObject& column, const Parts& parts);

void add_columns(nanobind::module_& module);

}  // namespace shardwise::python
