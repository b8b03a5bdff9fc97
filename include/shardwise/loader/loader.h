#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/epochs.h"
#include "shardwise/loader/reducer.h"
#include "shardwise/order/order.h"
#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

namespace detail {
struct LoaderAccess;
}  // namespace detail

/// Delivers batches of a data set, of any columns, in exact epochs over the ranks of a run.
///
///     Loader loader(data, {.columns = {columns::bytes("jpg"), columns::integer("cls")},
///                          .order = {.seed = 17}, .batch_size = 64, .threads = 4});
///     for (auto epoch : loader.epochs(90)) {
///       for (const Batch& batch : epoch) step(model, batch);
///       epoch.prove();
///     }
///
/// The content of a batch depends on the data, the options, the epoch and the ranks, never on the
/// number of threads. All ranks get the same number of batches, so collective calls in each step
/// match; see Batch::size(). Samples count for the proof when their batch is handed out. Leaving a
/// loop early, or destroying the loader, does not hang, even if a server does.
///
/// Threads: use a loader from one thread; only stop() and stats() may be called from others. The
///   loader's own threads make all rows of a batch directly in the batch's memory.
/// Lifetime: the memory of a batch is reused after the batch is destroyed.
/// Memory: (prefetch + 1) batches, and the needs of the columns per thread. For local shards that
///   are not in memory, the kernel is asked to read 256 samples or 64 MiB ahead.
/// Errors: see next().
class SHARDWISE_EXPORT Loader {
 public:
  /// Batches of samples of similar length, so that padded batches contain little padding.
  ///
  /// The order is divided into windows of `window` positions. The samples of a window are sorted by
  /// length and divided into batches, which are then shuffled. The ranks take turns, so in one step
  /// the lengths differ between ranks. In the last step a rank may have no batch.
  ///
  /// Batches depend only on the order, the lengths and this rule, not on ranks or on samples left
  /// out. Each sample is still delivered exactly once, and state() may be called after any step.
  /// docs/formats/length-batches.md specifies it (version 1).
  ///
  /// Cost: with max_tokens or pack, all lengths are looked up in the index and sorted when an epoch
  ///   begins.
  /// Errors: the constructor throws InvalidArgument, or NotFound for a missing column or a field
  ///   that no shard has.
  struct ByLength {
    /// The field whose size in bytes, divided by `unit` and rounded up, is the length of a sample.
    /// "a;b" means the first of these fields that the sample has. Without the field the length is
    /// 0.
    std::string field{};
    /// Alternatively, the metadata column whose number, rounded up, is the length. `unit` is then
    /// ignored.
    std::string column{};
    std::uint64_t unit = 1;  ///< in bytes, e.g. 4 to count the tokens of an int32 field
    /// Positions of the order that are sorted together. A larger window needs less padding, but
    /// reads samples from farther apart. A multiple of batch_size wastes least.
    std::uint64_t window = 8192;
    /// Largest number of tokens in a batch, if all samples are padded to the longest. A batch then
    /// has as many samples as fit, at most batch_size. A longer sample is delivered alone. 0 means
    /// that each batch has batch_size samples, or fewer at the end of a window.
    std::uint64_t max_tokens = 0;
    /// The ragged column of integers, one per token, whose sequences are packed into rows of
    /// `pack_to` tokens. Empty means no packing. A batch then has batch_size rows, or none if it
    /// has no samples. A sequence that is longer than a row continues in the next one.
    ///
    /// For a column "x" these arrays have the shape [batch_size, pack_to]:
    /// - "x": the tokens;
    /// - "x_segments", int32: the sequence of the row to which a token belongs, from 1; 0 for
    ///   padding;
    /// - "x_positions", int32: the position of a token in its sequence.
    /// Other columns still have one row for each sample, in the order of their places.
    std::string pack{};
    std::uint64_t pack_to = 0;
    std::int64_t padding = 0;  ///< the value of padding, of the column's type
  };

