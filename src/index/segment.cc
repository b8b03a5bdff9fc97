#include "index/segment.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/ascii.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr std::size_t kFewFields = 16;
constexpr std::uint32_t kMaxFields = 1U << 24;
constexpr std::uint64_t kMaxBlock = 1ULL << 40;
constexpr std::uint64_t kMaxHeapBytes = std::numeric_limits<std::uint32_t>::max();

std::uint64_t round_up_8(std::uint64_t n) { return (n + 7) / 8 * 8; }

std::uint64_t counts_checksum(std::string_view segment) noexcept {
  return hash64(segment.substr(0, offsetof(SegmentHeader, counts_checksum)));
}

/// Returns hash64 of a segment's body, seeded with the checksum of the header's counts.
std::uint64_t segment_checksum(std::string_view segment) noexcept {
  return hash64(segment.substr(sizeof(SegmentHeader)), counts_checksum(segment));
}

constexpr std::uint32_t kMaxColumns = 1U << 16;

/// The offsets of a segment's arrays.
struct SegmentLayout {
  SegmentHeader header;
  std::uint64_t members = 0;
  std::uint64_t member_hashes = 0;
  std::uint64_t values = 0;
  std::uint64_t field_ends = 0;
  std::uint64_t value_types = 0;
  std::uint64_t field_names = 0;
  std::uint64_t value_heap = 0;
  std::uint64_t keys = 0;
};

/// Returns the layout that the header's counts describe, or nullopt if the counts are damaged, or
/// the layout's size is not that of `bytes`.
std::optional<SegmentLayout> segment_layout(std::string_view bytes) noexcept {
  SegmentLayout layout{};
  SegmentHeader& header = layout.header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.counts_checksum != counts_checksum(bytes)) return std::nullopt;
  // Sums of 32-bit counts times small sizes cannot overflow 64 bits. Counts of 64 bits are
  // therefore checked first.
  const std::uint64_t limit = bytes.size();
  if (header.segment_bytes != limit || header.key_bytes > limit || header.value_bytes > limit ||
      header.num_columns > kMaxColumns || (header.flags & ~kHasMemberHashes) != 0) {
    return std::nullopt;
  }
  const std::uint64_t num_values = std::uint64_t{header.num_columns} * header.num_samples;
  layout.members = sizeof header + (std::uint64_t{header.num_samples} + 1) * sizeof(SampleRecord);
  layout.member_hashes = layout.members + std::uint64_t{header.num_members} * sizeof(MemberRecord);
  layout.values =
      layout.member_hashes +
      ((header.flags & kHasMemberHashes) != 0 ? std::uint64_t{header.num_members} * 8 : 0);
  layout.field_ends = layout.values + num_values * 8;
  layout.value_types =
      layout.field_ends + (std::uint64_t{header.num_fields} + 1) * sizeof(std::uint32_t);
  layout.field_names = layout.value_types + num_values;
  layout.value_heap = layout.field_names + header.field_bytes;
  layout.keys = layout.value_heap + header.value_bytes;
  if (round_up_8(layout.keys + header.key_bytes) != bytes.size()) return std::nullopt;
  return layout;
}

template <class T>
void append_array(std::string& out, const std::vector<T>& values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

void SegmentBuilder::begin_sample(std::string_view key) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  if (keys_.size() + key.size() > kMax || samples_.size() + 1 >= kMax) {
    throw CorruptShard("the shard has too many samples", in_quotes(shard_),
                       "split the shard; an index holds up to 4 GiB of keys per shard");
  }
  samples_.push_back({num_members(), static_cast<std::uint32_t>(keys_.size())});
  keys_ += key;
}

