#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/data/datasets/base.h>
#include <torch/data/samplers/base.h>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/order/sampler.h"

/// Shardwise's data sets and orders where LibTorch's own data loader is used:
///
///     TorchDataset dataset(data, [](const Sample& s) { return decode_image(s, "jpg"); });
///     TorchSampler sampler(ChunkedSampler(data, {.seed = 17}));
///     auto loader = torch::data::make_data_loader(dataset, sampler,
///         torch::data::DataLoaderOptions().batch_size(64).workers(4));
///     for (std::uint64_t epoch = 0; epoch < 90; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) ...   // a std::vector of what the function returns
///     }
///
/// ImageLoader does more: it collates in place, gives all ranks the same number of steps, and
/// proves the epoch.
namespace shardwise::libtorch {

namespace detail {
/// Throws what is being handled as an exception that names the sample: an Error as it is, anything
/// else wrapped as BadField. REQUIRES: called in a catch block.
[[noreturn]] SHARDWISE_EXPORT void rethrow_for(const Sample& sample);
/// Errors: OutOfRange.
SHARDWISE_EXPORT Sample sample_at(const Dataset& data, std::size_t index);
}  // namespace detail

/// A torch::data::datasets::Dataset over a Dataset and a function that makes one example of a
/// sample.
///
/// A cheap handle: torch's data loader copies it once a worker; the copies share the index, the
/// mapped shards, and the function.
/// Threads: get() is called from all workers at once, and so is `decode`, which must allow it.
/// Errors: of a worker reach the consumer as torch::data::WorkerException, whose text and
///   original_exception name shard and key, whatever `decode` threw.
template <class Decode>
class TorchDataset final
    : public torch::data::datasets::Dataset<TorchDataset<Decode>,
                                            std::invoke_result_t<const Decode&, const Sample&>> {
 public:
  using ExampleType = std::invoke_result_t<const Decode&, const Sample&>;

  TorchDataset(shardwise::Dataset data, Decode decode)
      : data_(std::move(data)), decode_(std::make_shared<const Decode>(std::move(decode))) {}

  ExampleType get(std::size_t index) override {
    const Sample sample = detail::sample_at(data_, index);
    try {
      return (*decode_)(sample);
    } catch (...) {
      detail::rethrow_for(sample);
    }
  }

  [[nodiscard]] torch::optional<std::size_t> size() const override { return data_.size(); }

 private:
  shardwise::Dataset data_;
  std::shared_ptr<const Decode> decode_;
};

/// A torch::data::samplers::Sampler over any of shardwise's samplers: of one rank, in the order,
/// and with the tail, of that sampler.
///
/// A handle: copies are the same sampler, so the one that is kept still steers the one that a data
/// loader took: set_epoch() counts from the loader's next begin(). Threads: one at a time.
///
/// Ranks may differ by a sample, and so by a batch: torch's data loader cannot give an empty batch.
/// Where ranks must stay in step use Order::Tail::kDrop or kPad, or ImageLoader.
class SHARDWISE_EXPORT TorchSampler final : public torch::data::samplers::Sampler<> {
 public:
  /// @param sampler  cloned; where it stands is where this one begins.
  explicit TorchSampler(const shardwise::Sampler& sampler);

  /// Moves to the beginning of the epoch that was set; the first reset() after construction or
  /// load() stays where they left it, so that a data loader's begin() does not lose the place.
  /// Errors: InvalidArgument if `new_size` is given and is not the number of samples.
  void reset(torch::optional<std::size_t> new_size = torch::nullopt) override;

  /// At most `batch_size` numbers, fewer only at the end; nullopt, never an empty list, after it.
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// The epoch of the next reset(). In the epoch of load(), the first one stays where load() left
  /// it. Nothing moves on by itself: the same epoch again is the same order again.
  void set_epoch(std::uint64_t epoch);
  [[nodiscard]] std::uint64_t epoch() const noexcept;
  /// Samples of this epoch given out. A data loader asks ahead of what it delivers.
  [[nodiscard]] std::uint64_t position() const noexcept;
  [[nodiscard]] std::uint64_t size() const noexcept;

  /// A resume token, as the tensor "shardwise_token". It counts what next() gave out: save between
  /// epochs, or with a loader that has no workers; Loader::state() counts what was consumed.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Goes on where the token stands; ranks and batch size may be others.
  /// Errors: Mismatch, naming what differs in data set or order; InvalidArgument, VersionMismatch.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace shardwise::libtorch
