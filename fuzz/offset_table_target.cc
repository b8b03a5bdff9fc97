#include <cstring>
#include <memory>

#include "base/hasher.h"
#include "checksums.h"
#include "index/offset_table.h"
#include "index/table_writer.h"
#include "index_files.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

constexpr const char* kCatalogue = "fuzzed.idx";

void check_segment(std::string_view input) {
  // A copy of exactly this size, so that AddressSanitizer detects reads beyond it. `new` aligns it.
  const std::unique_ptr<char[]> copy(new char[input.size()]);
  std::memcpy(copy.get(), input.data(), input.size());
  const std::string_view bytes(copy.get(), input.size());
  for (const std::uint64_t i : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX}) {
    static_cast<void>(SegmentView::find_key(bytes, i));
  }
  std::string why;
  const auto segment = SegmentView::check(bytes, &why);
  SHARDWISE_FUZZ_REQUIRE(segment.has_value() == why.empty());
  if (segment) walk_segment(*segment, bytes);
}

/// Writes `table` next to a catalogue that names it, and opens the index.
void check_table(std::string table) {
  fix_table(table);
  const IndexFolder& folder = IndexFolder::get();
  CatalogueMeta meta = folder.meta();
  if (table.size() >= sizeof(TableHeader)) {
    TableHeader header;
    std::memcpy(&header, table.data(), sizeof header);
    meta.table_checksum = header.header_checksum;
    meta.summary.num_shards = header.num_shards;
    meta.summary.num_samples = header.num_samples;
    meta.summary.num_members = header.num_members;
  }
  meta.table_file = std::string(kCatalogue) + ".table";
  write_whole(folder.path(meta.table_file), table);
  write_catalogue(folder.path(kCatalogue), meta, folder.rows(), folder.fields());
  walk_index(folder.path(kCatalogue));
}

/// Opens an index whose first shard has this segment, and which is otherwise intact.
void check_index_around(std::string segment) {
  if (segment.size() < sizeof(SegmentHeader) || segment.size() % 8 != 0) return;
  fix_segment(segment);
  SegmentHeader header;
  std::memcpy(&header, segment.data(), sizeof header);
  // The writer allocates one key per sample, so a count above the segment's size is refused.
  if (header.num_samples > segment.size()) return;
  const IndexFolder& folder = IndexFolder::get();
  std::vector<std::uint64_t> hashes(header.num_samples);
  for (std::uint32_t i = 0; i < hashes.size(); ++i) {
    const auto key = SegmentView::find_key(segment, i);
    hashes[i] = key ? hash64(*key) : i;
  }
  std::string table_path;
  {
    TableWriter writer(folder.path(kCatalogue));
    writer.append(segment, hashes);
    writer.finish();
    writer.commit();
    CatalogueMeta meta = folder.meta();
    table_path = writer.path();
    meta.table_file = table_path.substr(table_path.rfind('/') + 1);
    meta.table_checksum = writer.header().header_checksum;
    meta.summary.num_shards = 1;
    meta.summary.num_samples = writer.header().num_samples;
    meta.summary.num_members = writer.header().num_members;
    Index::Shard row = folder.rows()[0];
    row.num_samples = header.num_samples;
    row.num_members = header.num_members;
    row.segment_checksum = header.checksum;
    write_catalogue(folder.path(kCatalogue), meta, {row}, folder.fields());
  }
  walk_index(folder.path(kCatalogue));
  std::remove(table_path.c_str());
}

}  // namespace

void offset_table_target(std::string_view input) {
  if (input.empty()) return;
  std::string bytes(input.substr(1));
  switch (input[0] & 3) {
    case 0:
      check_segment(bytes);
      break;
    case 1:
      fix_segment(bytes);
      check_segment(bytes);
      break;
    case 2:
      check_table(std::move(bytes));
      break;
    default:
      check_index_around(std::move(bytes));
      break;
  }
}

}  // namespace shardwise::fuzz
