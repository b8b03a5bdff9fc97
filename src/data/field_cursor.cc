#include "data/field_cursor.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "data/joins.h"

namespace shardwise::detail {

namespace {
constexpr std::size_t kLineBytes = 64;
/// Number of bytes of each field to prefetch.
constexpr std::size_t kAheadBytes = 512;
}  // namespace

FieldCursor::FieldCursor(const Dataset& data, std::vector<std::span<const FieldPlace>> columns,
                         Opening opening)
    : columns_(std::move(columns)), checks_(opening == Opening::kOpenOnly) {
  const std::size_t rows = columns_.empty() ? 0 : columns_[0].size();
  const auto add = [&](const Dataset& source) {
    auto& impl = DatasetAccess::impl(source);
    const bool opens =
        opening == Opening::kOpen && impl.access == Dataset::Access::kMap && impl.cache == nullptr;
    const std::size_t max = std::min(impl.max_pinned_shards(), std::bit_ceil(2 * rows));
    sources_.push_back({&impl.pool, opens, std::vector<Held>(max)});
  };
  add(data);
  for (const auto& side : DatasetAccess::joins(data)) add(side->other);
  now_.fields.resize(columns_.size() * kMaxRun);
  next_.fields.resize(columns_.size() * kMaxRun);
  fill(next_);
}

std::size_t FieldCursor::next_run() noexcept {
  std::swap(now_, next_);
  ++num_runs_;
  fill(next_);
  if (now_.size > 0 || next_.size == 0) return now_.size;
  return next_run();
}

/// Adds rows to a run, as long as their shards can be held. Shards of this run and of the run
/// before are not released.
void FieldCursor::fill(Run& run) noexcept {
  run.size = 0;
  const std::size_t rows = columns_.empty() ? 0 : columns_[0].size();
  for (; run.size < kMaxRun && at_ < rows; ++run.size, ++at_) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (!find(columns_[c][at_], run.fields[c * kMaxRun + run.size])) return prefetch(run);
    }
  }
  prefetch(run);
}

inline bool FieldCursor::find(const FieldPlace& place, std::string_view& field) noexcept {
  if (place.source >= sources_.size() || place.size_bytes == FieldPlace::kAbsent) return false;
  Source& source = sources_[place.source];
  Held& slot = source.slots[place.shard & (source.slots.size() - 1)];
  if ((!slot.shard || slot.number != place.shard) && !hold(source, slot, place.shard)) return false;
  slot.last_run = num_runs_;
  // When the shard was opened, this range was checked against the size of the mapping.
  field = {slot.shard->data + place.offset, place.size_bytes};
  return true;
}

bool FieldCursor::hold(Source& source, Held& slot, std::uint64_t shard) noexcept {
  if (!release(slot)) return false;
  try {
    auto found = source.opens ? source.pool->get(shard) : source.pool->find(shard);
    if (!found || found->data == nullptr) return false;
    if (found->cached.is_pinned()) {
      if (source.from_cache != nullptr && !release(*source.from_cache)) return false;
      source.from_cache = &slot;
    }
    slot.shard = std::move(found);
    slot.number = shard;
    return true;
  } catch (const std::exception&) {
    return false;  // reading the sample reports the error
  }
}

/// Releases a shard, unless this run or the run before uses it.
bool FieldCursor::release(Held& held) noexcept {
  if (!held.shard) return true;
  if (held.last_run + 1 >= num_runs_) return false;
  if (checks_) are_released_unchanged_ = are_released_unchanged_ && held.shard->is_unchanged();
  held.shard = {};
  return true;
}

bool FieldCursor::are_unchanged() {
  return are_released_unchanged_ && std::ranges::all_of(sources_, [](const Source& source) {
           return std::ranges::all_of(source.slots, [](const Held& held) {
             return !held.shard || held.shard->is_unchanged();
           });
         });
}

void FieldCursor::prefetch(const Run& run) const noexcept {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    for (std::size_t i = 0; i < run.size; ++i) {
      const std::string_view field = run.fields[c * kMaxRun + i];
      const std::size_t bytes = std::min(field.size(), kAheadBytes);
      for (std::size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(field.data() + at);
    }
  }
}

}  // namespace shardwise::detail
