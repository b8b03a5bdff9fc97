#include "data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "fetch_options.h"
#include "first_use.h"
#include "options.h"
#include "shardwise/base/error.h"
#include "shardwise/libtorch/checkpoint.h"

namespace shardwise::train {
namespace {

using libtorch::ProcessGroup;

Dataset open_dataset(const std::string& index, const std::string& root, const Options& options,
                     const std::shared_ptr<ShardCache>& cache = nullptr) {
  const tools::FoundIndex found = tools::find_index(index, options.first_use);
  const Index::Lookup lookup{
      .root = root, .accept_times = options.lookup.accept_times, .urls = found.urls};
  return Dataset(Index::open(found.path, lookup), {.access = options.access,
                                                   .cache = cache,
                                                   .fetchers = tools::make_fetchers(options.cache),
                                                   .cancel = options.first_use.cancel,
                                                   .root = root,
                                                   .accept_times = options.lookup.accept_times,
                                                   .allow_part = options.order.allow_part});
}

/// Returns what --train or --mix names, for errors.
std::string named_data(const Options& options) {
  if (options.order.mix.empty()) return in_quotes(options.train_index);
  return in_quotes(fmt::format("--mix {}", fmt::join(options.order.mix, ",")));
}

void require_samples(const MixedDataset& data, const std::string& named, const char* option) {
  if (!data.empty()) return;
  throw InvalidArgument("the index has no samples", named,
                        std::string("name another index with ") + option);
}

/// Returns the largest label plus 1, from the columns of the indexes, without reading a shard.
/// Returns nullopt if an index lacks the column, or if one of its values is not a class.
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
    } catch (const InvalidArgument&) {  // the column contains values that are not numbers
      return std::nullopt;
    }
  }
  return static_cast<std::int64_t>(most) + 1;
}

/// Returns true if the index has remote shards, cached or not.
bool has_fetched_shards(const Index& index) {
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    if (is_fetched_url(index.shard(shard).path)) return true;
  }
  return false;
}

/// Returns the number of classes if it is known without reading labels.
/// Errors: InvalidArgument if it is unknown and reading the labels would fetch all shards.
std::optional<std::int64_t> known_classes(const MixedDataset& data, const Options& options) {
  if (options.classes > 0) return options.classes;
  if (const auto classes = classes_of_columns(data, options.label_field)) return classes;
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    const bool can_fetch =
        data.part(part).cache() != nullptr || options.access == Dataset::Access::kRange;
    if (!can_fetch || !has_fetched_shards(data.part(part).index())) continue;
    throw InvalidArgument(
        "the number of classes is unknown, and finding it would fetch all shards",
        named_data(options),
        "give --classes, or build the index with --column " + options.label_field);
  }
  return std::nullopt;
}

}  // namespace

Data open_data(const Options& options) {
  std::shared_ptr<ShardCache> cache;  // shared by all data sets
  Data data{.training = tools::open_data(
                options.order, options.train_index, /*quiet=*/true,
                [&](const std::string& index) {
                  if (cache) return open_dataset(index, options.lookup.root, options, cache);
                  Dataset part = tools::open_dataset(
                      tools::find_index(index, options.first_use), options.lookup, options.access,
                      options.cache, options.order.allow_part, options.first_use.cancel);
                  cache = part.cache();
                  return part;
                }),
            .evaluation = {}};
  if (!options.eval_index.empty()) {
    data.evaluation = open_dataset(options.eval_index, options.eval_root, options, cache);
  }
  const auto all_urls = [&] {
    std::vector<std::string> urls = tools::urls_of(data.training);
    if (data.evaluation) {
      std::ranges::move(tools::urls_of(data.evaluation->index()), std::back_inserter(urls));
    }
    return urls;
  };
  tools::check_servers(options.cache.fetching, all_urls, options.first_use.quiet);
  return data;
}

libtorch::ImageLoader::Options loader_options(const Options& options, unsigned threads,
                                              const MixedDataset& data) {
  libtorch::ImageLoader::Options loader;
  // check() and each rank read the skip file, so a pipe is an error.
  if (!options.order.skip_file.empty()) file_identity(options.order.skip_file);
  loader.order = tools::order_of(options.order, &data);
  loader.batch_size = options.batch_size;
  loader.global_batch_size = options.global_batch_size;
  loader.replicas = options.order.replicas;
  loader.threads = threads;
  loader.resize = {options.height, options.width};
  loader.max_bad = options.max_bad;
  loader.image_field = options.image_field;
  loader.label_field = options.label_field;
  return loader;
}

void check(const Options& options, int world_size) {
  const MixedDataset train = tools::open_data(
      options.order, options.train_index, /*quiet=*/true,
      [&](const std::string& index) { return open_dataset(index, options.lookup.root, options); });
  if (train.empty() && options.order.where) {
    throw InvalidArgument("no sample satisfies the condition",
                          "--where " + in_quotes(*options.order.where), "correct the condition");
  }
  require_samples(train, named_data(options), options.order.mix.empty() ? "--train" : "--mix");
  try {
    libtorch::ImageLoader::validate(train, loader_options(options, 1, train), world_size);
  } catch (const InvalidArgument& e) {
    tools::throw_usage(e.what());
  }
  if (!options.eval_index.empty()) {
    require_samples(open_dataset(options.eval_index, options.eval_root, options),
                    in_quotes(options.eval_index), "--eval");
  }
  if (options.checkpoint.empty()) return;
  const bool is_there = libtorch::CheckpointFile::exists(options.checkpoint);
  if (options.resume && !is_there) {
    throw NotFound("the checkpoint does not exist", in_quotes(options.checkpoint),
                   "check the path, or start without --resume");
  }
  if (!options.resume && is_there) {
    throw InvalidArgument("the checkpoint already exists", in_quotes(options.checkpoint),
                          "continue its run with --resume, or name another file with --checkpoint");
  }
}

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
      // The run counts bad samples when it reads them.
      if (options.max_bad > 0) continue;
      throw Error(e.code(), std::string(e.what()) +
                                "; name the field with the class number with "
                                "--label-field");
    }
    if (label < 0 || label >= 1 << 20) {
      throw BadField("a label is not a class",
                     sample.describe() + ", " + in_quotes(options.label_field) + " is " +
                         std::to_string(label),
                     "correct the label, which must be a class number from 0");
    }
    most = std::max(most, label);
    cancel.throw_if_cancelled();
  }
  most = group.all_reduce(most, libtorch::ProcessGroup::ReduceOp::kMax);
  return most + 1;
}

}  // namespace shardwise::train
