#include "loader/load_meter.h"

#include <algorithm>
#include <set>

#include "base/ascii.h"

namespace shardwise::detail {
namespace {

thread_local unsigned number_of_thread = 0;

/// Limit for the number of kinds of tolerated defects. Warnings may contain names from damaged
/// files, so there could otherwise be any number of kinds.
constexpr std::size_t kMaxKinds = 32;

/// The statistics field of each stage, in the order of Stage.
constexpr std::array kStageTimes = {&Loader::Stats::planning,     &Loader::Stats::opening,
                                    &Loader::Stats::reading,      &Loader::Stats::decoding,
                                    &Loader::Stats::transforming, &Loader::Stats::functions,
                                    &Loader::Stats::collating};
static_assert(kStageTimes.size() == kNumStages);

bool is_hex_digit(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

Stage stage_of(TraceEvent::Kind kind) noexcept {
  return kind == TraceEvent::Kind::kCollate ? Stage::kCollating : Stage::kPlanning;
}

}  // namespace

void LoadMeter::number_thread(unsigned number) noexcept { number_of_thread = number; }

std::string LoadMeter::kind_of(std::string_view warning) {
  std::string kind;
  for (std::size_t i = 0; i < warning.size();) {
    const bool is_hex = warning.substr(i).starts_with("0x");
    if (!is_hex && !is_digit(warning[i])) {
      kind += warning[i++];
      continue;
    }
    if (is_hex) i += 2;
    while (i < warning.size() && (is_hex ? is_hex_digit(warning[i]) : is_digit(warning[i]))) ++i;
    kind += is_hex ? "0xN" : "N";
  }
  return kind;
}

void LoadMeter::add_forgiven(const Forgiven& image) {
  std::set<Kind*> kinds;  // an image counts once for each kind
  for (const std::string& text : image.texts) {
    const std::string name = kind_of(text);
    const bool is_kept = forgiven_.contains(name) || forgiven_.size() < kMaxKinds;
    kinds.insert(is_kept ? &forgiven_[name] : &other_forgiven_);
  }
  for (Kind* const kind : kinds) {
    if (kind->images++ > 0 && kind->number <= image.number) continue;
    kind->number = image.number;
    kind->first_sample = image.sample;
  }
}

void LoadMeter::keep_events(std::size_t max_events) {
  const Lock lock(mutex_);
  events_.clear();
  events_.reserve(max_events);
  max_events_ = max_events;
  next_event_ = 0;
}

std::vector<TraceEvent> LoadMeter::events() const {
  const Lock lock(mutex_);
  std::vector<TraceEvent> ordered = events_;
  if (ordered.size() == max_events_) {
    std::rotate(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(next_event_),
                ordered.end());
  }
  return ordered;
}

void LoadMeter::keep(const TraceEvent& event) {
  if (max_events_ == 0) return;
  if (events_.size() < max_events_) {
    events_.push_back(event);
    return;
  }
  events_[next_event_] = event;
  next_event_ = (next_event_ + 1) % max_events_;
}

void LoadMeter::add(const StageTimes& times, std::uint64_t rows, std::uint64_t first_sample) {
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < kNumStages; ++i) stats_.*kStageTimes[i] += times.times()[i];
  for (std::size_t i = 0; i < stats_.sample_times.size(); ++i) {
    stats_.sample_times[i] += times.samples()[i];
  }
  stats_.bytes_read += times.bytes_read();
  for (const Forgiven& image : times.forgiven()) add_forgiven(image);
  keep({.kind = TraceEvent::Kind::kRows,
        .thread = number_of_thread,
        .begin = times.begin(),
        .duration = times.last() - times.begin(),
        .rows = rows,
        .first_sample = first_sample,
        .stages = times.times()});
}

void LoadMeter::add(TraceEvent::Kind kind, Clock::time_point begin,
                    std::chrono::nanoseconds opening) {
  const auto duration = Clock::now() - begin;
  const Lock lock(mutex_);
  stats_.*kStageTimes[static_cast<std::size_t>(stage_of(kind))] += duration - opening;
  stats_.opening += opening;
  keep({.kind = kind, .thread = number_of_thread, .begin = begin, .duration = duration});
}

void LoadMeter::add_idle(std::chrono::nanoseconds time) {
  const Lock lock(mutex_);
  stats_.idle += time;
}

void LoadMeter::add_slowest(std::chrono::nanoseconds time, const std::string& sample) {
  const Lock lock(mutex_);
  if (time <= stats_.slowest_time) return;
  stats_.slowest_time = time;
  stats_.slowest_sample = sample;
  slowest_ns_.store(time.count(), std::memory_order_relaxed);
}

void LoadMeter::add_answer(Clock::time_point asked, std::chrono::nanoseconds used,
                           std::size_t ready, std::chrono::nanoseconds waited) {
  const Lock lock(mutex_);
  stats_.elapsed += used + waited;
  stats_.waited += waited;
  ++answers_;
  ready_ += ready;
  if (waited.count() == 0) {
    ++stats_.batches_ready;
  } else {
    keep({.kind = TraceEvent::Kind::kWait, .begin = asked, .duration = waited});
  }
}

void LoadMeter::add_use(std::chrono::nanoseconds used) {
  const Lock lock(mutex_);
  stats_.elapsed += used;
}

void LoadMeter::add_batch(const Batch& batch, std::uint64_t bad_samples) {
  const Lock lock(mutex_);
  ++stats_.batches;
  stats_.samples += batch.size();
  stats_.bad_samples += bad_samples;
  for (const Batch::Array& array : batch.arrays()) stats_.bytes_made += array.bytes().size();
}

Loader::Stats LoadMeter::stats() const {
  const Lock lock(mutex_);
  Loader::Stats stats = stats_;
  for (const auto& [name, kind] : forgiven_) {
    stats.forgiven.push_back({name, kind.images, kind.first_sample});
  }
  if (other_forgiven_.images > 0) {
    stats.forgiven.push_back({"others", other_forgiven_.images, other_forgiven_.first_sample});
  }
  if (answers_ > 0) stats.mean_ready = static_cast<double>(ready_) / static_cast<double>(answers_);
  return stats;
}

}  // namespace shardwise::detail
