#include "index_files.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

/// Edits values. The bytes of an input select the edits. Once all bytes are used, values stay
/// unchanged.
class Edits {
 public:
  explicit Edits(std::string_view input) : input_(input) {}

  void edit(std::uint64_t& value) {
    switch (byte() % 8) {
      case 1:
        value += byte();
        break;
      case 2:
        value -= byte();
        break;
      case 3:
        value = number();
        break;
      case 4:
        value = UINT64_MAX >> (byte() % 64);
        break;
      case 5:
        value = 0;
        break;
      default:
        break;
    }
  }
  void edit(std::int64_t& value) {
    auto bits = static_cast<std::uint64_t>(value);
    edit(bits);
    value = static_cast<std::int64_t>(bits);
  }
  void edit(std::string& text) {
    switch (byte() % 8) {
      case 1:
        text = take(byte());
        break;
      case 2:
        text += take(byte());
        break;
      case 3:
        text.resize(text.size() * byte() / 256);
        break;
      case 4:
        text.insert(text.size() * byte() / 256, 1, static_cast<char>(byte()));
        break;
      default:
        break;
    }
  }
  unsigned byte() {
    if (input_.empty()) return 0;
    const auto value = static_cast<unsigned char>(input_[0]);
    input_.remove_prefix(1);
    return value;
  }

 private:
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::string take(std::size_t size) {
    const std::string taken(input_.substr(0, size));
    input_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view input_;
};

void edit(Edits& edits, CatalogueMeta& meta) {
  Index::Summary& summary = meta.summary;
  edits.edit(summary.num_shards);
  edits.edit(summary.num_samples);
  edits.edit(summary.num_members);
  edits.edit(summary.shard_bytes);
  edits.edit(summary.content_bytes);
  edits.edit(summary.num_skipped);
  edits.edit(meta.num_fields);
  edits.edit(meta.table_checksum);
  edits.edit(meta.table_file);
  edits.edit(summary.built_at);
  edits.edit(summary.url_base);
}

void edit(Edits& edits, Index::Shard& row) {
  edits.edit(row.size_bytes);
  edits.edit(row.mtime_ns);
  edits.edit(row.first_sample);
  edits.edit(row.num_samples);
  edits.edit(row.num_members);
  edits.edit(row.num_not_samples);
  edits.edit(row.num_archives);
  edits.edit(row.trailing_bytes);
  edits.edit(row.expanded_bytes);
  edits.edit(row.first_header_hash);
  edits.edit(row.segment_checksum);
  edits.edit(row.url);
}

}  // namespace

void catalogue_target(std::string_view input) {
  if (input.empty()) return;
  const IndexFolder& folder = IndexFolder::get();
  const std::string path = folder.path("catalogue.idx");
  if ((input[0] & 1) == 0) {
    write_whole(path, input.substr(1));
    walk_index(path);
    return;
  }
  Edits edits(input.substr(1));
  // Shards are edited first. Only long inputs reach the other values.
  std::vector<Index::Shard> rows = folder.rows();
  for (Index::Shard& row : rows) edit(edits, row);
  CatalogueMeta meta = folder.meta();
  edit(edits, meta);
  std::vector<Index::Summary::Field> fields = folder.fields();
  for (Index::Summary::Field& field : fields) {
    edits.edit(field.num_members);
    edits.edit(field.bytes);
  }
  std::vector<Index::SkippedMember> skipped(edits.byte() % 4);
  for (Index::SkippedMember& member : skipped) {
    edits.edit(member.shard);
    edits.edit(member.offset);
    edits.edit(member.name);
    edits.edit(member.reason);
    member.kind = static_cast<Index::SkippedMember::Kind>(edits.byte() % 7);
  }
  if (edits.byte() % 4 == 1) rows.pop_back();
  write_catalogue(path, meta, rows, fields, skipped);
  walk_index(path);
}

}  // namespace shardwise::fuzz
