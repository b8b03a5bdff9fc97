#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "index/catalogue.h"
#include "index/offset_table.h"
#include "shardwise/base/error.h"

namespace shardwise::fuzz {

/// Two small shards and their index, made once, in a temporary folder of this process. Targets also
/// write their files into this folder.
class IndexFolder {
 public:
  static const IndexFolder& get();
  ~IndexFolder();

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  /// The parts of the intact index.
  const std::string& catalogue_bytes() const { return catalogue_bytes_; }
  const std::string& table_bytes() const { return table_bytes_; }
  const std::string& table_name() const { return table_name_; }
  const CatalogueMeta& meta() const { return meta_; }
  const std::vector<Index::Shard>& rows() const { return rows_; }
  const std::vector<Index::Summary::Field>& fields() const { return fields_; }
  std::string segment_bytes(std::uint64_t shard) const;

 private:
  IndexFolder();

  std::string folder_;
  std::string catalogue_bytes_;
  std::string table_bytes_;
  std::string table_name_;
  CatalogueMeta meta_;
  std::vector<Index::Shard> rows_;
  std::vector<Index::Summary::Field> fields_;
};

/// Reads each byte, so that AddressSanitizer detects a view outside its memory.
void touch(std::string_view bytes);
/// Whether the view `part` is a part of the view `whole`.
bool lies_within(std::string_view part, std::string_view whole);
/// Runs `call`, and allows it to throw an Error.
template <class Call>
void allow_errors(Call&& call) {
  try {
    call();
  } catch (const Error&) {
    // The input may be refused.
  }
}

std::string read_whole(const std::string& path);
void write_whole(const std::string& path, std::string_view bytes);

/// Writes a catalogue with correct checksums.
void write_catalogue(const std::string& path, const CatalogueMeta& meta,
                     const std::vector<Index::Shard>& rows,
                     const std::vector<Index::Summary::Field>& fields,
                     const std::vector<Index::SkippedMember>& skipped = {});

/// Calls all accessors of `segment`, a view of `bytes`, and checks that every result is within
/// bounds.
void walk_segment(const SegmentView& segment, std::string_view bytes);

/// Opens the index at `path`, and calls its accessors and those of a Dataset over it, up to a
/// limit. Typed errors are allowed.
void walk_index(const std::string& path);

}  // namespace shardwise::fuzz
