#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fork.h"
#include "data/field_sizes.h"
#include "data/read_frontier.h"
#include "loader/batch_builder.h"
#include "loader/buffer_pool.h"
#include "loader/load_meter.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// A sample that was left out of its batch.
struct BadRow {
  std::uint64_t sample = 0;
  std::uint64_t position = 0;
  std::string reason;
};

/// The content of one batch. The sampler decides the contents of batches, in order. Any thread can
/// then make a batch.
struct BatchPlan {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> positions;
  // Packed batches only: start and length of each sample's sequence.
  std::vector<std::uint64_t> starts{};
  std::vector<std::uint64_t> lengths{};
  std::size_t group = 0;  ///< batches by group only: number of the group
};

struct MadeBatch {
  Batch batch;
  std::vector<BadRow> bad{};  ///< with their positions in the plan
};

struct EngineOptions {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  /// Threads that make rows. 0 means that the consumer makes them, in next().
  unsigned threads = 2;
  /// Limit of batches in flight: those being made, and those ready but not yet taken.
  std::size_t max_batches = 4;
  /// A larger limit for batches that are made in a few microseconds.
  std::size_t max_quick_batches = 0;
  /// The engine begins no batch while the batches in flight take this many bytes, as far as known.
  std::uint64_t max_bytes = std::uint64_t{1} << 32;
  std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;  ///< limit for a decompressed field
  bool skip_bad = false;  ///< leave out bad samples instead of failing
  /// Called when rows have been read, with the number of planned rows before the first row that is
  /// not yet read. A cache may then evict shards. May be empty.
  /// Threads: any; calls may come out of order.
  std::function<void(std::uint64_t num_rows)> note_read{};
  bool has_repeated_samples = false;  ///< a sample may occur twice, so only positions identify rows
  /// Completes a batch once its rows are made. Runs in the thread that made the last row. May be
  /// empty.
  std::function<void(Batch&, const BatchPlan&)> finish{};
};

/// Makes the batches of plans, row by row, with several threads, and delivers them in order.
///
/// Threads: one consumer calls next(); any thread may call stop().
/// Errors: if a row of a batch fails, next() throws the error of the first such row, and the next
///   call continues with the next batch. If the source throws, next() throws that error after the
///   earlier batches, and so does every later call.
/// Processes: the threads belong to the process that made the engine. In a forked child only stop()
///   and the destructor are safe if the engine has threads.
class Engine {
 public:
  /// Returns the plans, in order, and nothing at the end. Called by one thread at a time.
  using Source = std::function<std::optional<BatchPlan>()>;

  /// @param columns  the columns for each group of batches, by group number. Groups differ only in
  /// the sizes of their rows.
  Engine(MixedDataset data, std::vector<std::vector<Column>> columns,
         std::shared_ptr<BufferPool> pool, Source source, EngineOptions options,
         std::shared_ptr<LoadMeter> meter);
  /// Stops, and waits for the threads.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Waits for the next batch, and returns it. Returns nothing at the end, and after stop().
  /// @param since  when the consumer began to wait, if before this call.
  std::optional<MadeBatch> next(std::optional<LoadMeter::Clock::time_point> since = {});
  /// Waits until next() need not wait, for `time` at most. Returns whether next() need not wait.
  /// Without threads this makes the batch, however long that takes.
  bool wait(std::chrono::nanoseconds time);
  /// Records that the consumer requests no more batches, and counts its time since the last batch.
  /// Idempotent.
  void note_end();

  /// Ends the threads after their current rows. A thread that waits for storage ends within about a
  /// second. From now on next() returns nothing. Idempotent.
  void stop() noexcept;

  /// Total time that the consumer has waited for the threads. Threads: the consumer's.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  struct Work;
  /// Rows of a batch that one thread makes.
  struct Claim {
    Work* work = nullptr;  // nullptr if no rows are left
    std::size_t first = 0;
    std::size_t last = 0;
    ReadFrontier::Part reading{};
  };

