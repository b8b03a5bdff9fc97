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

/// Batches of a data set, of any columns, in exact epochs over the ranks of a run.
///
///     Loader loader(data, {.columns = {columns::bytes("jpg"), columns::integer("cls")},
///                          .order = {.seed = 17}, .batch_size = 64, .threads = 4});
///     for (auto epoch : loader.epochs(90)) {
///       for (const Batch& batch : epoch) step(model, batch);
///       epoch.prove();
///     }
///
/// Threads make the rows straight in the batches' memory; the rows of one batch are made by all of
/// them. What a batch holds depends on the data, the options, the epoch and the ranks, never on the
/// number of threads. All ranks get the same number of batches, so that collective calls in a step
/// meet; see Batch::size(). A batch's memory is used again when the batch is gone.
///
/// One thread uses a loader; only stop() and stats() may be called from others. It is not copied or
/// moved. Leaving a loop early, or destroying the loader, does not hang, even if a server does.
/// Samples count for the proof when their batch is handed out. Memory: (prefetch + 1) batches, and
/// what the columns need a thread; of local shards that are not in memory yet, the kernel is asked
/// to read 256 samples or 64 MiB further ahead. Errors: as next().
class SHARDWISE_EXPORT Loader {
 public:
  /// Batches of samples of similar length, so that little of a padded batch is padding.
  ///
  /// The order is cut into windows of `window` positions. The samples of a window are sorted by
  /// length and cut into batches, and these are shuffled. Ranks take turns at the batches, so a
  /// step's batches differ in length between ranks, and in the last step a rank may have none. The
  /// batches depend on order, lengths and rule alone: not on the ranks, nor on what is left out.
  /// Each sample still comes exactly once, and state() may be asked for after any step.
  /// docs/formats/length-batches.md specifies them (version 1).
  /// Cost: with max_tokens or pack, all lengths are looked up in the index, and sorted, when an
  /// epoch begins. Errors: InvalidArgument, NotFound (no such column, a field that no shard has)
  /// from the constructor.
  struct ByLength {
    /// A sample's length is the size in bytes of this field, divided by `unit` and rounded up.
    /// "a;b": of the first that the sample has. A sample that has none has length 0.
    std::string field{};
    /// Or the number in this metadata column, rounded up; then `unit` does not count.
    std::string column{};
    std::uint64_t unit = 1;  ///< bytes: 4 for the length of an int32 field in tokens
    /// Positions of the order that are sorted together. More: less padding, but samples from
    /// farther apart are read together. A multiple of batch_size wastes least.
    std::uint64_t window = 8192;
    /// 0: each batch has batch_size samples; the last of a window may have fewer. Otherwise as many
    /// samples, batch_size at most, as fit into so many tokens when all are padded to the longest.
    /// A longer sample comes alone.
    std::uint64_t max_tokens = 0;
    /// A ragged column of integers, a value for each token, whose sequences are packed into rows of
    /// `pack_to` tokens; empty: none. A batch then has batch_size such rows; 0 without a sample.
    /// Its array "x" is [batch_size, pack_to]; "x_segments" says which sequence of its row a token
    /// is of, from 1, 0: none; "x_positions" says where in its sequence it lies; both int32, of
    /// the same shape. A sequence that is longer than a row goes on in the next one. The other
    /// columns still have a row for each sample, in the order of their places.
    std::string pack{};
    std::uint64_t pack_to = 0;
    std::int64_t padding = 0;  ///< the value where there is no token, one of the column's type
  };

  /// Mixup and cutmix: each image of a batch is mixed with the one before it, the first with the
  /// last. One draw holds for the batch, a function of seed, epoch and the position of its first
  /// sample: the same for any number of threads and after a resume, with the same batch size and
  /// ranks. The arrays "x_lambda", float32 [N], and "x_partner", int64 [N], say how labels follow:
  ///
  ///     loss = lambda * f(output, label) + (1 - lambda) * f(output, label[partner])
  ///
  /// docs/formats/transforms.md specifies it.
  struct Mix {
    std::string column{};     ///< of images, all of one size; for mixup uint8 or float32
    double mixup_alpha = 0;   ///< of Beta(alpha, alpha); 0: no mixup
    double cutmix_alpha = 0;  ///< likewise; where both are set, half the batches get either
    double probability = 1;   ///< that a batch is mixed at all; lambda is 1 where not
  };