bool SegmentBuilder::add_member(std::string_view field, std::uint64_t data_offset,
                                std::uint64_t size_bytes, std::uint64_t content_hash) {
  const std::uint32_t number = field_number(field);
  if (number >= last_sample_with_.size()) last_sample_with_.resize(number + 1);
  if (last_sample_with_[number] == samples_.size()) return false;
  const std::uint64_t block = data_offset / kTarBlockBytes;
  if (data_offset % kTarBlockBytes != 0 || block >= kMaxBlock ||
      members_.size() >= std::numeric_limits<std::uint32_t>::max()) {
    throw CorruptShard("the shard has more members or bytes than an index can hold",
                       in_quotes(shard_), "split the shard");
  }
  last_sample_with_[number] = num_samples();
  members_.push_back({size_bytes, block << 24 | number});
  if (with_member_hashes_) member_hashes_.push_back(content_hash);
  return true;
}

void SegmentBuilder::set_value(std::uint32_t column, const MetadataValue& value) {
  Value stored{value.type, 0};
  switch (value.type) {
    case ValueType::kNull:
      break;
    case ValueType::kInteger:
      stored.bits = static_cast<std::uint64_t>(value.integer);
      break;
    case ValueType::kReal:
      std::memcpy(&stored.bits, &value.real, sizeof stored.bits);
      break;
    case ValueType::kText:
    case ValueType::kBlob:
      if (values_.size() + value.bytes.size() > kMaxHeapBytes) {
        throw CorruptShard("the shard has more than 4 GiB of metadata", in_quotes(shard_),
                           "split the shard, or ask for fewer columns");
      }
      stored.bits = values_.size() << 32 | value.bytes.size();
      values_ += value.bytes;
  }
  columns_[column].resize(samples_.size());
  columns_[column].back() = stored;
}

std::uint32_t SegmentBuilder::field_number(std::string_view field) {
  lower_.assign(field);
  for (char& c : lower_) c = to_lower(c);
  if (fields_.size() <= kFewFields) {
    const auto it = std::find(fields_.begin(), fields_.end(), lower_);
    if (it != fields_.end()) return static_cast<std::uint32_t>(it - fields_.begin());
  } else {
    if (field_numbers_.empty()) {
      for (std::uint32_t i = 0; i < fields_.size(); ++i) field_numbers_.emplace(fields_[i], i);
    }
    const auto it = field_numbers_.find(lower_);
    if (it != field_numbers_.end()) return it->second;
  }
  const auto number = static_cast<std::uint32_t>(fields_.size());
  if (number >= kMaxFields) {
    throw CorruptShard(
        "the shard has more than 16 million different fields", in_quotes(shard_),
        "rename the members; a field is the part of the file name after the first dot");
  }
  fields_.push_back(lower_);
  if (!field_numbers_.empty()) field_numbers_.emplace(lower_, number);
  return number;
}

std::string_view SegmentBuilder::key(std::uint32_t sample) const noexcept {
  const std::size_t begin = samples_[sample].first_key_byte;
  const std::size_t end =
      sample + 1 < samples_.size() ? samples_[sample + 1].first_key_byte : keys_.size();
  return std::string_view(keys_).substr(begin, end - begin);
}

void SegmentBuilder::drop_samples(const std::vector<bool>& drop) {
  SegmentBuilder kept(shard_, static_cast<std::uint32_t>(columns_.size()), with_member_hashes_);
  // kept.values_ still contains the values of dropped samples. They are not used.
  kept.values_ = std::move(values_);
  kept.fields_ = std::move(fields_);
  kept.field_numbers_ = std::move(field_numbers_);
  for (std::uint32_t i = 0; i < samples_.size(); ++i) {
    if (drop[i]) continue;
    kept.begin_sample(key(i));
    const auto begin = members_.begin() + samples_[i].first_member;
    const auto end =
        i + 1 < samples_.size() ? members_.begin() + samples_[i + 1].first_member : members_.end();
    kept.members_.insert(kept.members_.end(), begin, end);
    if (with_member_hashes_) {
      const auto hashes = member_hashes_.begin() + (begin - members_.begin());
      kept.member_hashes_.insert(kept.member_hashes_.end(), hashes, hashes + (end - begin));
    }
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (i >= columns_[c].size()) continue;
      kept.columns_[c].resize(kept.samples_.size());
      kept.columns_[c].back() = columns_[c][i];
    }
  }
  *this = std::move(kept);
}

