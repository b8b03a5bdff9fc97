#include "index/shard_scan.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "index/segment.h"
#include "shardwise/base/bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/mapped_file.h"
#include "shardwise/base/text.h"
#include "shardwise/index/sample_name.h"
#include "shardwise/index/tar_scanner.h"

namespace shardwise {
namespace {

/// Groups a shard's members, as they are visited, into the samples of a segment.
class Grouper {
 public:
  Grouper(const std::string& path, OnBad on_bad) : path_(path), on_bad_(on_bad), builder_(path) {}

  void add(const TarMember& member) {
    const auto name = split_sample_name(member.name);
    if (!name) {
      refuse(member, "a name that gives no key and field: WebDataset wants <key>.<field>",
             "rename or remove the member");
      return;
    }
    if (!builder_.has_open_sample() || builder_.last_key() != name->key) {
      builder_.drop_empty_last();
      builder_.begin_sample(name->key);
    }
    if (!builder_.add_member(name->field, member.data_offset, member.size_bytes)) {
      refuse(
          member,
          "the field '" + escaped(name->field) + "' comes twice in sample " + in_quotes(name->key),
          "a sample has each field once; repack the shard");
    }
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
    std::vector<bool> drop;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (std::size_t j = i + 1; j < order.size() && hashes[order[j]] == hashes[order[i]]; ++j) {
        if (builder_.key(order[i]) != builder_.key(order[j])) continue;
        refuse_second_place(order[i], order[j]);
        drop.resize(hashes.size());
        drop[order[j]] = true;
      }
    }
    if (drop.empty()) return hashes;
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
  void refuse(const TarMember& member, const std::string& what, std::string_view remedy) {
    refuse(member.header_offset, member.name, what, remedy);
  }

  void refuse(std::uint64_t offset, std::string_view name, const std::string& what,
              std::string_view remedy) {
    if (on_bad_ == OnBad::kError) {
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
        second_offset, builder_.key(second),
        "the key comes in two places of the shard, first at offset " + std::to_string(first_offset),
        "the members of a sample must follow one another: repack with `tar --sort=name`");
  }

  const std::string& path_;
  const OnBad on_bad_;
  SegmentBuilder builder_;
  std::vector<SkippedMember> skipped_;
};

}  // namespace

void throw_if_cancelled(const std::atomic<bool>* cancel) {
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
    throw Cancelled("indexing was cancelled", "", "the index is as it was before");
  }
}

ShardPart scan_shard(const std::string& path, OnBad on_bad, const std::atomic<bool>* cancel) {
  const MappedFile file = MappedFile::open(path);
  Grouper grouper(path, on_bad);
  std::uint32_t visited = 0;
  const TarScanOptions options{.lenient = on_bad == OnBad::kSkip};
  const TarScanReport report = scan_tar(file.bytes(), path, options, [&](const TarMember& member) {
    if (++visited % 1024 == 0) throw_if_cancelled(cancel);
    grouper.add(member);
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
              .size_bytes = file.identity().size_bytes,
              .mtime_ns = file.identity().mtime_ns,
              .first_sample = 0,
              .num_samples = header.num_samples,
              .num_members = header.num_members,
              .num_not_samples = report.num_directories + report.num_links + report.num_special,
              .num_archives = report.num_archives,
              .trailing_bytes = report.trailing_bytes,
              .end_marker = report.end_marker,
              .header_hash = report.header_hash,
              .first_header_hash = hash64(file.bytes().substr(0, kTarBlockBytes)),
              .segment_checksum = header.checksum};
  // The file may have been written to while it was read.
  if (file_identity(path) != file.identity()) {
    throw StaleIndex("the shard changed while it was indexed", in_quotes(path),
                     "wait until it is complete, then run `shardwise index` again");
  }
  return part;
}

std::vector<FieldInfo> count_fields(const SegmentView& segment) {
  std::vector<FieldInfo> fields(segment.num_fields());
  for (std::uint32_t i = 0; i < fields.size(); ++i) fields[i].name = segment.field_name(i);
  for (const MemberRecord& member : segment.members()) {
    FieldInfo& field = fields[member.field()];
    ++field.num_members;
    field.bytes += member.size_bytes;
  }
  return fields;
}

}  // namespace shardwise
