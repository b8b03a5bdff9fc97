#include "ingest/shard_scan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/segment.h"
#include "ingest/column_reader.h"
#include "ingest/earlier_members.h"
#include "ingest/shard_bytes.h"
#include "shardwise/base/hash.h"
#include "tar/sample_name.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

/// True if WebDataset would read a member with this name as a field of a sample.
bool names_a_field(std::string_view name) {
  return !is_meta_name(name) && split_sample_name(name).has_value();
}

std::string link_text(const TarOther& link) {
  const bool hard = link.type == TarOther::Type::kHardLink;
  return std::string(hard ? "a hard" : "a symbolic") + " link to " + in_quotes(link.target);
}

/// Returns the command that skips members of this kind. The text names the command because indexes
/// are also built at first use, without any command.
std::string command_that_skips(Index::SkippedMember::Kind kind) {
  switch (kind) {
    case Index::SkippedMember::Kind::kNoField:
      return spelled("`shardwise index --on-no-field skip`");
    case Index::SkippedMember::Kind::kDuplicateField:
      return spelled("`shardwise index --on-duplicate-field skip`");
    case Index::SkippedMember::Kind::kRepeatedKey:
      return spelled("`shardwise index --on-repeated-key skip`");
    default:
      return spelled("`shardwise index --on-bad skip`");
  }
}

/// Groups a shard's members into the samples of a segment, in the order in which they are added.
class SampleGrouper {
 public:
  SampleGrouper(const std::string& path, const ShardScanOptions& options)
      : path_(path),
        options_(options),
        builder_(path, static_cast<std::uint32_t>(options.columns.size()), options.hash) {
    if (!options.columns.empty()) columns_.emplace(options.columns);
  }

  /// @param data  the member's bytes; used only for hashes or columns.
  void add(const TarMember& member, std::string_view data) {
    if (is_meta_name(member.name)) {
      leave_out(Index::SkippedMember::Kind::kMetaName, member.header_offset, member.name,
                "a name that webdataset reserves");
      return;
    }
    const auto name = split_sample_name(member.name);
    if (!name) {
      refuse(Index::SkippedMember::Kind::kNoField, options_.policies.no_field, member.header_offset,
             member.name,
             is_hidden_name(member.name) ? "the member is a hidden file, which has no key"
                                         : "the name has no key and field, as in KEY.FIELD",
             "rename or remove the member");
      return;
    }
    if (!builder_.has_open_sample() || builder_.last_key() != name->key) {
      builder_.drop_empty_last();
      header_offsets_.resize(builder_.num_samples());
      header_offsets_.push_back(member.header_offset);
      builder_.begin_sample(name->key);
    }
    const std::uint64_t hash = options_.hash ? hash64(data) : 0;
    if (!builder_.add_member(name->field, member.data_offset, member.size_bytes, hash)) {
      refuse(
          Index::SkippedMember::Kind::kDuplicateField, options_.policies.duplicate_field,
          member.header_offset, member.name,
          "the field '" + escaped(name->field) + "' occurs twice in sample " + in_quotes(name->key),
          "repack the shard with each field once per sample");
      return;
    }
    if (columns_) set_columns(member, name->field, data);
  }

  /// Records an entry that is not a member: an unresolved link, a device or a FIFO.
  void add_other(const TarOther& other) {
    if (other.type == TarOther::Type::kSpecial) {
      leave_out(Index::SkippedMember::Kind::kSpecial, other.header_offset, other.name,
                "a device or FIFO");
      return;
    }
    const DefectPolicies::OnLink policy = options_.policies.link;
    if (policy != DefectPolicies::OnLink::kSkip && names_a_field(other.name)) {
      const bool hard = other.type == TarOther::Type::kHardLink;
      std::string what = "the entry is " + link_text(other) + ", but is named like a member";
      if (policy == DefectPolicies::OnLink::kResolve) {
        what += hard ? "; no earlier member of the shard has the target's name"
                     : "; symbolic links are never followed";
      }
      throw Unsupported(what, where(other.header_offset, other.name),
                        policy == DefectPolicies::OnLink::kError && hard
                            ? "use " + spelled("`shardwise index --on-link resolve`") +
                                  ", which reads the target's bytes, or " +
                                  spelled("`shardwise index --on-link skip`") +
                                  ", which leaves out the link"
                            : "repack the shard with `tar --dereference --hard-dereference`, or "
                              "leave out the links with " +
                                  spelled("`shardwise index --on-link skip`"));
    }
    leave_out(Index::SkippedMember::Kind::kLink, other.header_offset, other.name, link_text(other));
  }

