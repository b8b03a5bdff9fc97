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
/// match; see Batch::size(). The proof counts samples when next() returns their batch. Leaving a
/// loop early, or destroying the loader, does not wait for servers that hang.
///
/// Threads: use a loader from one thread; only stop() and stats() may be called from others. The
///   loader's own threads make all rows of a batch directly in the batch's memory.
/// Lifetime: the memory of a batch is reused after the batch is destroyed.
/// Memory: (prefetch + 1) batches, and the needs of the columns per thread. For local shards
///   outside the page cache, the loader asks the kernel to read 256 samples or 64 MiB ahead.
/// Errors: see next().
class SHARDWISE_EXPORT Loader {
 public:
  /// Puts samples of similar length into each batch, so that padded batches contain little padding.
  ///
  /// The order is divided into windows of `window` positions. The samples of a window are sorted by
  /// length and divided into batches, and the batches are shuffled. The batches are assigned to the
  /// ranks in turn, so lengths differ between the ranks of one step. In the last step a rank may
  /// have no batch.
  ///
  /// Batches depend only on the order, the lengths and this rule, not on ranks or on samples left
  /// out. Each sample is still delivered exactly once, and state() may be called after any step.
  /// docs/formats/length-batches.md specifies the rule (version 1).
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
    /// The metadata column whose number, rounded up, is the length of a sample. Set either `field`
    /// or `column`. With `column`, `unit` is ignored.
    std::string column{};
    std::uint64_t unit = 1;  ///< in bytes, e.g. 4 to count the tokens of an int32 field
    /// Number of consecutive positions of the order that are sorted together. A larger window needs
    /// less padding, but its samples are farther apart in the shards. Multiples of batch_size make
    /// the fewest incomplete batches.
    std::uint64_t window = 8192;
    /// Largest number of tokens in a batch, counted as if all samples were padded to the longest. A
    /// batch has as many samples as fit, at most batch_size. A sample with more than max_tokens is
    /// delivered alone. 0 means that each batch has batch_size samples, or fewer at the end of a
    /// window.
    std::uint64_t max_tokens = 0;
    /// The ragged column of integers, one per token, whose sequences are packed into rows of
    /// `pack_to` tokens. Empty means no packing. With packing, a batch has batch_size rows, or none
    /// if it has no samples. A sequence that is longer than a row continues in the next one.
    ///
    /// For a column "x" these arrays have the shape [batch_size, pack_to]:
    /// - "x": the tokens;
    /// - "x_segments", int32: the sequence of the row to which a token belongs, from 1; 0 for
    ///   padding;
    /// - "x_positions", int32: the position of a token in its sequence.
    /// Other columns have one row for each sample, in the order of the sequences in "x".
    std::string pack{};
    std::uint64_t pack_to = 0;
    std::int64_t padding = 0;  ///< the value that fills padding, in the column's type
  };

  /// Puts samples of one group into each batch, e.g. pictures of one class of aspect ratios, so
  /// that batches have no padding. Each group has its own batch size and its own picture size.
  ///
  /// An SQL expression gives the group of each sample. The samples of each window of the order are
  /// divided by group and cut into batches, and the batches of all groups are shuffled together.
  /// Batches are assigned to ranks as with ByLength. Each sample is delivered exactly once, and
  /// state() may be called after any step. If ByLength is also set, the samples of a group are
  /// sorted by length, and max_tokens also limits a batch. Both windows must then be equal.
  /// docs/formats/length-batches.md specifies the rule (version 1).
  ///
  /// Memory: 2 bytes per sample.
  /// Cost: the constructor evaluates the expression for each sample. When an epoch begins or is
  ///   resumed, all groups are looked up and the batches are counted.
  /// Errors: the constructor throws InvalidArgument, e.g. if a sample belongs to no group.
  struct ByGroup {
    struct Group {
      /// The value of the expression, as text: an integer in decimal digits, a real number as
      /// SQLite's CAST gives it.
      std::string key{};
      std::uint64_t batch_size = 0;  ///< 0 means: use Options::batch_size
      /// The size of the group's pictures, for columns with ImageTransform::Size::by_group().
      ImageTransform::Size size{};
    };
    /// The rule for samples of a group that fill no batch at the end of a window.
    enum class Leftovers : std::uint8_t {
      /// They are the first of their group in the next window. The epoch's last window delivers
      /// them in a smaller batch. Only one batch of each group may be smaller in an epoch.
      kHoldOver,
      kSmallerBatch  ///< they are delivered in a smaller batch of their window
    };
    /// An SQL expression over the table `samples` of Query, e.g. the name of a metadata column, or
    /// "CASE WHEN width > height THEN 'wide' ELSE 'tall' END".
    std::string expression{};
    /// The groups. Empty means one group for each value that occurs, sorted by key.
    std::vector<Group> groups{};
    std::uint64_t window = 8192;  ///< number of consecutive positions, see ByLength
    Leftovers leftovers = Leftovers::kHoldOver;
  };

  /// Mixup and cutmix: each image of a batch is mixed with the image before it, and the first with
  /// the last. One random draw applies to the whole batch. It depends on seed, epoch and the
  /// position of the batch's first sample. The number of threads does not change it, and neither
  /// does a resume with the same batch size and ranks.
  ///
  /// For a column "x", the arrays "x_lambda", float32 [N], and "x_partner", int64 [N], state how to
  /// mix the labels:
  ///
  ///     loss = lambda * f(output, label) + (1 - lambda) * f(output, label[partner])
  ///
  /// docs/formats/transforms.md specifies mixup and cutmix.
  struct Mix {
    std::string column{};     ///< the column of the images, all of one size; for mixup uint8 or
                              ///< float32
    double mixup_alpha = 0;   ///< of Beta(alpha, alpha); 0 means no mixup
    double cutmix_alpha = 0;  ///< of Beta(alpha, alpha); 0 means no cutmix. If both are set, each
                              ///< applies to half of the batches
    double probability = 1;   ///< probability that a batch is mixed; lambda is 1 if it is not mixed
  };

  struct Options {
    /// Arrays to make from each sample, one per column. Names must differ.
    std::vector<Column> columns{};
    /// The order of the samples. The command line has the same options.
    Order order{};
    /// Samples per step on each rank. A step of W ranks has batch_size * W samples.
    std::uint64_t batch_size = 32;
    /// Samples per step over all ranks. It need not be divisible by the number of ranks. 0 means:
    /// use batch_size.
    std::uint64_t global_batch_size = 0;
    /// Number of consecutive ranks that get the same batches, e.g. a tensor or sequence parallel
    /// group. It must divide the number of ranks.
    std::uint64_t replicas = 1;
    /// Make batches by length, instead of from consecutive samples of the order. Not possible with
    /// global_batch_size, balanced bytes, a tail other than Tail::kExact, or the order of wids.
    std::optional<ByLength> by_length{};
    /// Make batches by group. Not possible with packing, or options that exclude by_length.
    std::optional<ByGroup> by_group{};
    /// Apply mixup and cutmix to the images of each batch.
    std::optional<Mix> mix{};
    /// Number of threads that make rows ahead, at most 1024. With 0, next() makes the rows itself.
    /// Fewer threads work while the consumer is slower than they are.
    unsigned threads = 2;
    /// Largest number of bad samples that a run leaves out instead of throwing. A sample is bad if
    /// a field is missing or cannot be decoded. A run that resumes from a token counts from 0
    /// again. Not possible with the order of wids.
    ///
    /// A batch with bad samples is smaller. The proof accounts for bad samples, tokens list them
    /// with the reason, and later epochs omit them. More than max_bad bad samples are an error. It
    /// is also an error if the first 100 samples of the run, or of an epoch, are all bad.
    std::uint64_t max_bad = 0;
    /// Number of batches that are made ahead, at most 65,536. 0 means two per thread, or up to 64
    /// if a batch takes only microseconds and `memory` is null.
    std::size_t prefetch = 0;
    /// Limit on the bytes of batches that are made ahead: no further batch is begun while they take
    /// this many. Only sizes that are known before decoding count.
    std::uint64_t max_bytes_ahead = std::uint64_t{4} << 30;
    /// Largest size of an expanded field (e.g. "json.gz"). A larger field is bad. Each thread may
    /// need twice as many bytes for expanding.
    std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;
    /// Number of shards that each rank fetches concurrently into the data set's cache, before they
    /// are read. The ranks of a node share one cache, which fetches each shard once. Ignored
    /// without a cache.
    unsigned fetch_threads = 2;
    /// Allocates the memory of batches, e.g. pinned or shared memory. Null means new and delete.
    std::shared_ptr<std::pmr::memory_resource> memory = nullptr;
  };

  /// Counts and times of a run, over all its epochs so far.
  ///
  /// Times of threads are summed over all threads. A thread makes a few rows at a time, called a
  /// claim. Rows of images, arrays and functions are timed one by one. For other rows only the time
  /// of the whole claim is measured, and divided among its rows.
  struct SHARDWISE_EXPORT Stats {
    std::uint64_t batches = 0;      ///< returned by next()
    std::uint64_t samples = 0;      ///< in these batches
    std::uint64_t bad_samples = 0;  ///< left out of these batches
    std::uint64_t bytes_made = 0;   ///< of the arrays of these batches
    /// Bytes of the fields that columns read, including batches made ahead. Fields that functions
    /// read do not count.
    std::uint64_t bytes_read = 0;

    std::chrono::nanoseconds planning{};  ///< computing orders, allocating batches, reading ahead
    std::chrono::nanoseconds opening{};   ///< opening shards: fetch, expand, map, check
    std::chrono::nanoseconds reading{};   ///< reading samples and their bytes, including copies
    /// Decoding of images, videos and sounds, and expanding of compressed fields.
    std::chrono::nanoseconds decoding{};
    std::chrono::nanoseconds transforming{};  ///< transforming images and videos
    std::chrono::nanoseconds functions{};     ///< calls of functions of columns
    std::chrono::nanoseconds collating{};     ///< assembly of batches from rows
    std::chrono::nanoseconds idle{};          ///< threads waiting for work

    /// Time of the consumer, from the first next() of each epoch to the next() that returns
    /// nothing.
    std::chrono::nanoseconds elapsed{};
    /// The part of `elapsed` spent in next(): waiting for threads or, without threads, loading.
    std::chrono::nanoseconds waited{};
    std::uint64_t batches_ready = 0;  ///< batches for which next() did not wait
    double mean_ready = 0;            ///< average number of finished batches when next() was called

    /// Histogram of the time per sample, including batches made ahead. Element 0 counts times below
    /// 1 us, element k times from 2^(k-1) us to 2^k us, and the last element all longer times.
    std::array<std::uint64_t, 32> sample_times{};
    std::chrono::nanoseconds slowest_time{};
    /// Shard and key of the slowest sample. If the rows of a claim share their time, this is the
    /// last sample of the claim.
    std::string slowest_sample{};

    /// Damage that image decoders accepted; see ImageDecoding::strict.
    struct Forgiven {
      /// The decoder's message with N for numbers, e.g. "JPEG: found marker 0xN instead of RSTN".
      std::string kind{};
      std::uint64_t images = 0;    ///< images with this damage, including batches made ahead
      std::string first_sample{};  ///< shard and key of the image with the lowest number
    };
    /// At most 32 kinds. Further kinds are counted together as the last kind, "others".
    std::vector<Forgiven> forgiven{};

    unsigned threads = 0;        ///< Options::threads
    unsigned fetch_threads = 0;  ///< Options::fetch_threads; 0 without a cache
    std::size_t prefetch = 0;    ///< Options::prefetch, or two per thread
    unsigned cores = 0;          ///< cores that this process may use

    /// Returns one line that states what limits the run, and what to try. It depends only on the
    /// members of this struct.
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
  /// @param ranks  null means this process alone. If a launcher started several processes, but each
  ///   is to load alone, pass single_process().
  /// Errors: InvalidArgument, naming the option and what is valid. InvalidArgument also if `ranks`
  ///   is null and the environment variables of a launcher (torchrun, mpirun, srun) state several
  ///   ranks.
  Loader(MixedDataset data, Options options, std::shared_ptr<Reducer> ranks = nullptr);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Throws what the constructor would throw on one of `world_size` ranks.
  static void validate(const MixedDataset& data, const Options& options, std::uint64_t world_size);

  /// Returns the epochs from the current one up to, but excluding, `end`; by default without end.
  /// The current epoch is 0, or the epoch of restore(). `end` is the total number of epochs of the
  /// run, even after a resume or an earlier epochs().
  Epochs epochs(std::uint64_t end = std::numeric_limits<std::uint64_t>::max()) {
    return {*this, end};
  }
  /// The current epoch.
  Epoch epoch() { return {*this, epoch_number()}; }
  [[nodiscard]] std::uint64_t epoch_number() const noexcept;
  /// Moves to the beginning of an epoch, and drops batches made ahead. If `epoch` is the current
  /// epoch and its end was not reached, moves back to the point where the loader began it. This may
  /// be the point of restore(), so a loop over epochs may call set_epoch() after restore().
  void set_epoch(std::uint64_t epoch);

  /// Starts reading ahead now, instead of at the first next().
  void start();
  /// Waits for the next batch of the epoch and returns it, or nothing at the end.
  /// Errors: BadField, StaleIndex and others, naming shard and key. The loader then continues with
  ///   the following batch, but the epoch can no longer be proven. InvalidArgument if images of one
  ///   batch differ in size. Cancelled after stop().
  std::optional<Batch> next();
  /// Makes the current and all later calls of next() throw Cancelled, until set_epoch() or
  /// restore(). A next() that waits for a server ends within about a second. Other loaders of the
  /// same data are not affected. state() then covers the batches that next() returned before.
  /// Threads: any.
  void stop() noexcept;

  /// Proves that the batches of all ranks in this epoch contained exactly the samples of the order.
  /// With exact orders this means each sample exactly once. It also proves that each replica got
  /// all samples. Every rank must call it, after its last batch. Afterwards bad_samples() is
  /// complete on all ranks.
  /// @return  "epoch 3: 20,000 samples, each exactly once: proven", the same on all ranks.
  /// Errors: NotExact, on all ranks, naming missing and repeated samples; also if a rank has not
  ///   taken all its batches. Mismatch, on all ranks, naming the differences, if data, options,
  ///   epoch or starting point differ between ranks. BadField if all ranks together found more than
  ///   max_bad bad samples. The errors of the Reducer.
  /// Cost: one small all-reduce (two with replicas). For orders that are not exact, also
  ///   O(samples).
  std::string prove();

  /// Returns a token for the batches that next() returned so far. Call it when the last of these
  /// batches has been used. Every rank must call it, and all get the same token; save the token of
  /// one rank. At the end of an epoch it also proves the epoch, and the token is for the beginning
  /// of the next epoch. After an error in next(), the token is for the point before the batch that
  /// failed.
  /// Errors: Mismatch, on all ranks, if the ranks differ as in prove(), or in the number of steps.
  ///   At the end of an epoch, the errors of prove(). NotExact if next() returned further batches
  ///   after a batch that failed.
  /// Cost: see prove().
  ResumeToken state();
  /// Continues from the token, with any number of ranks and threads and any batch size. With
  /// kAllowAtEpochBorder, data and order may also differ; see Sampler::resume().
  /// Errors: Mismatch, naming all differences of data set and order. Mismatch also if the token is
  ///   for a point within an epoch but lacks the sum of the proof, which only state() stores.
  ///   Mismatch also if the token's number of deliveries contradicts its position. After an error
  ///   the loader is unchanged.
  void restore(const ResumeToken& token, Sampler::Changes changes = Sampler::Changes::kRefuse);

  /// The bad samples that all ranks have left out, with reasons. It is complete after prove() and
  /// state().
  [[nodiscard]] const SkipList& bad_samples() const noexcept;

  /// Number of steps of the current epoch from its beginning, or from the point of resumption;
  /// equal on all ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// Steps of the current epoch that are left.
  [[nodiscard]] std::uint64_t steps_left() const noexcept;
  /// True if all steps of the current epoch were taken.
  [[nodiscard]] bool has_ended() const noexcept;
  /// Returns a warning for the user if the order uses more shards at one time than fit in the data
  /// set's cache. Otherwise returns nothing. Cost: O(chunks).
  [[nodiscard]] std::optional<std::string> cache_warning() const;
  /// Returns shared_stream_warning() for the loader's order.
  [[nodiscard]] std::optional<std::string> stream_warning() const;
  /// Total time that next() has waited for batches.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;
  /// Returns counts and times. Threads: any. Cost: locks a mutex.
  [[nodiscard]] Stats stats() const;

 private:
  friend struct detail::LoaderAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