  /// Mixup and cutmix: each image of a batch is mixed with the one before it, and the first with
  /// the last. One random draw applies to the whole batch. It depends on seed, epoch and the
  /// position of the batch's first sample. It is the same for any number of threads and after a
  /// resume, if batch size and ranks are the same.
  ///
  /// The arrays "x_lambda", float32 [N], and "x_partner", int64 [N], tell how to mix the labels:
  ///
  ///     loss = lambda * f(output, label) + (1 - lambda) * f(output, label[partner])
  ///
  /// docs/formats/transforms.md specifies it.
  struct Mix {
    std::string column{};     ///< of images of one size; for mixup uint8 or float32
    double mixup_alpha = 0;   ///< of Beta(alpha, alpha); 0 means no mixup
    double cutmix_alpha = 0;  ///< likewise; if both are set, each applies to half of the batches
    double probability = 1;   ///< that a batch is mixed; otherwise lambda is 1
  };

  struct Options {
    /// Arrays to make from each sample, one per column. Names must differ.
    std::vector<Column> columns{};
    /// The order of the samples, with the options of the command line.
    Order order{};
    /// Samples per step on each rank. With `world_size` ranks a step has batch_size * world_size.
    std::uint64_t batch_size = 32;
    /// Samples per step over all ranks. The number of ranks need not divide it. 0 means: use
    /// batch_size.
    std::uint64_t global_batch_size = 0;
    /// Number of consecutive ranks that get the same batches, e.g. a tensor or sequence parallel
    /// group. It must divide the number of ranks.
    std::uint64_t replicas = 1;
    /// Batches by length, instead of consecutive samples of the order. Not possible with
    /// global_batch_size, balanced bytes, a tail other than Tail::kExact, or the order of wids.
    std::optional<ByLength> by_length{};
    /// Mixup and cutmix over the images of each batch.
    std::optional<Mix> mix{};
    /// Threads that make rows ahead, at most 1024. With 0 the work is done in next().
    unsigned threads = 2;
    /// Largest number of bad samples in a run, which are left out instead of throwing. A sample is
    /// bad if a field is missing or cannot be decoded. A run that resumes from a token counts anew.
    /// Not possible with the order of wids.
    ///
    /// Batches with bad samples are smaller. The proof accounts for them, tokens list them with the
    /// reason, and later epochs omit them. One more bad sample is an error. It is also an error if
    /// the first 100 samples of the run, or of an epoch, are all bad.
    std::uint64_t max_bad = 0;
    /// Batches in flight, at most 65,536. 0 means two per thread; up to 64 if a batch is made in a
    /// few microseconds, and `memory` is null.
    std::size_t prefetch = 0;
    /// No batch is begun while those in flight take this many bytes, as far as sizes are known
    /// ahead.
    std::uint64_t max_bytes_ahead = std::uint64_t{4} << 30;
    /// Largest size of an expanded field ("json.gz"); a larger one is bad. Each thread may need
    /// twice as many bytes for expanding.
    std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;
    /// Shards that each rank fetches into the data set's cache at once, ahead of reading. The ranks
    /// of a node share one cache, and each shard is fetched once. Ignored without a cache.
    unsigned fetch_threads = 2;
    /// Allocates the memory of batches, e.g. pinned or shared memory. Null means new and delete.
    std::shared_ptr<std::pmr::memory_resource> memory = nullptr;
  };

  /// Counts and times of a run, over all its epochs so far.
  ///
  /// Times of threads are summed over all threads. They are measured per claim, i.e. a few rows
  /// that a thread makes in one go. Rows of images, arrays and functions are timed one by one.
  /// Other rows share the time of their claim.
  struct SHARDWISE_EXPORT Stats {
    std::uint64_t batches = 0;      ///< handed out
    std::uint64_t samples = 0;      ///< in them
    std::uint64_t bad_samples = 0;  ///< left out of them
    std::uint64_t bytes_made = 0;   ///< of their arrays
    /// Bytes of the fields that columns read, including work ahead, but not those that functions
    /// read.
    std::uint64_t bytes_read = 0;

