#include "classes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/error_types.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"

namespace shardwise::train {
namespace {

using libtorch::ProcessGroup;

/// Returns the largest label plus 1, from the columns of the indexes and without reading a shard.
/// Returns nullopt if an index lacks the column, or a value in it is not a class.
std::optional<std::int64_t> classes_of_columns(const MixedDataset& data,
                                               const std::string& label_field) {
  double most = -1;
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    const auto& columns = data.part(part).index().content().columns;
    const auto column = std::find_if(columns.begin(), columns.end(), [&](const auto& each) {
      return each.field == label_field && each.json_path.empty();
    });
    if (column == columns.end()) return std::nullopt;
    try {
      for (const double label : data.part(part).numbers(column->name)) {
        if (label < 0 || label >= 1 << 20 || label != std::floor(label)) return std::nullopt;
        most = std::max(most, label);
      }
    } catch (const InvalidArgument&) {  // no number
      return std::nullopt;
    }
  }
  return static_cast<std::int64_t>(most) + 1;
}

/// Returns true if the index has shards that must be fetched, whether they are cached or not.
bool has_fetched_shards(const Index& index) {
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    if (is_fetched_url(index.shard(shard).path)) return true;
  }
  return false;
}

/// Returns the number of classes if it is known without reading labels.
/// Errors: InvalidArgument if it is unknown, and reading the labels would fetch all shards.
std::optional<std::int64_t> known_classes(const MixedDataset& data, const Options& options) {
  if (options.classes > 0) return options.classes;
  if (const auto classes = classes_of_columns(data, options.label_field)) return classes;
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    const bool can_fetch =
        data.part(part).cache() != nullptr || options.access == Dataset::Access::kRange;
    if (!can_fetch || !has_fetched_shards(data.part(part).index())) continue;
    throw InvalidArgument(
        "the number of classes is not known before all shards are fetched",
        in_quotes(options.train_index),
        "name it with --classes, or build the index with --column " + options.label_field);
  }
  return std::nullopt;
}

}  // namespace

std::int64_t count_classes(const MixedDataset& data, const Options& options,
                           const ProcessGroup& group, const CancelToken& cancel) {
  const auto world = static_cast<std::uint64_t>(group.world_size());
  const auto rank = static_cast<std::uint64_t>(group.rank());
  if (const auto known = known_classes(data, options)) {
    return group.all_reduce(*known - 1, libtorch::ProcessGroup::ReduceOp::kMax) + 1;
  }
  std::int64_t most = -1;
  const std::uint64_t end =
      data.size() / world * (rank + 1) + data.size() % world * (rank + 1) / world;
  for (std::uint64_t i = data.size() / world * rank + data.size() % world * rank / world; i < end;
       ++i) {
    const Sample sample = data[i];
    std::int64_t label = 0;
    try {
      label = sample.integer(options.label_field);
    } catch (const Error& e) {
      // A bad sample is counted when the run reads it.
      if (options.max_bad > 0) continue;
      throw Error(e.code(), std::string(e.what()) + "; --label-field names the field of the class");
    }
    if (label < 0 || label >= 1 << 20) {
      throw BadField("a label is not a class",
                     sample.describe() + ", " + in_quotes(options.label_field) + " is " +
                         std::to_string(label),
                     "labels are numbers from 0, below --classes");
    }
    most = std::max(most, label);
    cancel.throw_if_cancelled();
  }
  most = group.all_reduce(most, libtorch::ProcessGroup::ReduceOp::kMax);
  return most + 1;
}

}  // namespace shardwise::train
