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
/// match; see ImageLoader::Batch. Samples count for the proof when their batch is handed out.
/// Leaving a loop early, or destroying the loader, does not hang. If the order uses more shards at
/// one time than fit in the data set's cache, LibTorch's warning handler is called once.
///
/// Threads: use a loader from one thread; only Loader::stop() and Loader::stats() of loader() may
///   be called from others. The loader's own threads decode directly into the memory of batches.
/// Memory: (prefetch + 1) batches, and one decoded image per thread.
/// Errors: see next().
class SHARDWISE_EXPORT ImageLoader {
 public:
  /// One rank's part of one step. N is 0 in the last step of a rank that has no samples left while
  /// others have. The other dimensions are unchanged then.
  struct Batch {
    torch::Tensor images;   ///< uint8 [N, 3, H, W], or as Options::transform says; contiguous, CPU
    torch::Tensor labels;   ///< int64 [N]
    torch::Tensor samples;  ///< int64 [N]: sample numbers in the data set
    /// int64 [N]: positions in the epoch, counted over all ranks as if nothing were left out.
    /// Tokens and skip lists use the same positions.
    torch::Tensor positions;

    [[nodiscard]] std::int64_t size() const noexcept { return labels.numel(); }
  };

  struct Options {
    /// The order of the samples, with the options of the command line.
    Order order{};
    /// Samples per step on each rank. With `world_size` ranks a step has batch_size * world_size.
    std::int64_t batch_size = 32;
    /// Samples per step over all ranks. The number of ranks need not divide it. 0 means: use
    /// batch_size.
    std::int64_t global_batch_size = 0;
    /// Number of consecutive ranks that get the same batches, e.g. a tensor or sequence parallel
    /// group. It must divide the number of ranks.
    std::uint64_t replicas = 1;
    /// Threads that read, decode and collate ahead. With 0 the work is done in next().
    unsigned threads = 2;
    /// See DecodeOptions::resize. With 0 x 0, the stored size, the images of a batch must have
    /// equal sizes.
    ImageSize resize{};
    /// Crops, flips, colours, normalisation, type and layout of each image. The type uint16 is
    /// refused, because LibTorch lacks it.
    ImageTransform transform{};
    /// Largest number of bad samples in a run, which are left out instead of throwing. A sample is
    /// bad if its image or label is missing or cannot be decoded. Batches with bad samples are
    /// smaller. The proof accounts for them, tokens list them with the reason, and later epochs
    /// omit them. One more bad sample is an error.
    std::uint64_t max_bad = 0;

    /// The field with the image. "jpg;png" means the first of these fields that a sample has. Empty
    /// means the sample's only field with the name of an image.
    std::string image_field{};
    /// The field with the label, a whole number.
    std::string label_field = "cls";
    ImageDecoding decoding{};
    /// Batches in flight at most; each takes batch_size * 3 * H * W bytes. 0 means two per thread.
    std::size_t prefetch = 0;
    /// Shards that each rank fetches into the data set's cache at once, ahead of reading. The ranks
    /// of a node share one cache, and each shard is fetched once. Ignored without a cache.
    unsigned fetch_threads = 2;
  };

  /// A range of batches, with number(), steps() and prove(); see <shardwise/loader/epochs.h>.
  using Epoch = shardwise::detail::EpochRange<ImageLoader>;
  /// A range of Epoch.
  using Epochs = shardwise::detail::EpochsRange<ImageLoader>;

  /// All ranks must pass the same data and the same options, except threads, prefetch and
  /// fetch_threads. The ranks compare them here, before any sum is computed.
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

  /// The loader that makes the batches, for state(), restore(), steps_left(), stats(), stop() and
  /// more. Do not call its next(), or a batch that it returns is skipped here.
  [[nodiscard]] Loader& loader() noexcept;
  [[nodiscard]] const Loader& loader() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
