#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/columns.h"

namespace shardwise::python {

/// What `shardwise.columns.Column` holds.
struct ColumnObject {
  Column column;
  /// What `column` calls, or None. The column itself does not own it, so that Python's garbage
  /// collector sees all that does.
  nanobind::object function;
  /// What made_again() of shardwise.columns makes the same column from: a tuple; None: nothing can.
  nanobind::object made_from = nanobind::none();
};

/// The data sets of a loader, as Python has them: for the samples that its functions get.
struct Parts {
  MixedDataset data;
  std::vector<PyObject*> datasets;  ///< of each part; whoever holds the loader owns them
};

/// A column for a loader over these data sets.
Column column_over(const ColumnObject& column, const Parts& parts);

void add_columns(nanobind::module_& module);

}  // namespace shardwise::python
