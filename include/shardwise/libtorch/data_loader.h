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

/// Shardwise's data sets and orders for LibTorch's own data loader:
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
/// Prefer ImageLoader if you can: it collates in place, gives all ranks the same number of steps,
/// and proves the epoch.
namespace shardwise::libtorch {

namespace detail {
/// Rethrows the current exception. An Error is rethrown unchanged. Any other exception becomes a
/// BadField that names the sample. REQUIRES: called in a catch block.
[[noreturn]] SHARDWISE_EXPORT void rethrow_for(const Sample& sample);
/// Errors: OutOfRange.
SHARDWISE_EXPORT Sample sample_at(const Dataset& data, std::size_t index);
}  // namespace detail

/// A torch::data::datasets::Dataset: a shardwise::Dataset, and a function that makes one example
/// from a sample.
///
/// It is cheap to copy: torch's data loader copies it for each worker. Copies share the index, the
/// mapped shards and the function.
/// Threads: all workers call get() concurrently, and get() calls `decode`, so `decode` must be
///   thread-safe.
/// Errors: the consumer gets a worker's error as torch::data::WorkerException. Its text and
///   original_exception name shard and key, for any exception of `decode`.
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

/// A torch::data::samplers::Sampler that wraps a shardwise::Sampler, and delivers the samples of
/// that sampler's rank.
///
/// Copies share one state. A data loader takes a copy; call set_epoch() on yours, and it takes
/// effect at the loader's next begin().
/// Threads: one at a time.
///
/// The numbers of samples and batches may differ by one between ranks, because torch's data loader
/// cannot deliver an empty batch. If ranks must stay in step, use Order::Tail::kDrop or kPad, or
/// ImageLoader.
class SHARDWISE_EXPORT TorchSampler final : public torch::data::samplers::Sampler<> {
 public:
  /// @param sampler  is cloned; the clone begins at the current position.
  explicit TorchSampler(const shardwise::Sampler& sampler);

  /// Moves to the beginning of the epoch of set_epoch(). The first reset() after construction or
  /// load() keeps the position instead, so that a data loader's begin() does not lose it.
  /// Errors: InvalidArgument if `new_size` is given and differs from the number of samples.
  void reset(torch::optional<std::size_t> new_size = torch::nullopt) override;

  /// Returns `batch_size` numbers, or fewer at the end of the epoch. After the end it returns
  /// nullopt, never an empty list.
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Sets the epoch for the next reset(). If it is the epoch of load(), the first reset() keeps the
  /// position. The sampler never advances to the next epoch by itself.
  void set_epoch(std::uint64_t epoch);
  [[nodiscard]] std::uint64_t epoch() const noexcept;
  /// Samples of this epoch that next() returned. Data loaders request samples before they deliver
  /// them.
  [[nodiscard]] std::uint64_t position() const noexcept;
  [[nodiscard]] std::uint64_t size() const noexcept;

  /// Stores a resume token as the tensor "shardwise_token". It counts samples that next() returned,
  /// though a data loader with workers may not have delivered them. Therefore save between epochs,
  /// or use a data loader without workers. Loader::state() counts consumed samples.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Continues from the token; ranks and batch size may differ.
  /// Errors: Mismatch, naming differences of data set or order. InvalidArgument. VersionMismatch.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace shardwise::libtorch
