#include "data/field_sizes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "data/dataset_access.h"
#include "data/joins.h"
#include "data/sample_access.h"
#include "index/claimed_index.h"
#include "index/segment_of.h"

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

/// The shards of some samples. Each is looked up once, unless two shards share an element of
/// slots_.
class FieldSizes::Shards {
 public:
  struct Entry {
    const SegmentView* segment;
    std::uint64_t shard;
    std::uint64_t first;       // number of the shard's first sample
    std::size_t fields_begin;  // begin of the shard's fields in fields_
    std::size_t fields_end;
  };

  Shards(CheckedSegments& segments, std::span<const std::string> names)
      : segments_(segments), names_(names), finder_(shard_finder_of(segments.index())) {
    entries_.reserve(slots_.size());
    slots_.fill(kNone);
  }

  /// Returns the number of the entry for the shard that has this sample.
  std::uint32_t find(std::uint64_t number) {
    const std::uint64_t shard = finder_.shard_of(number);
    std::uint32_t& slot = slots_[shard % slots_.size()];
    if (slot == kNone || entries_[slot].shard != shard) slot = add(shard);
    return slot;
  }
  const Entry& operator[](std::uint32_t entry) const noexcept { return entries_[entry]; }
  /// The numbers of the fields in the shard, in the order of the names.
  std::span<const std::uint32_t> fields(const Entry& entry) const noexcept {
    return std::span(fields_).subspan(entry.fields_begin, entry.fields_end - entry.fields_begin);
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::uint32_t add(std::uint64_t shard) {
    const SegmentView& segment = segments_.of(shard);
    const std::size_t begin = fields_.size();
    for (const std::string& name : names_) {
      for (std::uint32_t field = 0; field < segment.num_fields(); ++field) {
        if (segment.field_name(field) == name) fields_.push_back(field);
      }
    }
    entries_.push_back(
        {&segment, shard, finder_.directory[shard].first_sample, begin, fields_.size()});
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }

  CheckedSegments& segments_;
  const std::span<const std::string> names_;
  const ShardFinder finder_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> fields_;
  std::array<std::uint32_t, 128> slots_;
};

/// Sets found[i] to find(shards, shard of samples[i], the sample's number in that shard).
template <class Found, class Find>
void FieldSizes::walk(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                      std::span<Found> found, const Find& find) const {
  constexpr std::size_t kAtOnce = std::size_t{1} << 16;  // limits the entries of `shards`
  while (samples.size() > kAtOnce) {
    walk(samples.first(kAtOnce), names, found.first(kAtOnce), find);
    samples = samples.subspan(kAtOnce);
    found = found.subspan(kAtOnce);
  }
  constexpr std::size_t kAhead = 64;  // records that are prefetched and not read yet
  struct Record {
    std::uint32_t shard;
    std::uint32_t local;
  };
  std::array<Record, kAhead> records;
  Shards shards(*segments_, names);
  const auto prefetch = [&](std::size_t i) {
    const std::uint64_t number = data_.number_in_index(samples[i]);
    Record& record = records[i % kAhead];
    record.shard = shards.find(number);
    const Shards::Entry& shard = shards[record.shard];
    record.local = static_cast<std::uint32_t>(number - shard.first);
    __builtin_prefetch(shard.segment->first_record(record.local));
  };
  for (std::size_t i = 0; i < std::min(kAhead, samples.size()); ++i) prefetch(i);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Record record = records[i % kAhead];
    if (i + kAhead < samples.size()) prefetch(i + kAhead);
    found[i] = find(shards, shards[record.shard], record.local);
  }
}

void FieldSizes::of(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                    std::span<std::uint64_t> sizes) const {
  constexpr std::size_t kAtOnce = 4096;
  std::vector<FieldPlace> places(std::min(samples.size(), kAtOnce));
  for (std::size_t first = 0; first < samples.size(); first += places.size()) {
    places.resize(std::min(samples.size() - first, kAtOnce));
    find(samples.subspan(first, places.size()), names, places);
    std::ranges::transform(places, sizes.begin() + static_cast<std::ptrdiff_t>(first),
                           &FieldPlace::size_or_zero);
  }
}

void FieldSizes::find(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                      std::span<FieldPlace> places) const {
  if (sides_.empty()) return find_own(samples, names, places);
  std::ranges::fill(places, FieldPlace());
  std::vector<FieldPlace> found(samples.size());
  const auto take = [&](FieldPlace& place, const FieldPlace& other, std::size_t source) {
    if (place.size_bytes != FieldPlace::kAbsent) return;
    place = other;
    place.source = other.source == 0 ? static_cast<std::uint32_t>(source) : FieldPlace::kUnknown;
  };
  for (const std::string& name : names) {
    find_own(samples, std::span(&name, 1), found);
    for (std::size_t i = 0; i < samples.size(); ++i) take(places[i], found[i], 0);
    for (std::size_t side = 0; side < sides_.size(); ++side) {
      const auto original = sides_[side].join->original(name);
      if (!original) continue;
      const JoinSide::Matched matched = sides_[side].join->matched(data_, samples);
      const std::span<FieldPlace> others(found.data(), matched.numbers.size());
      sides_[side].sizes.find(matched.numbers, std::span(&*original, 1), others);
      for (std::size_t i = 0; i < others.size(); ++i) {
        take(places[matched.places[i]], others[i], side + 1);
      }
    }
  }
}

/// Does what find() does, for the first dataset of a join.
void FieldSizes::find_own(std::span<const std::uint64_t> samples,
                          std::span<const std::string> names, std::span<FieldPlace> places) const {
  if (!segments_) {
    for (std::size_t i = 0; const Sample& sample : data_.samples(samples)) {
      const auto place = SampleAccess::find(sample, names);
      places[i++] = {.size_bytes = place ? sample.field(*place).bytes.size() : FieldPlace::kAbsent};
    }
    return;
  }
  walk(samples, names, places,
       [](const Shards& shards, const Shards::Entry& shard, std::uint32_t local) {
         const std::span<const MemberRecord> members = shard.segment->members(local);
         for (const std::uint32_t field : shards.fields(shard)) {
           for (const MemberRecord& member : members) {
             if (member.field() != field) continue;
             return FieldPlace{member.size_bytes, member.data_offset(),
                               static_cast<std::uint32_t>(shard.shard), 0};
           }
         }
         return FieldPlace();
       });
}

void FieldSizes::of_keys(std::span<const std::uint64_t> samples,
                         std::span<std::uint64_t> sizes) const {
  if (!segments_) {
    for (std::size_t i = 0; const Sample& sample : data_.samples(samples)) {
      sizes[i++] = sample.key().size();
    }
    return;
  }
  walk(samples, {}, sizes,
       [](const Shards&, const Shards::Entry& shard, std::uint32_t local) -> std::uint64_t {
         return shard.segment->key(local).size();
       });
}

}  // namespace shardwise::detail