    std::chrono::nanoseconds planning{};  ///< orders, memory of batches, reading ahead
    std::chrono::nanoseconds opening{};   ///< of shards: fetch, expand, map, check
    std::chrono::nanoseconds reading{};   ///< samples and their bytes, including copies
    /// Decoding of images, videos and sounds, and expanding of compressed fields.
    std::chrono::nanoseconds decoding{};
    std::chrono::nanoseconds transforming{};  ///< images, videos
    std::chrono::nanoseconds functions{};     ///< functions of columns
    std::chrono::nanoseconds collating{};     ///< assembly of batches from rows
    std::chrono::nanoseconds idle{};          ///< threads without work

    /// Time of the consumer, from its first next() in each epoch to the one that returns nothing.
    std::chrono::nanoseconds elapsed{};
    /// Part of `elapsed` in next(): waiting for threads or, without threads, loading.
    std::chrono::nanoseconds waited{};
    std::uint64_t batches_ready = 0;  ///< for which next() did not wait
    double mean_ready = 0;            ///< average number of finished batches when next() was called

    /// Histogram of the time per sample, including work ahead: [0] counts below 1 us, [k] from 2^(k
    /// - 1) us to 2^k us, and the last all longer times.
    std::array<std::uint64_t, 32> sample_times{};
    std::chrono::nanoseconds slowest_time{};
    /// Shard and key of that sample. If samples share their time, it is the last of them.
    std::string slowest_sample{};

    /// Damage that image decoders accepted; see ImageDecoding::strict.
    struct Forgiven {
      /// The decoder's message with N for numbers, e.g. "JPEG: found marker 0xN instead of RSTN".
      std::string kind{};
      std::uint64_t images = 0;    ///< images with it, including work ahead
      std::string first_sample{};  ///< shard and key of the image with the lowest number
    };
    /// By kind, at most 32. Further kinds are counted as "others", at the end.
    std::vector<Forgiven> forgiven{};

    unsigned threads = 0;        ///< Options::threads
    unsigned fetch_threads = 0;  ///< Options::fetch_threads; 0 without a cache
    std::size_t prefetch = 0;    ///< Options::prefetch, or two per thread
    unsigned cores = 0;          ///< cores that this process may use

    /// Returns one line: what limits the run, and what to try. It depends only on the numbers
    /// above.
    ///
    ///     decode-bound: 2 threads at 97 %, 84 % of it decoding; the consumer waited 61 % of the
    ///     time; try threads = 4
    [[nodiscard]] std::string summary() const;
  };

  /// A range of batches, with number(), steps() and prove(); see epochs.h.
  using Epoch = detail::EpochRange<Loader>;
  /// A range of Epoch.
  using Epochs = detail::EpochsRange<Loader>;
  using Batch = shardwise::Batch;

  /// All ranks must pass the same data and the same options, except threads, prefetch,
  /// max_bytes_ahead, fetch_threads and memory. prove() and state() compare them. Code of functions
  /// in columns is not compared.
  /// @param data   a Dataset, or several for a mixture.
  /// @param ranks  null means this process alone. If the process was launched as one of several,
  ///   pass single_process() to say so.
  /// Errors: InvalidArgument, naming the option and what is valid. InvalidArgument if `ranks` is
  ///   null, and a launcher's variables (torchrun, mpirun, srun) name several ranks.
  Loader(MixedDataset data, Options options, std::shared_ptr<Reducer> ranks = nullptr);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Throws what the constructor would throw on one of `world_size` ranks.
  static void validate(const MixedDataset& data, const Options& options, std::uint64_t world_size);

