#include "shardwise/data/sample.h"

#include "data/open_shard.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace

Sample::Sample(ShardHandle<detail::OpenShard> shard, std::uint64_t index) noexcept
    : shard_(std::move(shard)),
      index_(index),
      local_(static_cast<std::uint32_t>(index - shard_->first_sample)) {
  members_ = shard_->segment.members(local_);
}

std::string_view Sample::key() const& noexcept { return shard_->segment.key(local_); }

std::string_view Sample::bytes_of(const MemberRecord& member) const noexcept {
  // The range was checked against the mapping when the shard was opened.
  return {shard_->file.bytes().data() + member.data_offset(), member.size_bytes};
}

Field Sample::field(std::size_t i) const& noexcept {
  const MemberRecord& member = members_[i];
  return {shard_->segment.field_name(member.field()), bytes_of(member)};
}

std::optional<std::string_view> Sample::find(std::string_view field) const& noexcept {
  for (const MemberRecord& member : members_) {
    if (shard_->segment.field_name(member.field()) == field) return bytes_of(member);
  }
  return std::nullopt;
}

std::string_view Sample::operator[](std::string_view field) const& {
  if (const auto bytes = find(field)) return *bytes;
  std::string fields;
  for (std::size_t i = 0; i < num_fields(); ++i) {
    fields += (i == 0 ? "" : ", ") + escaped(this->field(i).name);
  }
  throw NotFound("no field " + in_quotes(field), describe(), "its fields are " + fields);
}

bool Sample::contains(std::string_view field) const noexcept { return find(field).has_value(); }

std::int64_t Sample::integer(std::string_view field) const {
  const std::string_view bytes = (*this)[field];
  if (const auto value = parse_int64(trimmed(bytes))) return *value;
  throw BadField("the field " + in_quotes(field) + " holds no whole number but " +
                     in_quotes(bytes.substr(0, 40)),
                 describe(), "read it as bytes, or mend the shard");
}

std::string Sample::copy(std::string_view field) const { return std::string((*this)[field]); }

std::string Sample::describe() const {
  return "sample " + std::to_string(index_) + " (" + in_quotes(key()) + ") in shard " +
         in_quotes(shard_->path);
}

const std::string& Sample::shard_path() const& noexcept { return shard_->path; }

}  // namespace shardwise
