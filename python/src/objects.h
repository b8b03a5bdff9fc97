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

/// Tells once that samples of a data set are asked for in an order for which its cache is too
/// small. Threads: with the GIL.
class CacheWatch {
 public:
  /// Samples that were asked for by number.
  void asked(std::uint64_t count = 1) noexcept { asked_ += count; }
  /// A sample whose shard was not at hand.
  /// Errors: the warning, where Python makes warnings exceptions.
  void missed(const Dataset& data);
  /// A warning of the same was given elsewhere.
  void silence() noexcept { is_silent_ = true; }

 private:
  std::uint64_t asked_ = 0;
  std::uint64_t missed_ = 0;
  std::uint64_t gone_before_ = 0;  ///< shards that left the cache, or had no room, before
  bool is_silent_ = false;
};

/// What `shardwise.Dataset` holds.
struct DatasetObject {
  Dataset data;
  /// What open_again() of shardwise.references makes it from in another process: a tuple of plain
  /// values, or None if nothing can.
  nanobind::object opening;
  /// How this view was made of what was opened: a tuple of steps; empty if it is all of it.
  nanobind::tuple steps;
  CacheWatch watch{};
};

/// What `shardwise.Sample` holds.
struct SampleObject {
  Sample sample;
  nanobind::object dataset;  ///< of which it is
  /// In the mixture that it was taken from.
  std::optional<std::uint64_t> number = std::nullopt;
};

/// What `shardwise.ShardCache` holds.
struct CacheObject {
  std::shared_ptr<ShardCache> cache;
  /// Pairs of names and values, of which another process makes the same cache; None: it cannot.
  nanobind::object given;
  /// The function that says where URLs are, which the cache's fetchers have, too; null: there is
  /// none.
  Kept resolve = nullptr;
  /// Who had it and the fetchers when only this object had the cache.
  long num_resolve = 0;
  long num_fetchers = 0;
};

/// A Python object for a sample of `dataset`. A new reference; null with Python's error set.
/// @param number  in a mixture of which the dataset is a part.
PyObject* new_sample(Sample&& sample, PyObject* dataset,
                     std::optional<std::uint64_t> number = std::nullopt) noexcept;

/// What Dataset.samples() gives: an iterator over the samples with these numbers.
/// Errors: those of sample_numbers().
nanobind::object samples_of(nanobind::handle dataset, nanobind::handle numbers);

/// A value of a query or a column: None, int, float, str or bytes.
nanobind::object value_object(const Query::Value& value);

/// A dataset from what Python passes. Errors: TypeError.
const Dataset& dataset_of(nanobind::handle dataset);

/// A dataset from what Python passes, with what this module knows of it. Errors: TypeError.
DatasetObject& dataset_object_of(nanobind::handle dataset);

/// The sample at `number`. Others may run Python meanwhile if its shard has to be opened or
/// fetched.
/// Errors: as Dataset's operator[]; as CacheWatch::missed().
Sample sample_at(DatasetObject& object, std::uint64_t number);

/// What an object of a class of this module holds. nanobind does not check this for slots of types.
/// Errors: TypeError if the object's __init__() has not run.
template <class Held>
Held& held_in(PyObject* self) {
  if (!nanobind::inst_ready(self)) throw_not_made(self);
  return *nanobind::inst_ptr<Held>(self);
}

void add_samples(nanobind::module_& module);
void add_sample_ranges(nanobind::module_& module);
void add_datasets(nanobind::module_& module);
void add_opening(nanobind::module_& module);
void add_samplers(nanobind::module_& module);
void add_building(nanobind::module_& module);
void add_caches(nanobind::module_& module);
void add_writing(nanobind::module_& module);
void add_wids_samples(nanobind::module_& module);
void add_wids_orders(nanobind::module_& module);

}  // namespace shardwise::python