void SegmentBuilder::drop_empty_last() {
  if (samples_.empty() || samples_.back().first_member != members_.size()) return;
  keys_.resize(samples_.back().first_key_byte);
  samples_.pop_back();
  for (auto& column : columns_) column.resize(std::min(column.size(), samples_.size()));
}

std::string SegmentBuilder::finish() const {
  std::vector<std::uint32_t> field_ends{0};
  std::string field_names;
  for (const std::string& field : fields_) {
    field_names += field;
    if (field_names.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw CorruptShard("the shard has more than 4 GiB of field names", in_quotes(shard_),
                         "shorten the members' names after the first dot");
    }
    field_ends.push_back(static_cast<std::uint32_t>(field_names.size()));
  }
  SegmentHeader header{};
  header.num_samples = num_samples();
  header.num_members = num_members();
  header.num_fields = static_cast<std::uint32_t>(fields_.size());
  header.num_columns = static_cast<std::uint32_t>(columns_.size());
  header.field_bytes = static_cast<std::uint32_t>(field_names.size());
  header.flags = with_member_hashes_ ? kHasMemberHashes : 0;
  header.value_bytes = values_.size();
  header.key_bytes = keys_.size();
  std::vector<std::uint64_t> values;
  std::string value_types;
  for (const auto& column : columns_) {
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const Value value = i < column.size() ? column[i] : Value{};
      values.push_back(value.bits);
      value_types += static_cast<char>(value.type);
    }
  }
  header.segment_bytes =
      round_up_8(sizeof header + (samples_.size() + 1) * sizeof(SampleRecord) +
                 members_.size() * sizeof(MemberRecord) + member_hashes_.size() * 8 +
                 values.size() * 9 + field_ends.size() * sizeof(std::uint32_t) +
                 field_names.size() + values_.size() + keys_.size());
  std::string out;
  out.reserve(header.segment_bytes);
  out.resize(sizeof header);
  append_array(out, samples_);
  append_array(
      out, std::vector<SampleRecord>{{num_members(), static_cast<std::uint32_t>(keys_.size())}});
  append_array(out, members_);
  append_array(out, member_hashes_);
  append_array(out, values);
  append_array(out, field_ends);
  out += value_types;
  out += field_names;
  out += values_;
  out += keys_;
  out.resize(header.segment_bytes);
  std::memcpy(out.data(), &header, sizeof header);
  header.counts_checksum = counts_checksum(out);
  header.checksum = segment_checksum(out);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

const char* SegmentView::damage(std::string_view bytes) noexcept {
  const auto layout = segment_layout(bytes);
  if (!layout) return "a segment's counts are wrong";
  if (segment_checksum(bytes) != layout->header.checksum) return "a segment's checksum is wrong";
  return nullptr;
}

