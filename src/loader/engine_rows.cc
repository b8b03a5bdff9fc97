#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "data/field_cursor.h"
#include "loader/engine.h"
#include "loader/engine_work.h"
#include "loader/row_reader.h"
#include "storage/opening_time.h"

// The part of the engine that makes the rows of claims. engine.cc describes the whole.

namespace shardwise::detail {
namespace {

/// A claim has as many rows as take about this long. If each claim were one tiny row, threads would
/// mostly wait for mutex_.
constexpr std::chrono::nanoseconds kClaimTime = std::chrono::microseconds(30);
constexpr std::size_t kMaxClaim = 256;

}  // namespace

void Engine::make_rows(Claim& claim) {
  StageTimes times;
  const auto opening_before = opening_time();
  const Work& work = *claim.work;
  const std::size_t from_fields = make_from_fields(claim, times);
  const bool needs_samples = needs_samples_ || from_fields < claim.last;
  if (needs_samples) make_from_samples(claim, from_fields, times);
  const auto took = times.enter(Stage::kReading) - times.begin();
  times.move_to_opening(opening_time() - opening_before);
  const auto rows = static_cast<std::int64_t>(claim.last - claim.first);
  const std::int64_t fitting = kClaimTime / std::max(took / rows, std::chrono::nanoseconds(1));
  // Change by a factor of 2 at most: a claim may only seem slow because the thread was preempted.
  const std::size_t before = claim_rows_.load(std::memory_order_relaxed);
  claim_rows_.store(std::clamp<std::size_t>(static_cast<std::size_t>(fitting), (before + 1) / 2,
                                            std::min(before * 2, kMaxClaim)),
                    std::memory_order_relaxed);
  if (!times_rows_) {
    times.add_samples(took / rows, claim.last - claim.first);
    if (!needs_samples) note_slowest(took / rows, work.plan.samples[claim.first]);
  }
  meter_->add(times, claim.last - claim.first, work.plan.samples[claim.first]);
  claim.reading = {};
  finish(claim);
}

/// Makes the columns that can be made from fields, without samples, for the first rows of a claim.
/// Returns the first row for which this is not possible. The fields of this row and of later rows
/// are then read from samples.
std::size_t Engine::make_from_fields(const Claim& claim, StageTimes& times) const {
  Work& work = *claim.work;
  std::vector<std::size_t> columns;
  std::vector<std::span<const FieldPlace>> places;
  for (std::size_t c = 0; c < work.places.size(); ++c) {
    if (work.places[c].empty()) continue;
    columns.push_back(c);
    places.emplace_back(std::span(work.places[c]).subspan(claim.first, claim.last - claim.first));
  }
  std::size_t row = claim.first;
  if (columns.empty()) return claim.last;
  std::size_t bytes = 0;
  FieldCursor cursor(data_.part(0), std::move(places), FieldCursor::Opening::kOpen);
  for (; may_make(work, row);) {
    const std::size_t count = cursor.next_run();
    if (count == 0) break;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::size_t c = columns[i];
      const auto fields = cursor.fields(i);
      if (!work.columns[c].maker()->make_from_fields(fields, work.builder.slots(c, row))) {
        times.add_bytes(bytes);
        return row;
      }
      for (const std::string_view field : fields) bytes += field.size();
    }
    std::copy_n(work.plan.samples.begin() + static_cast<std::ptrdiff_t>(row), count,
                work.read.begin() + static_cast<std::ptrdiff_t>(row));
    row += count;
  }
  times.add_bytes(bytes);
  return row;
}

