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

/// Batches of images and labels of a data set, in exact epochs over the ranks of a process group.
///
///     ImageLoader images(data, group, {.batch_size = 64, .threads = 4, .resize = {224, 224}});
///     for (auto epoch : images.epochs(90)) {
///       for (auto& batch : epoch) step(model, batch);
///       epoch.prove();
///     }
///
/// Threads decode straight into the batches' memory. What a batch holds depends on the data, the
/// options, the epoch and the ranks, never on the number of threads. All ranks get the same number
/// of batches, so that collective calls in a step meet; see ImageLoader::Batch. If the order uses
/// more shards at one time than the data set's cache may hold, LibTorch's warning handler is told
/// once.
///
/// A loader is used by one thread; it is neither copied nor moved. Leaving a loop early, or
/// destroying the loader, does not hang. Samples count for the proof when their batch is handed
/// out. Memory: (prefetch + 1) batches, and one decoded image a thread. Errors: as next().
class SHARDWISE_EXPORT ImageLoader {
 public:
  /// One rank's part of one step. N is 0 in the last step of a rank that has nothing left while
  /// others have; the tensors then have their other sizes all the same.
  struct Batch {
    torch::Tensor images;   ///< uint8 [N, 3, H, W], or as Options::transform says; contiguous, CPU
    torch::Tensor labels;   ///< int64 [N]
    torch::Tensor samples;  ///< int64 [N]: sample numbers in the data set
    /// int64 [N]: positions in the epoch, counted over all ranks as if nothing were left out, as in
    /// tokens and skip lists.
    torch::Tensor positions;

    [[nodiscard]] std::int64_t size() const noexcept { return labels.numel(); }
  };

  struct Options {
    /// The order of the samples, as on the command line.
    Order order{};
    /// Samples a step on each rank. With `world_size` ranks a step has batch_size * world_size.
    std::int64_t batch_size = 32;
    /// Samples a step on all ranks together, instead; it need not divide by their number. 0: above.
    std::int64_t global_batch_size = 0;
    /// Neighbouring ranks that get the same batches, as tensor and sequence parallel groups need
    /// them. It divides the number of ranks.
    std::uint64_t replicas = 1;
    /// Threads that read, decode and collate ahead. 0: the work is done when a batch is asked for.
    unsigned threads = 2;
    /// As DecodeOptions::resize. 0 x 0: as stored; then the images of a batch must be of one size.
    ImageSize resize{};
    /// What becomes of each image: crops, flips, colours, normalisation, type and layout. The type
    /// uint16, which LibTorch does not have, is refused.
    ImageTransform transform{};
    /// Samples that may turn out bad (no image that can be decoded, no label) in a run. They are
    /// left out: their batches are smaller, the proof expects it, tokens list them with the reason,
    /// and later epochs do without them. One more is an error, as is the first one by default.
    std::uint64_t max_bad = 0;

    /// The field with the image, or several with semicolons between them, the first that a sample
    /// has: "jpg;png". Empty: the sample's one field that is an image by its name.
    std::string image_field{};
    /// A field with a whole number.
    std::string label_field = "cls";
    ImageDecoding decoding{};
    /// Batches in flight at most; each takes batch_size * 3 * H * W bytes. 0: two a thread.
    std::size_t prefetch = 0;
    /// Where the dataset has a shard cache: shards that are fetched into it ahead at once, by each
    /// rank. The ranks of a node share one cache, and each shard is fetched once.
    unsigned fetch_threads = 2;
  };

  /// A range of batches, with number(), steps() and prove(); see <shardwise/loader/epochs.h>.
  using Epoch = shardwise::detail::EpochRange<ImageLoader>;
  /// A range of those.
  using Epochs = shardwise::detail::EpochsRange<ImageLoader>;

  /// Every rank gives the same data, a Dataset or several of them for a mixture, and the same
  /// options but for threads, prefetch and fetch_threads: every rank makes one, and the ranks
  /// compare. Only then is anything added up.
  /// Errors: InvalidArgument, naming the option and what is valid; Mismatch, on every rank, naming
  ///   what differs, on which ranks (ProcessGroup::require_same()); kDistributed.
  ImageLoader(MixedDataset data, ProcessGroup group, Options options);
  ImageLoader(MixedDataset data, ProcessGroup group);
  ~ImageLoader();
  ImageLoader(const ImageLoader&) = delete;
  ImageLoader& operator=(const ImageLoader&) = delete;

  /// Throws what the constructor would for one of `world_size` ranks.
  static void validate(const MixedDataset& data, const Options& options, int world_size);

  /// The epochs from the current one to `end`, as shardwise::Loader::epochs().
  Epochs epochs(std::uint64_t end = std::numeric_limits<std::uint64_t>::max()) {
    return {*this, end};
  }
  /// The current epoch.
  Epoch epoch() { return {*this, loader().epoch_number()}; }

  /// The next batch of the epoch, or nothing at its end. Waits for it.
  /// Errors: BadField, StaleIndex and others, naming shard and key; the loader then goes on with
  ///         the batch after it, but the epoch cannot be proven any more. InvalidArgument if images
  ///         of one batch differ in size and there is no `resize`.
  std::optional<Batch> next();

  /// The loader that makes the batches: its state() and restore() say where the run stands; it has
  /// the steps that are left, statistics and stop(). What its own next() hands out is no tensor.
  [[nodiscard]] Loader& loader() noexcept;
  [[nodiscard]] const Loader& loader() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
