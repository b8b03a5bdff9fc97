#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/libtorch/decode.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/epochs.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/order.h"

namespace shardwise::libtorch {

/// Delivers batches of images and labels of a data set, in exact epochs over the ranks of a process
/// group.
///
///     ImageLoader images(data, group, {.batch_size = 64, .threads = 4, .resize = {224, 224}});
///     for (auto epoch : images.epochs(90)) {
///       for (auto& batch : epoch) step(model, batch);
///       epoch.prove();
///     }
///
/// The content of a batch depends on the data, the options, the epoch and the ranks, never on the
/// number of threads. All ranks get the same number of batches, so collective calls in each step
/// match; see ImageLoader::Batch. The proof counts samples when next() returns their batch. Leaving
/// a loop early, or destroying the loader, does not wait for servers that hang. If the order uses
/// more shards at one time than fit in the data set's cache, LibTorch's warning handler is called
/// once.
///
/// Threads: use a loader from one thread; only Loader::stop() and Loader::stats() of loader() may
///   be called from others. The loader's own threads decode directly into the memory of batches.
/// Memory: (prefetch + 1) batches, and one decoded image per thread.
/// Errors: see next().
class SHARDWISE_EXPORT ImageLoader {
 public:
  /// One rank's part of one step. N is 0 in an epoch's last step if this rank has no samples left,
  /// but other ranks have. The other dimensions are as in other steps.
  struct Batch {
    torch::Tensor images;   ///< uint8 [N, 3, H, W], or as Options::transform says; contiguous, CPU
    torch::Tensor labels;   ///< int64 [N]
    torch::Tensor samples;  ///< int64 [N]: sample numbers in the data set
    /// int64 [N]: positions in the epoch, counted over all ranks as if no sample were left out.
    /// Tokens and skip lists use the same positions.
    torch::Tensor positions;

    [[nodiscard]] std::int64_t size() const noexcept { return labels.numel(); }
  };

  struct Options {
    /// The order of the samples. The command line has the same options.
    Order order{};
    /// Samples per step on each rank. A step of W ranks has batch_size * W samples.
    std::int64_t batch_size = 32;
    /// Samples per step over all ranks. It need not be divisible by the number of ranks. 0 means:
    /// use batch_size.
    std::int64_t global_batch_size = 0;
    /// Number of consecutive ranks that get the same batches, e.g. a tensor or sequence parallel
    /// group. It must divide the number of ranks.
    std::uint64_t replicas = 1;
    /// Number of threads that read, decode and collate ahead. With 0, next() does this work itself.
    unsigned threads = 2;
    /// See DecodeOptions::resize. With 0 x 0, the stored size, the images of a batch must have
    /// equal sizes.
    ImageSize resize{};
    /// Crops, flips, colours, normalisation, type and layout of each image. The type uint16 is
    /// refused, because LibTorch lacks it.
    ImageTransform transform{};
    /// Largest number of bad samples that a run leaves out instead of throwing. A sample is bad if
    /// its image or label is missing or cannot be decoded. A batch with bad samples is smaller. The
    /// proof accounts for bad samples, tokens list them with the reason, and later epochs omit
    /// them. More than max_bad bad samples are an error.
    std::uint64_t max_bad = 0;

    /// The field with the image. "jpg;png" means the first of these fields that a sample has. Empty
    /// means the sample's only field with the name of an image format.
    std::string image_field{};
    /// The field with the label, a whole number.
    std::string label_field = "cls";
    ImageDecoding decoding{};
    /// Number of batches that are made ahead. 0 means two per thread. Each batch takes batch_size *
    /// 3 * H * W bytes.
    std::size_t prefetch = 0;
    /// Number of shards that each rank fetches concurrently into the data set's cache, before they
    /// are read. The ranks of a node share one cache, which fetches each shard once. Ignored
    /// without a cache.
    unsigned fetch_threads = 2;
  };

  /// A range of batches, with number(), steps() and prove(); see <shardwise/loader/epochs.h>.
  using Epoch = shardwise::detail::EpochRange<ImageLoader>;
  /// A range of Epoch.
  using Epochs = shardwise::detail::EpochsRange<ImageLoader>;

  /// All ranks must pass the same data and the same options, except threads, prefetch and
  /// fetch_threads. The constructor compares them between the ranks.
  /// @param data  a Dataset, or several for a mixture.
  /// Errors: InvalidArgument, naming the option and what is valid. Mismatch, on every rank, naming
  ///   what differs on which ranks (ProcessGroup::require_same()). kDistributed.
  ImageLoader(MixedDataset data, ProcessGroup group, Options options);
  ImageLoader(MixedDataset data, ProcessGroup group);
  ~ImageLoader();
  ImageLoader(const ImageLoader&) = delete;
  ImageLoader& operator=(const ImageLoader&) = delete;

  /// Throws what the constructor would throw on one of `world_size` ranks.
  static void validate(const MixedDataset& data, const Options& options, int world_size);

  /// Returns the epochs from the current one up to, but excluding, `end`; see Loader::epochs().
  Epochs epochs(std::uint64_t end = std::numeric_limits<std::uint64_t>::max()) {
    return {*this, end};
  }
  /// The current epoch.
  Epoch epoch() { return {*this, loader().epoch_number()}; }

  /// Waits for the next batch of the epoch and returns it, or nothing at the end.
  /// Errors: BadField, StaleIndex and others, naming shard and key. The loader then continues with
  ///   the following batch, but the epoch can no longer be proven. InvalidArgument if images of one
  ///   batch differ in size and there is no `resize`. Cancelled after Loader::stop().
  std::optional<Batch> next();

  /// The loader that makes the batches. Use it for state(), restore(), steps_left(), stats(),
  /// stop() and more. Do not call its next(): this ImageLoader would not return that batch.
  [[nodiscard]] Loader& loader() noexcept;
  [[nodiscard]] const Loader& loader() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