std::optional<SegmentView> SegmentView::check(std::string_view bytes, std::string* why) {
  const auto fail = [&](const char* reason) {
    *why = reason;
    return std::nullopt;
  };
  if (const char* const damaged = damage(bytes)) return fail(damaged);
  const auto layout = segment_layout(bytes);
  const SegmentHeader& header = layout->header;

  SegmentView view;
  view.samples_ = reinterpret_cast<const SampleRecord*>(bytes.data() + sizeof header);
  view.members_ = reinterpret_cast<const MemberRecord*>(bytes.data() + layout->members);
  view.field_ends_ = reinterpret_cast<const std::uint32_t*>(bytes.data() + layout->field_ends);
  if ((header.flags & kHasMemberHashes) != 0) {
    view.member_hashes_ =
        reinterpret_cast<const std::uint64_t*>(bytes.data() + layout->member_hashes);
  }
  view.values_ = reinterpret_cast<const std::uint64_t*>(bytes.data() + layout->values);
  view.value_types_ = reinterpret_cast<const ValueType*>(bytes.data() + layout->value_types);
  view.value_heap_ = bytes.data() + layout->value_heap;
  view.field_names_ = bytes.data() + layout->field_names;
  view.keys_ = bytes.data() + layout->keys;
  view.num_samples_ = header.num_samples;
  view.num_members_ = header.num_members;
  view.num_fields_ = header.num_fields;
  view.num_columns_ = header.num_columns;

  // A hostile file may have a valid checksum, so every relation is also checked.
  if (view.samples_[0].first_member != 0 || view.samples_[0].first_key_byte != 0 ||
      view.samples_[header.num_samples].first_member != header.num_members ||
      view.samples_[header.num_samples].first_key_byte != header.key_bytes) {
    return fail("a segment's sample records are wrong");
  }
  bool uniform = true;
  const std::uint32_t members_a_sample =
      header.num_samples == 0 ? 0 : view.samples_[1].first_member;
  for (std::uint32_t i = 0; i < header.num_samples; ++i) {
    const std::uint32_t begin = view.samples_[i].first_member;
    const std::uint32_t end = view.samples_[i + 1].first_member;
    if (begin > end || view.samples_[i].first_key_byte > view.samples_[i + 1].first_key_byte) {
      return fail("a segment's sample records are wrong");
    }
    uniform = uniform && end - begin == members_a_sample;
  }
  if (uniform) view.members_a_sample_ = members_a_sample;
  if (view.field_ends_[0] != 0 || view.field_ends_[header.num_fields] != header.field_bytes) {
    return fail("a segment's field names are wrong");
  }
  for (std::uint32_t i = 0; i < header.num_fields; ++i) {
    if (view.field_ends_[i] > view.field_ends_[i + 1])
      return fail("a segment's field names are wrong");
  }
  for (std::uint32_t i = 0; i < header.num_members; ++i) {
    if (view.members_[i].field() >= header.num_fields)
      return fail("a segment's member records are wrong");
  }
  const std::uint64_t num_values = std::uint64_t{header.num_columns} * header.num_samples;
  for (std::uint64_t i = 0; i < num_values; ++i) {
    const ValueType type = view.value_types_[i];
    const bool in_heap = type == ValueType::kText || type == ValueType::kBlob;
    if (type > ValueType::kBlob ||
        (in_heap &&
         !range_fits(view.values_[i] >> 32, view.values_[i] & 0xFFFFFFFF, header.value_bytes))) {
      return fail("a segment's metadata is wrong");
    }
  }
  return view;
}

MetadataValue SegmentView::value(std::uint32_t column, std::uint32_t i) const noexcept {
  SHARDWISE_ASSERT_HOT(column < num_columns_ && i < num_samples_);
  const std::uint64_t at = std::uint64_t{column} * num_samples_ + i;
  const std::uint64_t bits = values_[at];
  MetadataValue value;
  value.type = value_types_[at];
  switch (value.type) {
    case ValueType::kNull:
      break;
    case ValueType::kInteger:
      value.integer = static_cast<std::int64_t>(bits);
      break;
    case ValueType::kReal:
      std::memcpy(&value.real, &bits, sizeof bits);
      break;
    case ValueType::kText:
    case ValueType::kBlob:
      value.bytes = {value_heap_ + (bits >> 32), bits & 0xFFFFFFFF};
      break;
  }
  return value;
}

std::optional<std::string_view> SegmentView::find_key(std::string_view bytes,
                                                      std::uint64_t i) noexcept {
  const auto layout = segment_layout(bytes);
  if (!layout || i >= layout->header.num_samples) return std::nullopt;
  SampleRecord records[2];
  std::memcpy(records, bytes.data() + sizeof(SegmentHeader) + i * sizeof(SampleRecord),
              sizeof records);
  const std::uint32_t begin = records[0].first_key_byte;
  const std::uint32_t end = records[1].first_key_byte;
  if (begin > end || end > layout->header.key_bytes) return std::nullopt;
  return bytes.substr(layout->keys + begin, end - begin);
}

bool SegmentView::fits_shard(std::uint64_t shard_bytes) const noexcept {
  return std::all_of(members_, members_ + num_members_, [&](const MemberRecord& member) {
    return range_fits(member.data_offset(), member.size_bytes, shard_bytes);
  });
}

}  // namespace shardwise
