#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "raised.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/query.h"

namespace shardwise::python {

/// Warns once if samples are requested in an order for which the data set's cache is too small.
/// Threads: requires the GIL.
class CacheWatch {
 public:
  /// Counts samples requested by number.
  void asked(std::uint64_t count = 1) noexcept { asked_ += count; }
  /// Counts a sample whose shard was not local.
  /// Errors: raises the warning if Python turns warnings into exceptions.
  void missed(const Dataset& data);
  /// Suppresses the warning, since the user has got the same one elsewhere.
  void silence() noexcept { is_silent_ = true; }

 private:
  std::uint64_t asked_ = 0;
  std::uint64_t missed_ = 0;
  std::uint64_t gone_before_ = 0;  ///< number of shards evicted or bypassed before the first miss
  bool is_silent_ = false;
};

/// The contents of a `shardwise.Dataset`.
struct DatasetObject {
  Dataset data;
  /// A tuple of plain values with which open_again() of shardwise.references opens the data in
  /// another process. It is None if that is impossible.
  nanobind::object opening;
  /// The steps that made this view from the opened data; empty for all of the data.
  nanobind::tuple steps;
  CacheWatch watch{};
};

/// Whether access to a sample may have to fetch it, or its shard.
bool may_wait_long(const Dataset& data);

/// The contents of a `shardwise.Sample`.
struct SampleObject {
  Sample sample;
  nanobind::object dataset;  ///< the dataset of the sample
  /// Number of the sample in the mixture that it was taken from.
  std::optional<std::uint64_t> number = std::nullopt;
};

/// The contents of a `shardwise.ShardCache`.
struct CacheObject {
  std::shared_ptr<ShardCache> cache;
  /// Pairs of names and values with which another process makes the same cache. It is
  /// None if that is impossible.
  nanobind::object given;
  /// The function that resolves URLs, or null. The cache's fetchers also refer to it.
  Kept resolve = nullptr;
  /// Reference counts of `resolve` and of the fetchers while only this object has the cache.
  long num_resolve = 0;
  long num_fetchers = 0;
};

/// Makes a Python object for a sample. Returns a new reference; null with Python's error set.
/// @param number  the sample's number in a mixture with `dataset` as a part.
PyObject* new_sample(Sample&& sample, PyObject* dataset,
                     std::optional<std::uint64_t> number = std::nullopt) noexcept;

/// Implements Dataset.samples(): returns an iterator over the samples with these numbers.
/// Errors: those of sample_numbers().
nanobind::object samples_of(nanobind::handle dataset, nanobind::handle numbers);

/// Converts a value of a query or a column to None, int, float, str or bytes.
nanobind::object value_object(const Query::Value& value);

/// Returns the Dataset that a Python argument contains. Errors: TypeError.
const Dataset& dataset_of(nanobind::handle dataset);

/// Returns the contents of a Python argument that is a Dataset. Errors: TypeError.
DatasetObject& dataset_object_of(nanobind::handle dataset);

/// Returns a dataset that was made from another. Records the step that made it, for pickling.
nanobind::object dataset_after(const DatasetObject& of, Dataset&& data, nanobind::object step);

/// Returns sample `number`. Releases the GIL if the shard must be opened or fetched.
/// Errors: those of Dataset's operator[] and of CacheWatch::missed().
Sample sample_at(DatasetObject& object, std::uint64_t number);

/// Returns the contents of an object of this module. Checks that the object's __init__() has run:
/// nanobind does not check this for slots of types.
/// Errors: TypeError if __init__() has not run.
template <class Held>
Held& held_in(PyObject* self) {
  if (!nanobind::inst_ready(self)) throw_not_made(self);
  return *nanobind::inst_ptr<Held>(self);
}

void add_samples(nanobind::module_& module);
void add_sample_ranges(nanobind::module_& module);
void add_datasets(nanobind::module_& module);
/// Adds what concerns joins: join(), join_report, fields, version.
void add_joins(nanobind::class_<DatasetObject>& type);
void add_opening(nanobind::module_& module);
void add_samplers(nanobind::module_& module);
void add_explaining(nanobind::module_& module);
void add_sums(nanobind::module_& module);
void add_attaching(nanobind::module_& module);
void add_building(nanobind::module_& module);
void add_caches(nanobind::module_& module);
void add_writing(nanobind::module_& module);
void add_decoding(nanobind::module_& module);
void add_wids_samples(nanobind::module_& module);
void add_wids_orders(nanobind::module_& module);

}  // namespace shardwise::python