  struct Options {
    /// What is made of each sample: one array of the batches each. Names differ.
    std::vector<Column> columns{};
    /// The order of the samples, as on the command line.
    Order order{};
    /// Samples a step on each rank. With `world_size` ranks a step has batch_size * world_size.
    std::uint64_t batch_size = 32;
    /// Samples a step on all ranks together, instead; it need not divide by their number. 0: above.
    std::uint64_t global_batch_size = 0;
    /// Neighbouring ranks that get the same batches, as tensor and sequence parallel groups need
    /// them. It divides the number of ranks.
    std::uint64_t replicas = 1;
    /// Batches by length, instead of consecutive samples of the order. Not with global_batch_size,
    /// balanced bytes, another tail than Tail::kExact, or the order of wids.
    std::optional<ByLength> by_length{};
    /// Mixup and cutmix over the images of each batch.
    std::optional<Mix> mix{};
    /// Threads that make rows ahead, 1024 at most. 0: the work is done when a batch is asked for.
    unsigned threads = 2;
    /// Samples that may turn out bad (a field is missing, or cannot be decoded) in a run; one that
    /// goes on from a token counts anew. They are left out: their batches are smaller, the proof
    /// expects it, tokens list them with the reason, and later epochs do without them. One more is
    /// an error, as is the first by default, and a run whose first 100, or an epoch's, are all bad.
    std::uint64_t max_bad = 0;
    /// Batches in flight at most, up to 65,536. 0: two a thread.
    std::size_t prefetch = 0;
    /// No batch is begun while those in flight take this many bytes, as far as it is known ahead.
    std::uint64_t max_bytes_ahead = std::uint64_t{4} << 30;
    /// A compressed field ("json.gz") that expands to more bytes is bad. Each thread may hold up to
    /// twice as many for it.
    std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;
    /// Where the dataset has a shard cache: shards that are fetched into it ahead at once, by each
    /// rank. The ranks of a node share one cache, and each shard is fetched once.
    unsigned fetch_threads = 2;
    /// Where the memory of batches comes from; none: new and delete. For pinned or shared memory.
    std::shared_ptr<std::pmr::memory_resource> memory = nullptr;
  };

  /// What a run did so far, in all its epochs, and where its time went.
  ///
  /// Times of threads are sums over all of them, and are taken a claim: some rows that one thread
  /// makes in a go, of some 30 us or of one row. Rows of images, arrays and functions are timed one
  /// by one; others share their claim's time.
  struct SHARDWISE_EXPORT Stats {
    std::uint64_t batches = 0;      ///< that were handed out
    std::uint64_t samples = 0;      ///< in them
    std::uint64_t bad_samples = 0;  ///< left out of them
    std::uint64_t bytes_made = 0;   ///< of their arrays
    /// Of the fields that columns read, also ahead; not those that functions read.
    std::uint64_t bytes_read = 0;

    std::chrono::nanoseconds planning{};  ///< orders, memory of batches, reading ahead
    std::chrono::nanoseconds opening{};   ///< shards: fetched, unpacked, mapped, checked
    std::chrono::nanoseconds reading{};   ///< samples and their bytes, copies among it
    /// Images, videos, sounds, and compressed fields that are expanded.
    std::chrono::nanoseconds decoding{};
    std::chrono::nanoseconds transforming{};  ///< images, videos
    std::chrono::nanoseconds functions{};     ///< those of function columns
    std::chrono::nanoseconds collating{};     ///< batches of rows that were made
    std::chrono::nanoseconds idle{};          ///< threads that had nothing to do

    /// Of the consumer, from its first next() in each epoch to the one that says it has ended.
    std::chrono::nanoseconds elapsed{};
    /// Of that, in next(): waiting for the threads, or without threads loading.
    std::chrono::nanoseconds waited{};
    std::uint64_t batches_ready = 0;  ///< that next() did not wait for
    double mean_ready = 0;            ///< batches that were made when next() came

    /// Samples that were made, also ahead, by the time of each: [0] of less than 1 us, [k] of
    /// 2^(k - 1) us to 2^k us, the last of more, too.
    std::array<std::uint64_t, 32> sample_times{};
    std::chrono::nanoseconds slowest_time{};
    /// That sample's shard and key; where samples share their time, the last of those that did.
    std::string slowest_sample{};

    /// Damage that decoders of images forgave; see ImageDecoding::strict.
    struct Forgiven {
      /// In the decoder's words, with N for numbers: "JPEG: found marker 0xN instead of RSTN".
      std::string kind{};
      std::uint64_t images = 0;    ///< that had it, also ahead
      std::string first_sample{};  ///< shard and key of the one with the least number
    };
    /// By kind, 32 at most; what is of other kinds is counted as "others", at the end.
    std::vector<Forgiven> forgiven{};

    unsigned threads = 0;        ///< as the options say
    unsigned fetch_threads = 0;  ///< likewise; 0 without a cache
    std::size_t prefetch = 0;    ///< batches in flight at most
    unsigned cores = 0;          ///< that this process may use

    /// One line: what limits the run, and what to try. A function of the numbers above.
    ///
    ///     decode-bound: 2 threads at 97 %, 84 % of it decoding; the consumer waited 61 % of the
    ///     time; try threads = 4
    [[nodiscard]] std::string summary() const;
  };

  /// A range of batches, with number(), steps() and prove(); see epochs.h.
  using Epoch = detail::EpochRange<Loader>;
  /// A range of those.
  using Epochs = detail::EpochsRange<Loader>;
  using Batch = shardwise::Batch;

