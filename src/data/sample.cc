#include "shardwise/data/sample.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/ascii.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/mapped_read.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "data/joined_sample.h"
#include "data/open_shard.h"
#include "data/own_bytes.h"
#include "data/sample_access.h"
#include "index/offset_table.h"
#include "index/side_tables.h"
#include "shardwise/base/error.h"
#include "storage/shard_handle.h"

namespace shardwise {

Sample::Sample(ShardHandle<detail::OpenShard>&& shard, std::uint64_t index) noexcept
    : shard_(shard.get()),
      index_(index),
      local_(static_cast<std::uint32_t>(index - shard_->first_sample)) {
  pin_ = shard.release();
  const std::span<const MemberRecord> members = shard_->segment.members(local_);
  members_ = members.data();
  num_members_ = static_cast<std::uint32_t>(members.size());
}

Sample::~Sample() {
  if (pin_ != nullptr) pin_->unpin();
  if (joined_ != nullptr) [[unlikely]]
    delete joined_;
}

Sample::Sample(const Sample& other)
    : shard_(other.shard_),
      own_(other.own_),
      members_(other.members_),
      joined_(other.joined_ == nullptr ? nullptr : new detail::JoinedSample(*other.joined_)),
      index_(other.index_),
      num_members_(other.num_members_),
      local_(other.local_) {
  pin_ = other.pin_;
  if (pin_ != nullptr) pin_->pin_again();
}

Sample::Sample(Sample&& other) noexcept
    : pin_(std::exchange(other.pin_, nullptr)),
      shard_(other.shard_),
      own_(std::move(other.own_)),
      members_(other.members_),
      joined_(std::exchange(other.joined_, nullptr)),
      index_(other.index_),
      num_members_(other.num_members_),
      local_(other.local_) {}

Sample& Sample::operator=(Sample other) noexcept {
  std::swap(pin_, other.pin_);
  std::swap(shard_, other.shard_);
  std::swap(own_, other.own_);
  std::swap(members_, other.members_);
  std::swap(joined_, other.joined_);
  std::swap(index_, other.index_);
  std::swap(num_members_, other.num_members_);
  std::swap(local_, other.local_);
  return *this;
}

std::uint64_t Sample::number_in_index() const noexcept { return shard_->first_sample + local_; }

std::string_view Sample::key() const& noexcept { return shard_->segment.key(local_); }

std::size_t Sample::num_all_fields() const noexcept {
  std::size_t count = num_members_;
  for (const auto* other = joined_; other != nullptr; other = other->next.get()) {
    count += other->sample.num_fields();
  }
  return count;
}

inline Sample::Place Sample::place_of(std::size_t i) const noexcept {
  SHARDWISE_ASSERT_HOT(i < num_fields());
  if (i < num_members_) [[likely]]
    return {this, i};
  return joined_place(i);
}

/// REQUIRES: num_members_ <= i < num_fields().
Sample::Place Sample::joined_place(std::size_t i) const noexcept {
  i -= num_members_;
  const detail::JoinedSample* other = joined_;
  for (; i >= other->sample.num_fields(); other = other->next.get()) {
    i -= other->sample.num_fields();
  }
  return other->sample.place_of(i);
}

inline std::string_view Sample::bytes_of(std::size_t member) const noexcept {
  const MemberRecord& record = members_[member];
  if (own_) [[unlikely]] {
    const std::size_t start = own_->starts[member];
    return {start == detail::OwnBytes::kInParts ? nullptr : own_->at + start, record.size_bytes};
  }
  // When the shard was opened, this range was checked against the size of the mapping.
  return {shard_->data + record.data_offset(), record.size_bytes};
}

Sample::Field Sample::field(std::size_t i) const& noexcept {
  SHARDWISE_ASSERT_HOT(i < num_fields());
  if (i < num_members_) [[likely]]
    return {shard_->segment.field_name(members_[i].field()), bytes_of(i)};
  return joined_field(i);
}

/// REQUIRES: num_members_ <= i < num_fields().
Sample::Field Sample::joined_field(std::size_t i) const noexcept {
  i -= num_members_;
  const detail::JoinedSample* other = joined_;
  for (; i >= other->sample.num_fields(); other = other->next.get()) {
    i -= other->sample.num_fields();
  }
  Field field = other->sample.field(i);
  field.name = other->names->shown(field.name);
  return field;
}

inline std::optional<std::size_t> Sample::number_of(std::string_view field) const noexcept {
  for (std::size_t i = 0; i < num_members_; ++i) {
    if (shard_->segment.field_name(members_[i].field()) == field) return i;
  }
  if (joined_ != nullptr) [[unlikely]]
    return joined_number(field);
  return std::nullopt;
}

std::optional<std::size_t> Sample::joined_number(std::string_view field) const noexcept {
  std::size_t first = num_members_;
  for (const auto* other = joined_; other != nullptr; other = other->next.get()) {
    const auto name = other->names->original(field);
    const auto i = name ? other->sample.number_of(*name) : std::nullopt;
    if (i) return first + *i;
    first += other->sample.num_fields();
  }
  return std::nullopt;
}

std::size_t Sample::require(std::string_view field) const {
  if (const auto i = number_of(field)) return *i;
  throw_missing(field);
}

void Sample::throw_missing(std::string_view field) const {
  std::string fields;
  for (std::size_t i = 0; i < num_fields(); ++i) {
    fields += (i == 0 ? "" : ", ") + escaped(this->field(i).name);
  }
  if (field.starts_with('.')) {
    const std::string_view name = field.substr(1);
    throw NotFound("no field " + in_quotes(field), describe(),
                   "write names of fields without the leading dot: " +
                       (contains(name) ? "use \"" + escaped(name) + "\""
                                       : "the sample's fields are " + fields));
  }
  throw NotFound("no field " + in_quotes(field), describe(), "its fields are " + fields);
}

std::optional<std::string_view> Sample::find(std::string_view field) const& noexcept {
  const auto i = number_of(field);
  if (!i) return std::nullopt;
  const auto [sample, member] = place_of(*i);
  return sample->bytes_of(member);
}

std::string_view Sample::operator[](std::string_view field) const& {
  const auto i = number_of(field);
  if (!i) [[unlikely]]
    throw_missing(field);
  const auto [sample, member] = place_of(*i);
  return sample->bytes_of(member);
}

bool Sample::contains(std::string_view field) const noexcept {
  return number_of(field).has_value();
}

std::int64_t Sample::integer(std::string_view field) const {
  const auto [sample, member] = place_of(require(field));
  return sample->integer_of(member, field);
}

/// @param field  its name, for errors.
std::int64_t Sample::integer_of(std::size_t member, std::string_view field) const {
  std::string_view bytes = bytes_of(member);
  char small[64];
  std::string large;
  if (!own_) {
    if (bytes.size() > sizeof small) {
      large = copy_of(member);
      bytes = large;
    } else if (copy_mapped(small, bytes.data(), bytes.size(), Look::kOnceATick)) {
      bytes = {small, bytes.size()};
    } else {
      throw_unreadable(member);
    }
  }
  if (const auto value = parse_int64(trimmed(bytes))) return *value;
  // The file may have been truncated: bytes beyond its end read as zeros.
  if (!own_) require_unchanged_map(member);
  throw BadField(
      "the field " + in_quotes(field) + " is not an integer: " + in_quotes(bytes.substr(0, 40)),
      describe(), "name a field of integers, or repair the shard");
}

std::string Sample::copy(std::string_view field) const { return copy_of(require(field)); }

std::string Sample::copy_of(std::size_t i) const {
  std::string copied(field(i).bytes.size(), '\0');
  detail::SampleAccess::copy_unchanged(
      *this, i, {reinterpret_cast<std::byte*>(copied.data()), copied.size()});
  return copied;
}

std::optional<std::size_t> detail::SampleAccess::find(
    const Sample& sample, std::span<const std::string> fields) noexcept {
  for (const std::string& field : fields) {
    if (const auto place = sample.number_of(field)) return place;
  }
  return std::nullopt;
}

void detail::SampleAccess::set_joined(Sample& sample,
                                      std::unique_ptr<JoinedSample> joined) noexcept {
  delete std::exchange(sample.joined_, joined.release());
}

void detail::SampleAccess::copy(const Sample& sample, std::size_t place, std::span<std::byte> to) {
  const auto [owner, member] = sample.place_of(place);
  const std::string_view bytes = owner->bytes_of(member);
  SHARDWISE_ASSERT(bytes.size() == to.size());
  if (bytes.empty()) return;
  if (owner->own_) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
  } else if (!copy_mapped(to.data(), bytes.data(), bytes.size(), Look::kOnceATick)) {
    owner->throw_unreadable(member);
  }
}

