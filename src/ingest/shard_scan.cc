#include "ingest/shard_scan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "index/segment.h"
#include "ingest/column_reader.h"
#include "ingest/expanded_shard.h"
#include "shardwise/base/bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/text.h"
#include "shardwise/tar/sample_name.h"
#include "shardwise/tar/tar_scanner.h"

namespace shardwise {
namespace {

/// How often a scan says how far it is, and looks whether it shall stop.
constexpr std::uint64_t kProgressBytes = std::uint64_t{4} << 20;

/// Groups a shard's members, as they are visited, into the samples of a segment.
class Grouper {
 public:
  Grouper(const std::string& path, const ShardScanOptions& options)
      : path_(path),
        options_(options),
        builder_(path, static_cast<std::uint32_t>(options.columns.size()), options.hash) {
    if (!options.columns.empty()) columns_.emplace(options.columns);
  }

  /// @param data  the member's bytes; read only where hashes or columns are wanted.
  void add(const TarMember& member, std::string_view data) {
    const auto name = split_sample_name(member.name);
    if (!name) {
      refuse(options_.policies.no_field, member.header_offset, member.name,
             "a name that gives no key and field: WebDataset wants <key>.<field>",
             "rename or remove the member");
      return;
    }
    if (!builder_.has_open_sample() || builder_.last_key() != name->key) {
      builder_.drop_empty_last();
      builder_.begin_sample(name->key);
    }
    const std::uint64_t hash = options_.hash ? hash64(data) : 0;
    if (!builder_.add_member(name->field, member.data_offset, member.size_bytes, hash)) {
      refuse(
          options_.policies.duplicate_field, member.header_offset, member.name,
          "the field '" + escaped(name->field) + "' comes twice in sample " + in_quotes(name->key),
          "a sample has each field once; repack the shard");
      return;
    }
    if (columns_) set_columns(member, name->field, data);
  }

  /// Ends the grouping: refuses keys that come in two places, and hashes all keys.
  std::vector<std::uint64_t> finish() {
    builder_.drop_empty_last();
    std::vector<std::uint64_t> hashes(builder_.num_samples());
    for (std::uint32_t i = 0; i < hashes.size(); ++i) hashes[i] = hash64(builder_.key(i));
    std::vector<std::uint32_t> order(hashes.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(hashes[a], a) < std::pair(hashes[b], b);
    });
    std::vector<bool> drop(hashes.size());
    bool any = false;
    const bool look = options_.policies.repeated_key != OnBad::kKeep;
    for (std::size_t i = 0; look && i < order.size(); ++i) {
      if (drop[order[i]]) continue;
      for (std::size_t j = i + 1; j < order.size() && hashes[order[j]] == hashes[order[i]]; ++j) {
        if (drop[order[j]] || builder_.key(order[i]) != builder_.key(order[j])) continue;
        refuse_second_place(order[i], order[j]);
        drop[order[j]] = true;
        any = true;
      }
    }
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
  std::vector<SkippedMember>& skipped() noexcept { return skipped_; }

 private:
  void set_columns(const TarMember& member, std::string_view field, std::string_view data) {
    for (std::size_t i = 0; i < options_.columns.size(); ++i) {
      if (!same_field(options_.columns[i].field, field)) continue;
      if (member.size_bytes > kMaxColumnFieldBytes) {
        refuse(options_.policies.damage, member.header_offset, member.name,
               "a field above 1 MiB cannot be a metadata column", "ask for another column");
        continue;
      }
      const auto value = columns_->read(i, data);
      if (value) {
        builder_.set_value(static_cast<std::uint32_t>(i), *value);
      } else {
        refuse(options_.policies.damage, member.header_offset, member.name,
               "no JSON, where the column " + in_quotes(options_.columns[i].name) +
                   " is to be taken from it",
               "mend the shard, or ask for another column");
      }
    }
  }

  void refuse(OnBad policy, std::uint64_t offset, std::string_view name, const std::string& what,
              std::string_view remedy) {
    if (policy == OnBad::kError) {
      throw CorruptShard(
          what,
          in_quotes(path_) + ", offset " + std::to_string(offset) + ", member " + in_quotes(name),
          std::string(remedy) + ", or index with the policy `skip`");
    }
    skipped_.push_back({0, offset, std::string(name), what});
  }

  void refuse_second_place(std::uint32_t first, std::uint32_t second) {
    const std::uint64_t first_offset = builder_.first_member(first).data_offset() - kTarBlockBytes;
    const std::uint64_t second_offset =
        builder_.first_member(second).data_offset() - kTarBlockBytes;
    refuse(
        options_.policies.repeated_key, second_offset, builder_.key(second),
        "the key comes in two places of the shard, first at offset " + std::to_string(first_offset),
        "the members of a sample must follow one another: repack with `tar --sort=name`");
  }