  /// Every rank gives the same data, a Dataset or several of them for a mixture, and the same
  /// options but for threads, prefetch, max_bytes_ahead, fetch_threads and memory. prove() and
  /// state() compare them. What functions of columns do is not compared.
  /// @param ranks  null means: this process alone. Give single_process() to say so in a process
  ///   that was launched as one of several.
  /// Errors: InvalidArgument, naming the option and what is valid; also if there are no ranks, and
  ///   a launcher's variables (torchrun, mpirun, srun) say that there are several.
  Loader(MixedDataset data, Options options, std::shared_ptr<Reducer> ranks = nullptr);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Throws what the constructor would for one of `world_size` ranks.
  static void validate(const MixedDataset& data, const Options& options, std::uint64_t world_size);

  /// The epochs from the current one, 0 or where restore() left it, to `end`, without `end`: the
  /// total number of epochs of a run, also of one that is resumed, or goes on after an earlier
  /// epochs(). Without `end`: for ever.
  Epochs epochs(std::uint64_t end = std::numeric_limits<std::uint64_t>::max()) {
    return {*this, end};
  }
  /// The current epoch.
  Epoch epoch() { return {*this, epoch_number()}; }
  [[nodiscard]] std::uint64_t epoch_number() const noexcept;
  /// Moves to the beginning of an epoch; what was made ahead is dropped. In the current epoch,
  /// unless its end was reached, it moves back to where the loader began: where restore() put it,
  /// if that was called. So a loop over epochs may call it after restore().
  void set_epoch(std::uint64_t epoch);

  /// Starts to read ahead now, and not with the first batch that is asked for.
  void start();
  /// The next batch of the epoch, or nothing at its end. Waits for it.
  /// Errors: BadField, StaleIndex and others, naming shard and key; the loader then goes on with
  ///         the batch after it, but the epoch cannot be proven any more. InvalidArgument if images
  ///         of one batch differ in size. Cancelled after stop().
  std::optional<Batch> next();
  /// Ends a next() that waits, and all later ones, with Cancelled, until set_epoch() or restore();
  /// within about a second also one that waits for a server. Other loaders of the same data go on.
  /// state() stands behind the batches that were handed out before. Any thread.
  void stop() noexcept;

  /// Proves, with all ranks, that their batches of this epoch held exactly the samples that the
  /// order promises: with the exact orders each sample exactly once, otherwise as ordered; and that
  /// each replica got all of them. Every rank must call it, after its last batch. Afterwards all
  /// ranks know the bad samples that any rank has left out.
  /// @return  "epoch 3: 20000 samples, each exactly once: proven", the same on all ranks.
  /// Errors: NotExact, on all ranks, with what is missing or came twice; also when a rank has not
  ///         taken all its batches. Mismatch, on all ranks, naming what differs, if they have not
  ///         the same data, options, epoch and beginning. BadField if all ranks together found more
  ///         than max_bad bad samples. Those of the Reducer.
  /// Cost:   one small all-reduce (two with replicas); orders that are not exact 20 ns a sample.
  std::string prove();

  /// Where the run stands after the batches that were handed out: call it when the last of them has
  /// been used. Every rank must call it, and gets the same token; save that of one. At the end of
  /// an epoch, the epoch is proven, and the token stands at the beginning of the next. If next()
  /// failed last, the token stands before the batch that could not be made.
  /// Errors: Mismatch, on all ranks, if they differ as prove() says, or in the steps taken; as
  ///         prove(), at the end of an epoch; NotExact if batches were handed out behind one that
  ///         could not be made. Cost: as prove().
  ResumeToken state();
  /// Goes on where the token stands, with any number of ranks, batch size and number of threads.
  /// With kAllowAtEpochBorder also with other data or another order; see Sampler::resume.
  /// Errors: Mismatch, naming all that differs in data set and order; also if the token stands
  ///         within an epoch and was not made by state(), which keeps the proof, or if what it says
  ///         was delivered cannot be. The loader stays as it is.
  void restore(const ResumeToken& token, Sampler::Changes changes = Sampler::Changes::kRefuse);

  /// The samples that all ranks left out because they were bad, with the reasons; known after
  /// prove() and state().
  [[nodiscard]] const SkipList& bad_samples() const noexcept;

  /// Steps of the current epoch from where it began, or was resumed, the same on all ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// Steps of it that are left.
  [[nodiscard]] std::uint64_t steps_left() const noexcept;
  /// Whether all its steps were taken.
  [[nodiscard]] bool has_ended() const noexcept;
  /// What to tell the user if the order uses more shards at one time than the data set's cache may
  /// hold. Cost: some ms for a large index.
  [[nodiscard]] std::optional<std::string> cache_warning() const;
  /// How long next() has waited in total.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;
  /// What limits the run; see Stats. Any thread. Cost: a lock.
  [[nodiscard]] Stats stats() const;

 private:
  friend struct detail::LoaderAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
