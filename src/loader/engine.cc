#include "loader/engine.h"

#include <algorithm>
#include <exception>
#include <span>
#include <thread>
#include <utility>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "data/dataset_access.h"
#include "loader/engine_work.h"
#include "loader/read_fields.h"
#include "storage/opening_time.h"

// A Work is one batch in production. Its steps in the queue works_:
//
//   plan_one()    one thread at a time takes a plan, allocates the memory whose size is known, and
//                 appends the Work; works_ is thus in the order of the plans
//   next_claim()  threads take rows of the first Work that has unclaimed rows; all threads work on
//                 one batch, so that the first batch is ready soon. If samples are fetched by
//                 ranges, a thread takes all rows, so that few requests fetch them
//   finish()      the thread that made the last row completes the batch, and marks it as ready
//   next()        the consumer takes the front Work once it is ready
//
// Threads hold mutex_ to claim rows and to count made rows, never while they plan, read or make
// rows. A Work belongs to the thread that plans it until that thread appends it. Then each row
// belongs to the thread that claimed it, and mutex_ guards what rows share (errors, counts). After
// the last row the Work belongs to the thread that made that row, and once ready to the consumer.
// Work objects never move, so threads keep pointers to them.
//
// The meter has its own lock. No thread takes it while it holds mutex_.
//
// Threads that make batches faster than the consumer takes them would compete with the consumer
// for its core. So only as many threads work as the consumer needs: one fewer each time that it
// takes a batch while all batches in flight are ready, and all threads once it takes one while half
// of them or fewer are ready, or waits. The others wait.
//
// Waking a thread takes longer than making a quick batch, so the thread that plans a quick batch
// makes it. More batches may be in flight if they are quick, and next() wakes a thread only once
// half of them are taken.
//
// If a row fails, the thread records the error and the row; later rows need not be made. The
// batch's error is that of its first failed row, even if another row failed earlier in time.