  /// Ends the grouping. Throws if two samples have the same key. Returns the hashes of all keys.
  std::vector<std::uint64_t> finish() {
    builder_.drop_empty_last();
    std::vector<std::uint64_t> hashes(builder_.num_samples());
    for (std::uint32_t i = 0; i < hashes.size(); ++i) hashes[i] = hash64(builder_.key(i));
    std::vector<std::uint32_t> order(hashes.size());
    std::iota(order.begin(), order.end(), 0U);
    // Sorting by hash makes equal keys adjacent. Different keys may have the same hash, because an
    // attacker can construct such keys.
    std::uint64_t num_compared = 0;
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (++num_compared % 65'536 == 0) options_.cancel.throw_if_cancelled();
      if (hashes[a] != hashes[b]) return hashes[a] < hashes[b];
      const int keys = builder_.key(a).compare(builder_.key(b));
      return keys != 0 ? keys < 0 : a < b;
    });
    std::vector<bool> drop(hashes.size());
    bool any = false;
    const bool look = options_.policies.repeated_key != DefectPolicies::OnDefect::kKeep;
    for (std::size_t first = 0, i = 1; look && i < order.size(); ++i) {
      if (hashes[order[first]] == hashes[order[i]] &&
          builder_.key(order[first]) == builder_.key(order[i])) {
        refuse_second_place(order[first], order[i]);
        drop[order[i]] = any = true;
      } else {
        first = i;
      }
    }
    refuse_bad_values(drop);
    if (!any) return hashes;
    builder_.drop_samples(drop);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      if (!drop[i]) hashes[kept++] = hashes[i];
    }
    hashes.resize(kept);
    return hashes;
  }

  const SegmentBuilder& builder() const noexcept { return builder_; }
  std::vector<Index::SkippedMember>& skipped() noexcept { return skipped_; }

 private:
  struct BadValue {
    std::uint32_t sample;
    std::uint64_t header_offset;
    std::string member;
    std::string what;
    std::string_view remedy;
  };

  void set_columns(const TarMember& member, std::string_view field, std::string_view data) {
    for (std::size_t i = 0; i < options_.columns.size(); ++i) {
      if (!same_field(options_.columns[i].field, field)) continue;
      if (member.size_bytes > kMaxColumnFieldBytes) {
        refuse_value(member, "a field of more than 1 MiB cannot be a metadata column",
                     "ask for another column");
      } else if (const auto why = columns_->too_large(i, data)) {
        refuse_value(member, *why,
                     "choose another field, or a part of this field (FIELD:JSONPATH)");
      } else {
        set_column(i, member, data);
      }
    }
  }

  void set_column(std::size_t column, const TarMember& member, std::string_view data) {
    try {
      builder_.set_value(static_cast<std::uint32_t>(column), columns_->read(column, data));
    } catch (const JsonFault& fault) {
      refuse_value(member,
                   "column " + in_quotes(options_.columns[column].name) +
                       " needs JSON, but the field is not JSON (" + escaped(fault.text()) + ")",
                   "repair the shard, or ask for another column");
    }
  }

  /// Records that a value of the last sample does not fit a column. This becomes an error only if
  /// the sample is kept.
  void refuse_value(const TarMember& member, std::string what, std::string_view remedy) {
    bad_values_.push_back({builder_.num_samples() - 1, member.header_offset,
                           std::string(member.name), std::move(what), remedy});
    if (options_.policies.repeated_key != DefectPolicies::OnDefect::kSkip) refuse_bad_values({});
  }

  /// @param drop  true for each sample that is excluded; empty if none is excluded.
  void refuse_bad_values(const std::vector<bool>& drop) {
    for (const BadValue& bad : bad_values_) {
      if (!drop.empty() && drop[bad.sample]) continue;
      refuse(Index::SkippedMember::Kind::kNoValue, options_.policies.damage, bad.header_offset,
             bad.member, bad.what, bad.remedy);
    }
    bad_values_.clear();
  }

  std::string where(std::uint64_t offset, std::string_view name) const {
    return in_quotes(path_) + ", offset " + std::to_string(offset) + ", member " + in_quotes(name);
  }

  void refuse(Index::SkippedMember::Kind kind, DefectPolicies::OnDefect policy,
              std::uint64_t offset, std::string_view name, const std::string& what,
              std::string_view remedy) {
    if (policy == DefectPolicies::OnDefect::kError) {
      throw CorruptShard(
          what, where(offset, name),
          std::string(remedy) +
              (kind == Index::SkippedMember::Kind::kNoValue ? ", or take NULL for the value with "
                                                            : ", or leave out the member with ") +
              command_that_skips(kind));
    }
    leave_out(kind, offset, name, what);
  }

  void leave_out(Index::SkippedMember::Kind kind, std::uint64_t offset, std::string_view name,
                 std::string reason) {
    skipped_.push_back({0, offset, std::string(name), std::move(reason), kind});
  }

  void refuse_second_place(std::uint32_t first, std::uint32_t second) {
    refuse(Index::SkippedMember::Kind::kRepeatedKey, options_.policies.repeated_key,
           header_offsets_[second], builder_.key(second),
           "the key occurs at two places of the shard, first at offset " +
               std::to_string(header_offsets_[first]),
           "the members of a sample must follow one another: repack with `tar --sort=name`");
  }

  const std::string& path_;
  const ShardScanOptions& options_;
  SegmentBuilder builder_;
  std::optional<ColumnReader> columns_;
  std::vector<std::uint64_t> header_offsets_;  // header offset of each sample's first member
  std::vector<Index::SkippedMember> skipped_;
  std::vector<BadValue> bad_values_;
};

