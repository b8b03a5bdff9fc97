#include "data/field_sizes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "data/dataset_access.h"
#include "data/joins.h"
#include "data/sample_access.h"
#include "index/claimed_index.h"

namespace shardwise::detail {

/// A dataset of a join.
struct FieldSizes::Side {
  std::shared_ptr<const JoinSide> join;
  FieldSizes sizes;
};

FieldSizes::FieldSizes(Dataset data)
    : data_(std::move(data)),
      segments_(IndexAccess::has_records(data_.index()) ? DatasetAccess::records(data_) : nullptr) {
  const auto sides = DatasetAccess::joins(data_);
  sides_.reserve(sides.size());
  for (const auto& side : sides) sides_.push_back({side, FieldSizes(side->other)});
}
FieldSizes::~FieldSizes() = default;
FieldSizes::FieldSizes(FieldSizes&&) noexcept = default;

bool FieldSizes::has_any(std::span<const std::string> names) const {
  IndexAccess::require_records(data_.index());
  for (std::uint64_t shard = 0; shard < segments_->index().num_shards(); ++shard) {
    const SegmentView& segment = segments_->of(shard);
    for (std::uint32_t field = 0; field < segment.num_fields(); ++field) {
      if (std::ranges::find(names, segment.field_name(field)) != names.end()) return true;
    }
  }
  const auto is_joined = [&](const std::string& name) {
    return std::ranges::any_of(sides_, [&](const Side& side) {
      const auto original = side.join->original(name);
      return original && side.sizes.has_any(std::span(&*original, 1));
    });
  };
  return std::ranges::any_of(names, is_joined);
}

/// Caches the shards of one call, so that each shard is looked up once even if the samples' shards
/// alternate.
class FieldSizes::Shards {
 public:
  struct Entry {
    const SegmentView* segment = nullptr;
    std::uint64_t shard = 0;
    std::uint64_t first = 0;
    std::vector<std::uint32_t> fields;  // for each name, its number among this shard's fields
  };

  Shards(CheckedSegments& segments, std::span<const std::string> names)
      : segments_(segments), names_(names) {}

  const Entry& of(std::uint64_t number) {
    const std::uint64_t shard = segments_.index().shard_of(number);
    Entry& entry = entries_[shard % kMax];
    if (entry.segment == nullptr || entry.shard != shard) fill(entry, shard);
    return entry;
  }
  /// Prefetches the records of a sample into the CPU cache, if its shard was looked up before.
  void prefetch(std::uint64_t number) const noexcept {
    const std::uint64_t shard = segments_.index().shard_of(number);
    const Entry& entry = entries_[shard % kMax];
    if (entry.segment == nullptr || entry.shard != shard) return;
    entry.segment->prefetch(static_cast<std::uint32_t>(number - entry.first));
  }

 private:
  static constexpr std::size_t kMax = 64;

  void fill(Entry& entry, std::uint64_t shard) {
    const SegmentView& segment = segments_.of(shard);
    entry.segment = &segment;
    entry.shard = shard;
    entry.first = segments_.index().first_sample(shard);
    entry.fields.clear();
    for (const std::string& name : names_) {
      for (std::uint32_t field = 0; field < segment.num_fields(); ++field) {
        if (segment.field_name(field) == name) entry.fields.push_back(field);
      }
    }
  }

  CheckedSegments& segments_;
  const std::span<const std::string> names_;
  std::array<Entry, kMax> entries_;
};

/// Sets sizes[i] to size_of(shard of samples[i], the sample's number in that shard).
template <class SizeOf>
void FieldSizes::walk(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                      std::span<std::uint64_t> sizes, SizeOf&& size_of) const {
  // Number of samples whose records are prefetched together, as SampleRange does.
  constexpr std::size_t kGroup = 16;
  Shards shards(*segments_, names);
  const auto expect = [&](std::size_t first) {
    for (std::size_t i = first; i < std::min(first + kGroup, samples.size()); ++i) {
      shards.prefetch(data_.number_in_index(samples[i]));
    }
  };
  expect(0);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % kGroup == 0) expect(i + kGroup);
    const std::uint64_t number = data_.number_in_index(samples[i]);
    const Shards::Entry& entry = shards.of(number);
    sizes[i] = size_of(entry, static_cast<std::uint32_t>(number - entry.first));
  }
}

/// Sets sizes[i] to size_of(sample) after reading the samples.
template <class SizeOf>
void FieldSizes::read(std::span<const std::uint64_t> samples, std::span<std::uint64_t> sizes,
                      SizeOf&& size_of) const {
  for (std::size_t i = 0; const Sample& sample : data_.samples(samples)) {
    sizes[i++] = size_of(sample);
  }
}

void FieldSizes::of(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                    std::span<std::uint64_t> sizes) const {
  find(samples, names, sizes);
  std::ranges::replace(sizes, kAbsent, 0);
}

/// Does what of() does, but a missing field has the size kAbsent.
void FieldSizes::find(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                      std::span<std::uint64_t> sizes) const {
  if (sides_.empty()) return find_own(samples, names, sizes);
  std::ranges::fill(sizes, kAbsent);
  std::vector<std::uint64_t> found(samples.size());
  const auto take = [&](std::size_t place, std::uint64_t size) {
    if (sizes[place] == kAbsent) sizes[place] = size;
  };
  for (const std::string& name : names) {
    find_own(samples, std::span(&name, 1), found);
    for (std::size_t i = 0; i < samples.size(); ++i) take(i, found[i]);
    for (const Side& side : sides_) {
      const auto original = side.join->original(name);
      if (!original) continue;
      const JoinSide::Matched matched = side.join->matched(data_, samples);
      const std::span<std::uint64_t> others(found.data(), matched.numbers.size());
      side.sizes.find(matched.numbers, std::span(&*original, 1), others);
      for (std::size_t i = 0; i < others.size(); ++i) take(matched.places[i], others[i]);
    }
  }
}

/// Does what find() does, for the first dataset of a join.
void FieldSizes::find_own(std::span<const std::uint64_t> samples,
                          std::span<const std::string> names,
                          std::span<std::uint64_t> sizes) const {
  if (!segments_) {
    return read(samples, sizes, [&](const Sample& sample) -> std::uint64_t {
      const auto place = SampleAccess::find(sample, names);
      return place ? sample.field(*place).bytes.size() : kAbsent;
    });
  }
  walk(samples, names, sizes, [](const Shards::Entry& shard, std::uint32_t local) -> std::uint64_t {
    const std::span<const MemberRecord> members = shard.segment->members(local);
    for (const std::uint32_t field : shard.fields) {
      for (const MemberRecord& member : members) {
        if (member.field() == field) return member.size_bytes;
      }
    }
    return kAbsent;
  });
}

void FieldSizes::of_keys(std::span<const std::uint64_t> samples,
                         std::span<std::uint64_t> sizes) const {
  if (!segments_) {
    return read(samples, sizes, [](const Sample& sample) { return sample.key().size(); });
  }
  walk(samples, {}, sizes, [](const Shards::Entry& shard, std::uint32_t local) -> std::uint64_t {
    return shard.segment->key(local).size();
  });
}

}  // namespace shardwise::detail