void detail::SampleAccess::copy_unchanged(const Sample& sample, std::size_t place,
                                          std::span<std::byte> to) {
  const auto [owner, member] = sample.place_of(place);
  const std::string_view bytes = owner->bytes_of(member);
  SHARDWISE_ASSERT(bytes.size() == to.size());
  if (owner->own_) {
    std::ranges::copy(std::as_bytes(std::span(bytes)), to.begin());
    return;
  }
  if (!copy_mapped(to.data(), bytes.data(), bytes.size())) owner->throw_unreadable(member);
  owner->require_unchanged_map(member);
}

namespace {

/// A member that is read in parts.
class MemberSource final : public detail::ByteSource {
 public:
  /// @param part  the part's `to` is ignored.
  MemberSource(std::shared_ptr<const detail::MemberReader> reader, const detail::MemberPart& whole,
               std::uint64_t size_bytes)
      : reader_(std::move(reader)), whole_(whole), size_bytes_(size_bytes) {}

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_bytes_; }
  void read_parts(std::span<const Part> parts) const override {
    std::vector<detail::MemberPart> in_shard;
    in_shard.reserve(parts.size());
    for (const auto& [offset, to] : parts) {
      SHARDWISE_ASSERT(offset <= size_bytes_ && to.size() <= size_bytes_ - offset);
      in_shard.push_back({whole_.sample, whole_.field, whole_.offset + offset, to});
    }
    reader_->read(in_shard);
  }
  [[nodiscard]] bool is_remote() const noexcept override { return reader_->is_remote(); }
  [[nodiscard]] std::size_t cheap_read_bytes() const noexcept override {
    return reader_->cheap_read_bytes();
  }