/// True if the scan of a compressed shard must read this member's data.
bool wants_data(const ShardScanOptions& options, std::string_view name, std::uint64_t size_bytes) {
  if (options.hash) return true;
  if (options.columns.empty() || size_bytes > kMaxColumnFieldBytes) return false;
  if (options.policies.link == DefectPolicies::OnLink::kResolve)
    return true;  // a link may refer to this member under any field's name
  const auto parts = split_sample_name(name);
  return parts && std::any_of(options.columns.begin(), options.columns.end(),
                              [&](const Index::Column& column) {
                                return same_field(column.field, parts->field);
                              });
}

ShardPart scan_expanded(const std::string& path, const ShardScanOptions& options,
                        ShardBytes& shard) {
  const std::string_view bytes = shard.bytes();
  SampleGrouper grouper(path, options);
  EarlierMembers earlier;
  const bool resolve = options.policies.link == DefectPolicies::OnLink::kResolve;
  // With hashes, the file is read twice: once for its headers, once for its hash. Each read is half
  // of the progress.
  const std::uint64_t share = options.hash ? 2 : 1;
  const auto add = [&](const TarMember& member) {
    grouper.add(member, bytes.substr(member.data_offset, member.size_bytes));
  };
  const TarScanOptions how{.lenient = options.policies.damage == DefectPolicies::OnDefect::kSkip,
                           .expanded = shard.compression() != Compression::kNone,
                           .visit_other =
                               [&](const TarOther& other) {
                                 const auto member =
                                     resolve ? earlier.resolve(other) : std::nullopt;
                                 if (member && names_a_field(member->name)) {
                                   add(*member);
                                 } else {
                                   grouper.add_other(other);
                                 }
                               },
                           .tick =
                               [&](std::uint64_t offset) {
                                 options.cancel.throw_if_cancelled();
                                 if (options.progress && shard.is_in_place()) {
                                   options.progress(offset / share);
                                 }
                                 shard.forget_before(offset);
                               }};
  const TarScanReport report = scan_tar(bytes, path, how, [&](const TarMember& member) {
    if (resolve) earlier.add(member);
    add(member);
    shard.at_member(member.data_offset);
  });

  ShardPart part;
  part.key_hashes = grouper.finish();
  part.segment = grouper.builder().finish();
  part.skipped = std::move(grouper.skipped());
  for (const TarProblem& problem : report.skipped) {
    part.skipped.push_back(
        {0, problem.offset, problem.member, problem.what, Index::SkippedMember::Kind::kDamage});
  }
  std::stable_sort(part.skipped.begin(), part.skipped.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::string why;
  const auto view = SegmentView::check(part.segment, &why);
  if (!view) throw std::logic_error("a segment that was just made is wrong: " + why);
  part.fields = count_fields(*view);

  SegmentHeader header;
  std::memcpy(&header, part.segment.data(), sizeof header);
  part.row = {.size_bytes = shard.size_bytes(),
              .mtime_ns = shard.mtime_ns(),
              .validator = {},
              .first_sample = 0,
              .num_samples = header.num_samples,
              .num_members = header.num_members,
              .num_not_samples = report.num_directories + report.num_links + report.num_special,
              .num_archives = report.num_archives,
              .trailing_bytes = report.trailing_bytes,
              .end_marker = report.end_marker,
              .compression = shard.compression(),
              .unchecked = shard.unchecked(),
              .expanded_bytes = bytes.size(),
              .content_hash = {},
              .header_hash = report.header_hash,
              .first_header_hash = shard.first_block_hash(),
              .segment_checksum = header.checksum};
  return part;
}

}  // namespace