namespace shardwise::detail {
namespace {

/// The consumer sleeps this long for several quick batches, rather than once for each.
constexpr std::chrono::nanoseconds kNap = std::chrono::microseconds(50);
/// A batch is quick if the rows of at least this many such batches fit in one claim. Waking a
/// thread takes longer than making a quick batch.
constexpr std::size_t kQuickInClaim = 6;

}  // namespace

Engine::Engine(MixedDataset data, std::vector<std::vector<Column>> columns,
               std::shared_ptr<BufferPool> pool, Source source, EngineOptions options,
               std::shared_ptr<LoadMeter> meter)
    : data_(std::move(data)),
      columns_(std::move(columns)),
      pool_(std::move(pool)),
      source_(std::move(source)),
      options_(std::move(options)),
      meter_(std::move(meter)),
      times_rows_(std::ranges::any_of(
          columns_[0], [](const Column& column) { return column.maker()->takes_long(); })),
      uses_fields_(!times_rows_ && data_.num_parts() == 1),
      needs_samples_(!uses_fields_ ||
                     std::ranges::any_of(columns_[0],
                                         [](const Column& column) {
                                           return !column.maker()->makes_from_fields();
                                         })),
      makes_runs_(std::ranges::all_of(columns_[0],
                                      [this](const Column& column) {
                                        return column.maker()->makes_rows() ||
                                               (uses_fields_ &&
                                                column.maker()->makes_from_fields());
                                      })),
      in_parts_(fields_in_parts(columns_[0])),
      frontier_(options_.note_read),
      workers_(options_.threads),
      awake_(options_.threads) {
  for (std::size_t part = 0; part < data_.num_parts(); ++part) {
    sizes_.emplace_back(data_.part(part));
    claims_batches_ = claims_batches_ || DatasetAccess::reads_ranges(data_.part(part));
  }
  try {
    for (unsigned i = 0; i < options_.threads; ++i) {
      threads_.start([this, i] { run(i + 1); }, "sw-load");
    }
  } catch (...) {
    stop();
    threads_.join();
    throw;
  }
}

Engine::~Engine() {
  stop();
  threads_.join();
}

void Engine::stop() noexcept {
  {
    const Lock lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  work_there_.notify_all();
  ready_.notify_all();
}

bool Engine::has_answer() const {
  if (stopping_.load(std::memory_order_relaxed)) return true;
  return works_.empty() ? source_ended_ : works_.front()->ready;
}

bool Engine::is_quick() const {
  return last_rows_ * kQuickInClaim <= claim_rows_.load(std::memory_order_relaxed);
}

std::size_t Engine::max_batches() const {
  return is_quick() ? std::max(options_.max_batches, options_.max_quick_batches)
                    : options_.max_batches;
}

bool Engine::may_plan() const {
  if (planning_ || source_ended_ || works_.size() >= max_batches()) return false;
  return works_.empty() || bytes_ahead_ < options_.max_bytes;
}

void Engine::use_all_workers() {
  if (workers_ == options_.threads) return;
  workers_ = options_.threads;
  work_there_.notify_all();
}

void Engine::adapt_workers() {
  if (source_ended_) return;
  if (num_ready_ * 2 <= works_.size()) {
    use_all_workers();
  } else if (workers_ > 1 && num_ready_ == works_.size() && !may_plan()) {
    --workers_;
  }
}

std::optional<MadeBatch> Engine::next(std::optional<LoadMeter::Clock::time_point> since) {
  const auto asked = since.value_or(LoadMeter::Clock::now());
  std::size_t ready = 0;
  bool had_answer = false;
  if (!since) {
    const Lock lock(mutex_);
    ready = num_ready_;
    had_answer = has_answer();
  }
  if (!had_answer) wait(std::chrono::nanoseconds::max());
  note_answer(asked, ready, had_answer);
  return take_front();
}

bool Engine::wait(std::chrono::nanoseconds time) {
  if (threads_.empty()) make_first();
  if (!threads_.empty() && !threads_.are_here()) return true;  // in a forked child: next() throws
  bool quick = false;
  {
    const Lock lock(mutex_);
    if (has_answer() || time.count() <= 0) return has_answer();
    use_all_workers();
    quick = is_quick();
  }
  const auto start = LoadMeter::Clock::now();
  if (quick) std::this_thread::sleep_for(kNap);
  const Lock lock(mutex_);
  while (!has_answer()) {
    const std::chrono::nanoseconds passed = LoadMeter::Clock::now() - start;
    if (passed >= time) break;
    ready_.wait_for(mutex_, time - passed);
  }
  waited_ += LoadMeter::Clock::now() - start;
  return has_answer();
}

/// Called if the engine has no threads: the consumer itself plans and makes the front batch.
void Engine::make_first() {
  const CancelScope scope(stopping_);
  for (;;) {
    {
      const Lock lock(mutex_);
      if (has_answer()) return;
      if (works_.empty()) planning_ = true;
    }
    plan_one();
    for (Claim claim; (claim = wait_for_claim()).work != nullptr;) make_rows(claim);
  }
}

/// Adds an answer, a batch or the end, to the statistics.
void Engine::note_answer(LoadMeter::Clock::time_point asked, std::size_t ready, bool had_answer) {
  const auto now = had_answer ? asked : LoadMeter::Clock::now();
  const auto used = answered_ ? asked - *answered_ : std::chrono::nanoseconds{};
  meter_->add_answer(asked, used, ready, now - asked);
  answered_ = now;
}

void Engine::note_end() {
  if (answered_) meter_->add_use(LoadMeter::Clock::now() - *answered_);
  answered_.reset();
}

std::optional<MadeBatch> Engine::take_front() {
  std::unique_ptr<Work> work;
  bool may_wake = false;
  {
    const Lock lock(mutex_);
    if (stopping_.load(std::memory_order_relaxed)) return std::nullopt;
    if (works_.empty()) {
      if (end_error_) std::rethrow_exception(end_error_);
      return std::nullopt;
    }
    adapt_workers();
    work = std::move(works_.front());
    works_.pop_front();
    --num_ready_;
    // claimed_ is still 0 if next_claim() has not run since the last claim of this Work.
    if (claimed_ > 0) --claimed_;
    bytes_ahead_ -= work->builder.size_bytes();
    may_wake =
        awake_ < workers_ && works_.size() < std::max(options_.max_batches, max_batches() / 2);
  }
  if (may_wake) work_there_.notify_one();
  if (work->error) std::rethrow_exception(work->error);
  return std::move(work->made);
}

void Engine::run(unsigned thread) noexcept {
  LoadMeter::number_thread(thread);
  const CancelScope scope(stopping_);
  for (;;) {
    Claim claim = wait_for_claim();
    if (claim.work == nullptr) return;
    make_rows(claim);
  }
}

/// Returns rows to make. Plans a batch if no rows are left. Returns no rows at the end.
Engine::Claim Engine::wait_for_claim() {
  for (;;) {
    std::chrono::nanoseconds idle{};
    std::optional<Claim> claim = claim_or_plan(idle);
    if (idle.count() > 0) meter_->add_idle(idle);
    if (claim) return *std::move(claim);
    plan_one();
  }
}

/// Returns the result of wait_for_claim(), or nothing if the caller must plan a batch first.
std::optional<Engine::Claim> Engine::claim_or_plan(std::chrono::nanoseconds& idle) {
  const Lock lock(mutex_);
  for (;;) {
    if (stopping_.load(std::memory_order_relaxed)) return Claim{};
    if (awake_ <= workers_) {
      if (Claim claim = next_claim(); claim.work != nullptr) return claim;
      if (options_.threads == 0) return Claim{};  // without threads, next() plans
      if (may_plan()) break;
      if (source_ended_) return Claim{};
    }
    const auto start = LoadMeter::Clock::now();
    --awake_;
    work_there_.wait(mutex_);
    ++awake_;
    idle += LoadMeter::Clock::now() - start;
  }
  planning_ = true;
  return std::nullopt;
}

Engine::Claim Engine::next_claim() {
  while (claimed_ < works_.size()) {
    Work& work = *works_[claimed_];
    const std::size_t left = work.num_rows() - work.next_row;
    if (left == 0) {
      ++claimed_;
      continue;
    }
    const std::size_t first = work.next_row;
    work.next_row +=
        claims_batches_ ? left : std::min(left, claim_rows_.load(std::memory_order_relaxed));
    Claim claim{.work = &work, .first = first, .last = work.next_row};
    if (options_.note_read) {
      claim.reading = frontier_.begin(work.first_row + first, work.first_row + work.next_row);
    }
    return claim;
  }
  return {};
}

/// Appends the Work of the next plan, or records the end. REQUIRES: the caller set planning_.
void Engine::plan_one() noexcept {
  const auto begin = LoadMeter::Clock::now();
  const auto opening_before = opening_time();
  std::unique_ptr<Work> work;
  try {
    std::optional<BatchPlan> plan = source_();
    if (!plan) return end_source(nullptr);
    work = std::make_unique<Work>(*std::move(plan), columns_, *pool_);
  } catch (...) {
    return end_source(std::current_exception());
  }
  try {
    prepare(*work);
    if (work->num_rows() == 0) close_up(*work);
  } catch (...) {
    work->error = std::current_exception();
  }
  meter_->add(TraceEvent::Kind::kPlan, begin, opening_time() - opening_before);
  const bool is_ready = work->error || work->num_rows() == 0;
  bool may_wake = false;
  {
    const Lock lock(mutex_);
    planning_ = false;
    if (is_ready) {
      work->next_row = work->num_rows();
      work->ready = true;
      ++num_ready_;
    }
    work->rows_left = work->num_rows();
    work->first_row = rows_planned_;
    rows_planned_ += work->num_rows();
    last_rows_ = work->num_rows();
    bytes_ahead_ += work->builder.size_bytes();
    works_.push_back(std::move(work));
    may_wake = awake_ < workers_ && !is_quick();
  }
  if (may_wake) work_there_.notify_all();
  if (is_ready) ready_.notify_one();
}

void Engine::end_source(std::exception_ptr error) noexcept {
  {
    const Lock lock(mutex_);
    planning_ = false;
    source_ended_ = true;
    workers_ = options_.threads;  // the threads end
    end_error_ = std::move(error);
  }
  work_there_.notify_all();
  ready_.notify_one();
}

Sample Engine::sample_of(std::uint64_t number) const {
  const std::size_t part = data_.part_of(number);
  return DatasetAccess::get(data_.part(part), number - data_.first_sample(part), in_parts_);
}

RowInput Engine::input_of(const Sample& sample, std::uint64_t number) const {
  return {.sample = sample,
          .seed = options_.seed,
          .epoch = options_.epoch,
          .number = number,
          .position = std::nullopt,
          .times = nullptr,
          .max_expanded_bytes = options_.max_expanded_bytes};
}

RowInput Engine::input_of(const Sample& sample, const Work& work, std::size_t row) const {
  RowInput input = input_of(sample, work.plan.samples[row]);
  if (options_.has_repeated_samples) input.position = work.plan.positions[row];
  return input;
}

/// Allocates the memory whose size is known before the rows are made, and looks up the places of
/// fields.
void Engine::prepare(Work& work) {
  for (std::size_t c = 0; c < work.columns.size(); ++c) {
    const ColumnMaker& maker = *work.columns[c].maker();
    switch (maker.layout()) {
      case ColumnMaker::Layout::kFixed:
        work.builder.set_row_shape(c, maker.row_shape());
        if (uses_fields_ && maker.makes_from_fields()) work.places[c] = find_fields(work, maker);
        break;
      case ColumnMaker::Layout::kLikeFirst:
        work.builder.set_row_shape(c, shape_like_first(work, maker));
        break;
      case ColumnMaker::Layout::kSized:
        take_sizes(work, c);
        break;
      case ColumnMaker::Layout::kRagged:
        break;
    }
  }
}

/// Calls find(sizes, samples, found) once per data set, with the batch's samples from it. Returns
/// the results of all rows, in the order of the rows.
template <class Found, class Find>
std::vector<Found> Engine::find_in_index(const Work& work, const Find& find) const {
  const std::span<const std::uint64_t> samples = work.plan.samples;
  std::vector<Found> found(samples.size());
  if (data_.num_parts() == 1) {
    find(sizes_[0], samples, std::span(found));
    return found;
  }
  for (std::size_t row = 0; row < found.size(); ++row) {
    const std::size_t part = data_.part_of(samples[row]);
    const std::uint64_t sample = samples[row] - data_.first_sample(part);
    find(sizes_[part], std::span(&sample, 1), std::span(&found[row], 1));
  }
  return found;
}

std::vector<FieldPlace> Engine::find_fields(const Work& work, const ColumnMaker& maker) const {
  return find_in_index<FieldPlace>(work, [names = std::span(maker.fields()->names())](
                                             const FieldSizes& part, auto samples, auto found) {
    part.find(samples, names, found);
  });
}

void Engine::take_sizes(Work& work, std::size_t column) {
  const ColumnMaker& maker = *work.columns[column].maker();
  if (maker.fields() == nullptr) {
    return work.builder.set_sizes(
        column,
        find_in_index<std::uint64_t>(work, [](const FieldSizes& part, auto samples, auto found) {
          part.of_keys(samples, found);
        }));
  }
  std::vector<FieldPlace> places = find_fields(work, maker);
  std::vector<std::uint64_t> sizes(places.size());
  std::ranges::transform(places, sizes.begin(), &FieldPlace::size_or_zero);
  work.builder.set_sizes(column, sizes);
  if (uses_fields_ && maker.makes_from_fields()) work.places[column] = std::move(places);
}

/// Returns the shape of the first good row. If the batch has no good row, returns the shape of the
/// first good sample of the data set.
std::vector<std::int64_t> Engine::shape_like_first(const Work& work,
                                                   const ColumnMaker& maker) const {
  const std::vector<std::uint64_t>& rows = work.plan.samples;
  // The first sample with `shape`. A second sample with the same shape confirms it.
  std::optional<std::uint64_t> first;
  std::optional<std::vector<std::int64_t>> shape;
  for (std::uint64_t i = 0; i < rows.size() + data_.size(); ++i) {
    if (i >= rows.size() && shape) break;
    const std::uint64_t number = i < rows.size() ? rows[i] : i - rows.size();
    // After the batch's rows, the loop tries the samples of the data set. Their errors do not fail
    // this batch.
    auto other = shape_of(number, maker, options_.skip_bad || i >= rows.size());
    if (!other) continue;
    if (!options_.skip_bad || other == shape) return *other;
    // The shapes differ, so one of them may come from a damaged field that states a false size.
    if (shape && can_be_made(*first, maker, *shape)) break;
    first = number;
    shape = std::move(other);
  }
  return shape ? *shape : maker.row_shape();
}

/// Returns the shape of a sample's row. Returns nothing if the sample is bad and may be skipped.
std::optional<std::vector<std::int64_t>> Engine::shape_of(std::uint64_t number,
                                                          const ColumnMaker& maker,
                                                          bool may_leave_out) const {
  const Sample sample = sample_of(number);
  try {
    return maker.row_shape_of(input_of(sample, number));
  } catch (const Error& error) {
    if (!is_bad_sample(error) || !may_leave_out) throw;
  }
  return std::nullopt;
}

/// Whether the sample's row can be made with this shape.
bool Engine::can_be_made(std::uint64_t number, const ColumnMaker& maker,
                         const std::vector<std::int64_t>& shape) const {
  RowBuffer memory;
  RowOutput output{memory.resize(shape, size_of(maker.dtype())), nullptr, maker.dtype(), shape};
  const Sample sample = sample_of(number);
  try {
    maker.make(input_of(sample, number), output);
    return true;
  } catch (const Error& error) {
    if (!is_bad_sample(error)) throw;
  }
  return false;
}

bool Engine::is_bad_sample(const Error& error) noexcept {
  return error.code() == ErrorCode::kBadField || error.code() == ErrorCode::kNotFound ||
         error.code() == ErrorCode::kUnsupported;
}

/// Counts the rows of a claim as made. After the last row of a batch, completes the batch.
void Engine::finish(const Claim& claim) {
  Work& work = *claim.work;
  {
    const Lock lock(mutex_);
    work.rows_left -= claim.last - claim.first;
    if (work.rows_left > 0 || stopping_.load(std::memory_order_relaxed)) return;
  }
  if (!work.error) {
    const auto begin = LoadMeter::Clock::now();
    try {
      close_up(work);
    } catch (...) {
      work.error = std::current_exception();
    }
    meter_->add(TraceEvent::Kind::kCollate, begin);
  }
  {
    const Lock lock(mutex_);
    work.ready = true;
    ++num_ready_;
    if (!has_answer()) return;
  }
  ready_.notify_one();
}

void Engine::close_up(Work& work) const {
  std::sort(work.bad.begin(), work.bad.end());
  std::vector<bool> good(work.num_rows(), true);
  MadeBatch& made = work.made;
  for (auto& [row, reason] : work.bad) {
    good[row] = false;
    made.bad.push_back({work.plan.samples[row], work.plan.positions[row], std::move(reason)});
  }
  made.batch = work.builder.finish(good, work.read, work.plan.positions);
  if (options_.finish) options_.finish(made.batch, work.plan);
}

}  // namespace shardwise::detail