  const std::string& path_;
  const ShardScanOptions& options_;
  SegmentBuilder builder_;
  std::optional<ColumnReader> columns_;
  std::vector<SkippedMember> skipped_;
};

/// The members of a compressed shard whose data the scan reads.
bool wants_data(const ShardScanOptions& options, std::string_view name, std::uint64_t size_bytes) {
  if (options.hash) return true;
  if (options.columns.empty() || size_bytes > kMaxColumnFieldBytes) return false;
  const auto parts = split_sample_name(name);
  return parts &&
         std::any_of(options.columns.begin(), options.columns.end(),
                     [&](const Column& column) { return same_field(column.field, parts->field); });
}

ShardPart scan_expanded(const std::string& path, const ShardScanOptions& options,
                        ExpandedShard& shard) {
  const std::string_view bytes = shard.bytes();
  Grouper grouper(path, options);
  std::uint32_t visited = 0;
  std::uint64_t told = 0;
  // To hash it the file is read twice.
  const std::uint64_t share = options.hash ? 2 : 1;
  const TarScanOptions how{.lenient = options.policies.damage == OnBad::kSkip,
                           .expanded = shard.compression() != Compression::kNone};
  const TarScanReport report = scan_tar(bytes, path, how, [&](const TarMember& member) {
    if (++visited % 1024 == 0 || member.data_offset - told >= kProgressBytes) {
      throw_if_cancelled(options.cancel);
      told = member.data_offset;
      if (options.progress && shard.is_in_place()) options.progress(told / share);
    }
    grouper.add(member, bytes.substr(member.data_offset, member.size_bytes));
    shard.forget_before(member.data_offset);
  });

  ShardPart part;
  part.key_hashes = grouper.finish();
  part.segment = grouper.builder().finish();
  part.skipped = std::move(grouper.skipped());
  for (const TarProblem& problem : report.skipped) {
    part.skipped.push_back({0, problem.offset, problem.member, problem.what});
  }
  std::string why;
  const auto view = SegmentView::check(part.segment, &why);
  if (!view) throw std::logic_error("a segment that was just made is wrong: " + why);
  part.fields = count_fields(*view);

  SegmentHeader header;
  std::memcpy(&header, part.segment.data(), sizeof header);
  part.row = {.url = {},
              .size_bytes = shard.size_bytes(),
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
              .expanded_bytes = bytes.size(),
              .content_hash = {},
              .header_hash = report.header_hash,
              .first_header_hash = shard.first_block_hash(),
              .segment_checksum = header.checksum};
  if (options.hash) part.row.content_hash = shard.stored_hash();
  return part;
}

}  // namespace

void throw_if_cancelled(const std::atomic<bool>* cancel) {
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
    throw Cancelled("indexing was cancelled", "", "the index is as it was before");
  }
}

ShardPart scan_shard(const ShardPlace& place, const ShardScanOptions& options) {
  ExpandedShard shard(place, {.temporary = options.temporary,
                              .keep =
                                  [&](std::string_view name, std::uint64_t size_bytes) {
                                    return wants_data(options, name, size_bytes);
                                  },
                              .hash = options.hash,
                              .tick =
                                  [&](std::uint64_t stored_bytes) {
                                    throw_if_cancelled(options.cancel);
                                    if (options.progress) options.progress(stored_bytes);
                                  }});
  try {
    ShardPart part = scan_expanded(place.path, options, shard);
    shard.require_unchanged();
    part.row.validator = place.state.validator;
    shard.done();
    return part;
  } catch (const CorruptShard&) {
    shard.require_unchanged();  // a shard that is being written is that, not corrupt
    throw;
  }
}

std::vector<std::uint64_t> hash_keys(const SegmentView& segment) {
  std::vector<std::uint64_t> hashes(segment.num_samples());
  for (std::uint32_t i = 0; i < hashes.size(); ++i) hashes[i] = hash64(segment.key(i));
  return hashes;
}

std::vector<FieldInfo> count_fields(const SegmentView& segment) {
  std::vector<FieldInfo> fields(segment.num_fields());
  for (std::uint32_t i = 0; i < fields.size(); ++i) fields[i].name = segment.field_name(i);
  for (const MemberRecord& member : segment.members()) {
    FieldInfo& field = fields[member.field()];
    ++field.num_members;
    field.bytes += member.size_bytes;
  }
  // A field whose only samples were left out.
  std::erase_if(fields, [](const FieldInfo& field) { return field.num_members == 0; });
  return fields;
}

}  // namespace shardwise