ShardPart scan_shard(const ShardPlace& place, const ShardScanOptions& options) {
  // Without a validator, only a hash can identify the shard later.
  const bool is_unknown = place.remote != nullptr && place.state.validator.empty();
  const bool hash = options.hash || is_unknown;
  ShardBytes shard(
      place,
      {.temporary = options.temporary,
       .keep = [&](std::string_view name,
                   std::uint64_t size_bytes) { return wants_data(options, name, size_bytes); },
       .hash = hash,
       .stop_at_damage = options.policies.damage != DefectPolicies::OnDefect::kSkip,
       .tick =
           [&](std::uint64_t stored_bytes) {
             options.cancel.throw_if_cancelled();
             if (options.progress) options.progress(stored_bytes);
           }});
  try {
    ShardPart part = scan_expanded(without_secrets(place.path), options, shard);
    shard.require_unchanged();
    part.row.validator = place.state.validator;
    // All bytes of a compressed shard have been read anyway, so its hash costs no further reads.
    // The hash distinguishes the shard from others with the same size and time.
    if (hash || shard.compression() != Compression::kNone) {
      part.row.content_hash = shard.stored_hash();
    }
    shard.done();
    return part;
  } catch (const CorruptShard&) {
    shard.require_unchanged();  // a shard that is still being written is stale, not corrupt
    throw;
  }
}

std::vector<std::uint64_t> hash_keys(const SegmentView& segment) {
  std::vector<std::uint64_t> hashes(segment.num_samples());
  for (std::uint32_t i = 0; i < hashes.size(); ++i) hashes[i] = hash64(segment.key(i));
  return hashes;
}

std::vector<Index::Summary::Field> count_fields(const SegmentView& segment) {
  std::vector<Index::Summary::Field> fields(segment.num_fields());
  for (std::uint32_t i = 0; i < fields.size(); ++i) fields[i].name = segment.field_name(i);
  for (const MemberRecord& member : segment.members()) {
    Index::Summary::Field& field = fields[member.field()];
    ++field.num_members;
    field.bytes += member.size_bytes;
  }
  // Remove fields whose samples were all excluded.
  std::erase_if(fields, [](const Index::Summary::Field& field) { return field.num_members == 0; });
  return fields;
}

}  // namespace shardwise
