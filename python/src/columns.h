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
  /// The Python function that `column` calls, or None. `column` does not own it: the garbage
  /// collector must know every owner.
  nanobind::object function;
  /// A tuple of arguments with which made_again() of shardwise.columns makes the same column. It is
  /// None if that is impossible.
  nanobind::object made_from = nanobind::none();
};

/// The Python objects of a loader's data sets. The samples that functions get refer to them.
struct Parts {
  MixedDataset data;
  std::vector<PyObject*> datasets;  ///< one object per part; the object that owns the loader owns
                                    ///< them
};

/// Lifetime: the result refers to the objects in `datasets`.
Parts parts_over(const nanobind::tuple& datasets);

/// Returns the columns, given as ColumnObjects, for a loader over these data sets.
std::vector<Column> columns_over(nanobind::handle columns, const Parts& parts);

void add_columns(nanobind::module_& module);

}  // namespace shardwise::python
