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

/// The content of one batch: decided in order by a sampler, made by any thread.
struct BatchPlan {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> positions;
  // Of packed batches only: where each sample's sequence begins, and how long it is.
  std::vector<std::uint64_t> starts{};
  std::vector<std::uint64_t> lengths{};
};

struct MadeBatch {
  Batch batch;
  std::vector<BadRow> bad{};  ///< by position in the plan
};

struct EngineOptions {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  /// Threads that make rows. 0: none; the work is done in next(), by the consumer.
  unsigned threads = 2;
  /// Batches in flight at most: being made, or made and not yet taken.
  std::size_t max_batches = 4;
  /// No more is begun while those in flight take this much memory, as far as it is known.
  std::uint64_t max_bytes = std::uint64_t{1} << 32;
  std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;  ///< of a compressed field
  bool skip_bad = false;  ///< leave bad samples out, instead of failing
  /// Told how many of all planned rows have been read, from the first on, that read shards may
  /// leave a cache; or nothing. Called by any thread; calls may overtake each other.
  std::function<void(std::uint64_t num_rows)> note_read{};
  bool has_repeated_samples = false;  ///< a sample may come twice: rows are told apart by position
  /// What becomes of a batch when its rows are made, by whichever thread made the last; or nothing.
  std::function<void(Batch&, const BatchPlan&)> finish{};
};

/// Makes the batches of plans, row by row, by several threads, and delivers them in order.
///
/// Threads: next() is for one consumer; stop() any thread.
/// Errors: what a row throws is thrown by next() in its batch's place, that of the first such row;
///   the engine goes on with the next batch. What the source throws is thrown in its place, and in
///   that of all that would have come after it.
/// Processes: its threads stay with the process that made it. In a forked child next() throws
///   Unsupported, unless there are none; destroying it and stop() do no harm.
class Engine {
 public:
  /// Gives the plans, in order, and nothing at the end. Called by one thread at a time.
  using Source = std::function<std::optional<BatchPlan>()>;

  Engine(MixedDataset data, std::vector<Column> columns, std::shared_ptr<BufferPool> pool,
         Source source, EngineOptions options, std::shared_ptr<LoadMeter> meter);
  /// Stops, and waits for the threads.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The next batch, or nothing at the end, or after stop(). Waits for it.
  /// @param since  when the consumer began to wait, if that was before this engine was made.
  std::optional<MadeBatch> next(std::optional<LoadMeter::Clock::time_point> since = {});
  /// Waits until next() needs not, for `time` at most; without threads, which is as long as a batch
  /// takes. True if it needs not.
  bool wait(std::chrono::nanoseconds time);
  /// The consumer asks for no more batches: what it did since the last one counts, too. Idempotent.
  void note_end();

  /// Ends the threads after the rows in hand, and what they wait for in storage within about a
  /// second; next() gives nothing from now on. Idempotent.
  void stop() noexcept;

  /// How long next() has waited for the threads, in total. For the consumer.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  struct Work;
  class RowReader;
  /// Rows of a batch that one thread makes.
  struct Claim {
    Work* work = nullptr;  // none: there is nothing left
    std::size_t first = 0;
    std::size_t last = 0;
    ReadFrontier::Part reading{};
  };

  void run(unsigned thread) noexcept;
  /// What next() does once there is something to hand out, or nothing to wait for.
  std::optional<MadeBatch> take_front();
  void make_first();
  void note_answer(LoadMeter::Clock::time_point asked, std::size_t ready, bool had_answer);
  Claim wait_for_claim();
  std::optional<Claim> claim_or_plan(std::chrono::nanoseconds& idle);
  [[nodiscard]] Claim next_claim() SHARDWISE_REQUIRES(mutex_);
  [[nodiscard]] bool may_plan() const SHARDWISE_REQUIRES(mutex_);
  [[nodiscard]] bool has_answer() const SHARDWISE_REQUIRES(mutex_);
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
  void take_sizes(Work& work, std::size_t column);

  void make_rows(Claim& claim);
  [[nodiscard]] bool may_make(const Work& work, std::size_t row) const noexcept;
  [[nodiscard]] bool make_run(Work& work, std::size_t first, std::span<const Sample> run,
                              StageTimes& times) const;
  void make_row(Work& work, std::size_t row, const Sample& sample, StageTimes& times);
  void note_slowest(std::chrono::nanoseconds time, const Sample* sample);
  void fail(Work& work, std::size_t row, std::exception_ptr error);
  void finish(const Claim& claim);
  void close_up(Work& work) const;
  /// True if `error` is about the contents of a sample, not about its shard, the disk or options.
  [[nodiscard]] static bool is_bad_sample(const Error& error) noexcept;
  [[nodiscard]] RowInput input_of(const Sample& sample, std::uint64_t number) const;
  [[nodiscard]] RowInput input_of(const Sample& sample, const Work& work, std::size_t row) const;
  [[nodiscard]] Sample sample_of(std::uint64_t number) const;

  const MixedDataset data_;
  const std::vector<Column> columns_;
  const std::shared_ptr<BufferPool> pool_;
  const Source source_;
  const EngineOptions options_;
  const std::shared_ptr<LoadMeter> meter_;
  const bool times_rows_;          // one by one
  const bool makes_runs_;          // all columns make several rows at a time
  std::vector<FieldSizes> sizes_;  // of each part of data_

  ReadFrontier frontier_;  // in rows of all plans

  Mutex mutex_;
  Condition work_there_;  // rows to claim, or a plan to make, or the end: for threads
  Condition ready_;       // the first batch is made, or the end: for the consumer
  // In order; the first `claimed_` have no row left to be claimed.
  std::deque<std::unique_ptr<Work>> works_ SHARDWISE_GUARDED_BY(mutex_);
  std::size_t claimed_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t rows_planned_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ahead_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::size_t num_ready_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // of works_
  bool planning_ SHARDWISE_GUARDED_BY(mutex_) = false;      // a thread is in plan_one()
  bool source_ended_ SHARDWISE_GUARDED_BY(mutex_) = false;
  std::exception_ptr end_error_ SHARDWISE_GUARDED_BY(mutex_);
  CancelToken::Flag stopping_{false};  // written under mutex_; what waits in storage asks it
  std::atomic<std::size_t> claim_rows_{1};
  std::chrono::nanoseconds waited_{};                     // of the consumer's own
  std::optional<LoadMeter::Clock::time_point> answered_;  // the same, when it had its last batch
  WorkerThreads threads_;
};

}  // namespace shardwise::detail
