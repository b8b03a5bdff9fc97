#include "data.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "base/text.h"
#include "fetch_options.h"
#include "first_use.h"
#include "shardwise/base/error.h"
#include "shardwise/libtorch/checkpoint.h"

namespace shardwise::train {
namespace {

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

void require_samples(const MixedDataset& data, const std::string& path) {
  if (data.empty())
    throw InvalidArgument("the index has no samples", in_quotes(path), "name another");
}

}  // namespace

Data open_data(const Options& options) {
  std::shared_ptr<ShardCache> cache;  // shared by all data sets
  Data data{.training = tools::open_data(
                options.order, options.train_index,
                [&](const std::string& index) {
                  if (cache) return open_dataset(index, options.lookup.root, options, cache);
                  Dataset part = tools::open_dataset(
                      tools::find_index(index, options.first_use), options.lookup, options.access,
                      options.cache, options.order.allow_part, options.first_use.cancel);
                  cache = part.cache();
                  return part;
                }),
            .evaluation = {}};
  std::vector<std::string> urls = tools::urls_of(data.training);
  if (!options.eval_index.empty()) {
    data.evaluation = open_dataset(options.eval_index, options.eval_root, options, cache);
    std::ranges::move(tools::urls_of(data.evaluation->index()), std::back_inserter(urls));
  }
  tools::check_servers(options.cache.fetching, urls, options.first_use.quiet);
  return data;
}

libtorch::ImageLoader::Options loader_options(const Options& options, unsigned threads,
                                              const MixedDataset& data) {
  libtorch::ImageLoader::Options loader;
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
      options.order, options.train_index,
      [&](const std::string& index) { return open_dataset(index, options.lookup.root, options); });
  if (train.empty() && options.order.where) {
    throw InvalidArgument("no sample satisfies the condition", "--where", "change the condition");
  }
  require_samples(train, options.train_index);
  try {
    libtorch::ImageLoader::validate(train, loader_options(options, 1, train), world_size);
  } catch (const InvalidArgument& e) {
    throw CLI::ValidationError(e.what(), CLI::ExitCodes::ValidationError);
  }
  if (!options.eval_index.empty()) {
    require_samples(open_dataset(options.eval_index, options.eval_root, options),
                    options.eval_index);
  }
  if (options.checkpoint.empty()) return;
  const bool is_there = libtorch::CheckpointFile::exists(options.checkpoint);
  if (options.resume && !is_there) {
    throw NotFound("the checkpoint does not exist", in_quotes(options.checkpoint),
                   "check the path, or start without --resume");
  }
  if (!options.resume && is_there) {
    throw InvalidArgument("the checkpoint exists already", in_quotes(options.checkpoint),
                          "continue it with --resume, or name another file");
  }
}

}  // namespace shardwise::train
