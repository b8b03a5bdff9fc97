#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/segment.h"
#include "index/table_writer.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/index/side_table.h"

namespace shardwise::detail {

/// Counts how rows match the samples of an index. Memory: one bit for each sample.
/// Threads: one.
class SHARDWISE_EXPORT MatchCounter {
 public:
  explicit MatchCounter(const Index& index);
  /// Adds a row. REQUIRES: no other row has this key.
  void add(std::string_view key);
  [[nodiscard]] SideTable::Match finish();

 private:
  const Index& index_;
  std::vector<bool> has_row_;  // for each sample of the index
  SideTable::Match match_;
};

/// Writes a side table row by row. finish() attaches the table to the index.
/// Threads: one.
/// Errors: those of attach_table().
class SHARDWISE_EXPORT SideTableWriter {
 public:
  /// @param available  names of the columns of the source.
  /// @param source     the source, as `shardwise info` shows it.
  SideTableWriter(const std::string& index_path, const std::vector<std::string>& available,
                  std::string source, const SideTable::Options& options);

  /// The places in `available` of the key and of the attached columns.
  [[nodiscard]] std::size_t key_place() const noexcept { return key_place_; }
  [[nodiscard]] const std::vector<std::size_t>& places() const noexcept { return places_; }

  /// Adds a row. A NaN becomes null. A text that is not UTF-8, or that contains a NUL, becomes a
  /// blob.
  /// @param values  the values of the columns of places(), in order.
  void add(const MetadataValue& key, std::span<const MetadataValue> values);
  [[nodiscard]] SideTable::Match finish(const CancelToken& cancel = {});
  /// The side table. It is complete after finish().
  [[nodiscard]] const SideTable& table() const noexcept { return table_; }

 private:
  void choose(const std::vector<std::string>& available, const SideTable::Options& options);
  /// Throws InvalidArgument if the index has a column or side table of the same name.
  void require_names(const Index& index) const;
  [[noreturn]] void refuse_row(const std::string& what, const std::string& remedy) const;
  void begin_segment();
  void flush();

  const std::string path_;  // path of the index
  const std::shared_ptr<const Index> index_;
  const bool replace_;
  SideTable table_;
  std::size_t key_place_ = 0;
  std::vector<std::size_t> places_;
  TableWriter writer_;
  MatchCounter counter_;
  std::optional<SegmentBuilder> segment_;
  std::vector<std::uint64_t> key_hashes_;  // hashes of the segment's keys
  std::uint64_t segment_bytes_ = 0;        // total size of its texts and keys
};

}  // namespace shardwise::detail