  void run(unsigned thread) noexcept;
  /// Removes and returns the front batch, which is ready. Returns nothing at the end.
  std::optional<MadeBatch> take_front();
  void make_first();
  void note_answer(LoadMeter::Clock::time_point asked, std::size_t ready, bool had_answer);
  Claim wait_for_claim();
  std::optional<Claim> claim_or_plan(std::chrono::nanoseconds& idle);
  [[nodiscard]] Claim next_claim() SHARDWISE_REQUIRES(mutex_);
  [[nodiscard]] bool may_plan() const SHARDWISE_REQUIRES(mutex_);
  /// Whether the batches in flight are made in less time than a thread takes to wake.
  [[nodiscard]] bool is_quick() const SHARDWISE_REQUIRES(mutex_);
  [[nodiscard]] std::size_t max_batches() const SHARDWISE_REQUIRES(mutex_);
  [[nodiscard]] bool has_answer() const SHARDWISE_REQUIRES(mutex_);
  /// Called when the consumer takes a batch.
  void adapt_workers() SHARDWISE_REQUIRES(mutex_);
  void use_all_workers() SHARDWISE_REQUIRES(mutex_);
  void plan_one() noexcept;
  void end_source(std::exception_ptr error) noexcept;
  void prepare(Work& work);
  [[nodiscard]] std::vector<std::int64_t> shape_like_first(const Work& work,
                                                           const ColumnMaker& maker) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> shape_of(std::uint64_t number,
                                                                  const ColumnMaker& maker,
                                                                  bool may_leave_out) const;
  [[nodiscard]] bool can_be_made(std::uint64_t number, const ColumnMaker& maker,
                                 const std::vector<std::int64_t>& shape) const;
  template <class Found, class Find>
  [[nodiscard]] std::vector<Found> find_in_index(const Work& work, const Find& find) const;
  [[nodiscard]] std::vector<FieldPlace> find_fields(const Work& work,
                                                    const ColumnMaker& maker) const;
  void take_sizes(Work& work, std::size_t column);

  void make_rows(Claim& claim);
  [[nodiscard]] std::size_t make_from_fields(const Claim& claim, StageTimes& times) const;
  void make_from_samples(Claim& claim, std::size_t from_fields, StageTimes& times);
  [[nodiscard]] bool may_make(const Work& work, std::size_t row) const noexcept;
  [[nodiscard]] bool make_run(Work& work, std::size_t first, std::span<const Sample> run,
                              StageTimes& times) const;
  void make_row(Work& work, std::size_t row, const Sample& sample, bool has_fields,
                StageTimes& times);
  void note_slowest(std::chrono::nanoseconds time, const Sample* sample);
  void note_slowest(std::chrono::nanoseconds time, std::uint64_t number);
  void fail(Work& work, std::size_t row, std::exception_ptr error);
  void finish(const Claim& claim);
  void close_up(Work& work) const;
  /// True if `error` is about the contents of a sample, not about its shard, the disk or options.
  [[nodiscard]] static bool is_bad_sample(const Error& error) noexcept;
  [[nodiscard]] RowInput input_of(const Sample& sample, std::uint64_t number) const;
  [[nodiscard]] RowInput input_of(const Sample& sample, const Work& work, std::size_t row) const;
  [[nodiscard]] Sample sample_of(std::uint64_t number) const;

  const MixedDataset data_;
  const std::vector<std::vector<Column>> columns_;  // by group
  const std::shared_ptr<BufferPool> pool_;
  const Source source_;
  const EngineOptions options_;
  const std::shared_ptr<LoadMeter> meter_;
  const bool times_rows_;     // whether each row is timed
  const bool uses_fields_;    // whether columns use make_from_fields() if possible
  const bool needs_samples_;  // whether a column cannot be made from fields
  const bool makes_runs_;     // whether the other columns make several rows per call
  // Fields of which all columns read only parts.
  const std::vector<std::string> in_parts_;
  std::vector<FieldSizes> sizes_;  // field sizes of each part of data_
  bool claims_batches_ = false;    // whether a thread claims all rows of a batch
  ReadFrontier frontier_;          // counts the rows that were read, over all plans

  Mutex mutex_;
  Condition work_there_;  // signals threads: rows to claim, a plan to make, or the end
  Condition ready_;       // signals the consumer: a batch is ready, or the end
  // Sorted by plan. The first `claimed_` works have no unclaimed rows.
  std::deque<std::unique_ptr<Work>> works_ SHARDWISE_GUARDED_BY(mutex_);
  std::size_t claimed_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::size_t last_rows_ SHARDWISE_GUARDED_BY(mutex_) = 1;  // of the batch planned last
  std::uint64_t rows_planned_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ahead_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::size_t num_ready_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // number of ready works in works_
  bool planning_ SHARDWISE_GUARDED_BY(mutex_) = false;      // a thread is in plan_one()
  bool source_ended_ SHARDWISE_GUARDED_BY(mutex_) = false;
  std::exception_ptr end_error_ SHARDWISE_GUARDED_BY(mutex_);
  std::size_t workers_ SHARDWISE_GUARDED_BY(mutex_);  // limit of threads that work at a time
  std::size_t awake_ SHARDWISE_GUARDED_BY(mutex_);    // threads that do not wait for work
  CancelToken::Flag stopping_{false};  // written under mutex_; checked by waits for storage
  std::atomic<std::size_t> claim_rows_{1};
  std::chrono::nanoseconds waited_{};                     // the consumer's total time of waiting
  std::optional<LoadMeter::Clock::time_point> answered_;  // when the consumer got its last batch
  WorkerThreads threads_;
};

}  // namespace shardwise::detail