/// Makes the rows of a claim from samples.
/// @param from_fields  the rows before this one lack only columns that need samples.
void Engine::make_from_samples(Claim& claim, std::size_t from_fields, StageTimes& times) {
  Work& work = *claim.work;
  const std::size_t first = needs_samples_ ? claim.first : from_fields;
  auto row_begin = times.begin();
  const std::span<const std::uint64_t> samples = work.plan.samples;
  RowReader reader(data_, samples.subspan(first, claim.last - first), in_parts_);
  const Sample* last = nullptr;  // the last sample read
  const auto end_row = [&](const Sample* sample) {
    last = sample;
    if (!times_rows_) return;
    const auto end = times.enter(Stage::kReading);
    times.add_samples(end - row_begin, 1);
    note_slowest(end - std::exchange(row_begin, end), sample);
  };
  for (std::size_t row = first; row < claim.last && may_make(work, row);) {
    std::span<const Sample> run;
    claim.reading.reach(work.first_row + row);
    try {
      run = reader.next_run();
    } catch (...) {
      fail(work, row++, std::current_exception());  // e.g. a missing shard, not a bad sample
      end_row(nullptr);
      continue;
    }
    for (std::size_t i = 0; i < run.size(); ++i) {
      work.read[row + i] = reader.first_of_part() + run[i].index();
    }
    if (makes_runs_ && row + run.size() <= from_fields && make_run(work, row, run, times)) {
      row += run.size();
      last = &run.back();
      continue;
    }
    for (const Sample& sample : run) {
      if (!may_make(work, row)) break;
      make_row(work, row, sample, row < from_fields, times);
      ++row;
      end_row(&sample);
    }
  }
  if (times_rows_) return;
  const auto rows = static_cast<std::int64_t>(claim.last - first);
  note_slowest((times.enter(Stage::kReading) - times.begin()) / rows, last);
}

void Engine::note_slowest(std::chrono::nanoseconds time, const Sample* sample) {
  if (sample != nullptr && meter_->is_slowest(time)) meter_->add_slowest(time, sample->describe());
}

void Engine::note_slowest(std::chrono::nanoseconds time, std::uint64_t number) {
  if (!meter_->is_slowest(time)) return;
  try {
    const Sample sample = sample_of(number);
    note_slowest(time, &sample);
  } catch (const Error&) {  // the sample was read, but its shard cannot be opened again
  }
}

/// Whether the row still needs to be made.
bool Engine::may_make(const Work& work, std::size_t row) const noexcept {
  return !stopping_.load(std::memory_order_relaxed) &&
         work.failed_row.load(std::memory_order_relaxed) >= row;
}

/// Makes the rows of a run from `first` on, column by column, except columns that were made from
/// fields before. Returns false if a row fails. The caller then makes the rows one by one, to find
/// the error.
bool Engine::make_run(Work& work, std::size_t first, std::span<const Sample> run,
                      StageTimes& times) const {
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < work.columns.size(); ++c) {
    if (!work.places[c].empty()) continue;
    if (!work.columns[c].maker()->make_rows(run, work.builder.slots(c, first), bytes)) return false;
  }
  times.add_bytes(bytes);
  return true;
}

/// @param has_fields  whether the columns that need no sample were made before.
void Engine::make_row(Work& work, std::size_t row, const Sample& sample, bool has_fields,
                      StageTimes& times) {
  try {
    RowInput input = input_of(sample, work, row);
    input.times = &times;
    for (std::size_t c = 0; c < work.columns.size(); ++c) {
      if (has_fields && !work.places[c].empty()) continue;
      RowOutput output = work.builder.output(c, row);
      work.columns[c].maker()->make(input, output);
    }
  } catch (const Error& error) {
    if (options_.skip_bad && is_bad_sample(error)) {
      const Lock lock(mutex_);
      work.bad.emplace_back(row, error.what());
    } else {
      fail(work, row, std::current_exception());
    }
  } catch (...) {
    fail(work, row, std::current_exception());
  }
}

void Engine::fail(Work& work, std::size_t row, std::exception_ptr error) {
  // Destroy a replaced error after mutex_ is released: the exception may come from a user's
  // function, and its destructor may e.g. wait for Python's interpreter lock.
  std::exception_ptr replaced = std::move(error);
  const Lock lock(mutex_);
  if (row >= work.failed_row.load(std::memory_order_relaxed)) return;
  work.failed_row.store(row, std::memory_order_relaxed);
  std::swap(work.error, replaced);
}

}  // namespace shardwise::detail