  /// Returns the epochs from the current one up to, but excluding, `end`, by default without end.
  /// The current epoch is 0, or the one of restore(). `end` is the total number of epochs of the
  /// run, also after a resume or an earlier epochs().
  Epochs epochs(std::uint64_t end = std::numeric_limits<std::uint64_t>::max()) {
    return {*this, end};
  }
  /// The current epoch.
  Epoch epoch() { return {*this, epoch_number()}; }
  [[nodiscard]] std::uint64_t epoch_number() const noexcept;
  /// Moves to the beginning of an epoch, and drops batches made ahead. In the current epoch, unless
  /// its end was reached, it moves back to where the loader began, which may be the point of
  /// restore(). A loop over epochs may therefore call it after restore().
  void set_epoch(std::uint64_t epoch);

  /// Starts reading ahead now, instead of at the first next().
  void start();
  /// Waits for the next batch of the epoch and returns it, or nothing at the end.
  /// Errors: BadField, StaleIndex and others, naming shard and key. The loader then continues with
  ///   the following batch, but the epoch can no longer be proven. InvalidArgument if images of one
  ///   batch differ in size. Cancelled after stop().
  std::optional<Batch> next();
  /// Makes the current next(), and all later ones, throw Cancelled, until set_epoch() or restore().
  /// A next() that waits for a server ends within about a second. Other loaders of the same data
  /// are not affected. state() then covers the batches handed out before.
  /// Threads: any.
  void stop() noexcept;

  /// Proves that the batches of all ranks in this epoch contained exactly the samples of the order.
  /// With exact orders that is each sample exactly once. It also proves that each replica got all
  /// of them. Every rank must call it, after its last batch. Afterwards all ranks know the bad
  /// samples that any rank has left out.
  /// @return  "epoch 3: 20000 samples, each exactly once: proven", the same on all ranks.
  /// Errors: NotExact, on all ranks, naming missing and repeated samples; also if a rank has not
  ///   taken all its batches. Mismatch, on all ranks, naming the differences, if their data,
  ///   options, epoch or beginning differ. BadField if all ranks together found more than max_bad
  ///   bad samples. The errors of the Reducer.
  /// Cost: one small all-reduce (two with replicas); for orders that are not exact O(samples).
  std::string prove();

  /// Returns a token for the batches handed out so far. Call it when the last of them has been
  /// used. Every rank must call it, and all get the same token; save the token of one rank. At the
  /// end of an epoch it also proves the epoch, and the token stands at the beginning of the next.
  /// After an error in next(), the token stands before the batch that failed.
  /// Errors: Mismatch, on all ranks, if they differ as in prove(), or in the number of steps. At
  ///   the end of an epoch, those of prove(). NotExact if batches were handed out after one that
  ///   failed.
  /// Cost: see prove().
  ResumeToken state();
  /// Continues from the token, with any number of ranks and threads and any batch size. With
  /// kAllowAtEpochBorder, data or order may differ, too; see Sampler::resume().
  /// Errors: Mismatch, naming all differences of data set and order. Mismatch also if the token
  ///   stands within an epoch and state(), which stores the proof, did not make it. Mismatch also
  ///   if the token claims impossible deliveries. After an error the loader is unchanged.
  void restore(const ResumeToken& token, Sampler::Changes changes = Sampler::Changes::kRefuse);

  /// The bad samples that all ranks have left out, with reasons. Up to date after prove() and
  /// state().
  [[nodiscard]] const SkipList& bad_samples() const noexcept;

  /// Steps of the current epoch from its beginning, or from where it was resumed; equal on all
  /// ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// Steps of the current epoch that are left.
  [[nodiscard]] std::uint64_t steps_left() const noexcept;
  /// True if all steps of the current epoch were taken.
  [[nodiscard]] bool has_ended() const noexcept;
  /// Returns a warning for the user if the order uses more shards at one time than fit in the data
  /// set's cache, else nothing. Cost: O(chunks).
  [[nodiscard]] std::optional<std::string> cache_warning() const;
  /// Total time that next() has waited.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;
  /// Returns counts and times. Threads: any. Cost: locks a mutex.
  [[nodiscard]] Stats stats() const;

 private:
  friend struct detail::LoaderAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