 private:
  const std::shared_ptr<const detail::MemberReader> reader_;
  const detail::MemberPart whole_;
  const std::uint64_t size_bytes_;
};

}  // namespace

std::unique_ptr<detail::ByteSource> detail::SampleAccess::open_field(const Sample& sample,
                                                                     std::size_t place) {
  const auto [owner, member] = sample.place_of(place);
  if (!owner->own_ || owner->own_->starts[member] != OwnBytes::kInParts) return nullptr;
  const MemberRecord& record = owner->members_[member];
  const MemberPart whole{
      *owner, owner->shard_->segment.field_name(record.field()), record.data_offset(), {}};
  return std::make_unique<MemberSource>(owner->own_->reader, whole, record.size_bytes);
}

std::uint64_t detail::SampleAccess::bytes_in_memory(const Sample& sample) noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < sample.num_members_; ++i) {
    const bool is_there = !sample.own_ || sample.own_->starts[i] != OwnBytes::kInParts;
    bytes += is_there ? sample.members_[i].size_bytes : 0;
  }
  return bytes;
}

const Index* detail::SampleAccess::index_of(const Sample& sample) noexcept {
  return sample.shard_->index.get();
}

std::optional<detail::MetadataValue> detail::SampleAccess::metadata(const Sample& sample,
                                                                    std::string_view column) {
  const Index* const index = index_of(sample);
  const auto found = index ? find_metadata_column(*index, column) : std::nullopt;
  if (found && found->table != nullptr) return found->table->value_of(sample.key(), found->place);
  if (found) return sample.shard_->segment.value(found->place, sample.local_);
  for (const auto* other = sample.joined_; other != nullptr; other = other->next.get()) {
    if (!other->names->has_column(column)) continue;
    if (other->sample.shard_ == nullptr) return detail::MetadataValue();
    return metadata(other->sample, column);
  }
  return std::nullopt;
}

void detail::SampleAccess::require_unchanged(const Sample& sample, std::size_t place) {
  const auto [owner, member] = sample.place_of(place);
  if (!owner->own_) owner->require_unchanged_map(member);
}

void Sample::require_unchanged_map(std::size_t member) const {
  if (shard_->is_unchanged()) return;
  const std::uint64_t offset = members_[member].data_offset();
  const FileIdentity& then = shard_->map->identity();
  std::optional<FileIdentity> now;
  try {
    now = file_identity(shard_->path);
  } catch (const Error&) {
  }
  if (now && now->device == then.device && now->inode == then.inode) {
    return detail::require_same_file(*now, then, describe() + ", offset " + std::to_string(offset));
  }
  throw StaleIndex("the shard's file was changed while it was open",
                   describe() + ", offset " + std::to_string(offset),
                   "open the dataset again; if the shard's content changed, first run " +
                       spelled("`shardwise index` again"));
}

void Sample::throw_unreadable(std::size_t member) const {
  require_unchanged_map(member);
  throw Error(ErrorCode::kIo, "cannot read a page of the mapped shard",
              describe() + ", offset " + std::to_string(members_[member].data_offset()),
              "check the disk; if the shard was replaced, open the dataset again");
}

std::string Sample::describe() const {
  return "sample " + std::to_string(number_in_index()) + " (" + in_quotes(key()) + ") in shard " +
         in_quotes(without_secrets(shard_->path));
}

const std::string& Sample::shard_path() const& noexcept { return shard_->path; }

}  // namespace shardwise
