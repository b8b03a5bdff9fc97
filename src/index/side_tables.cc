#include "index/side_tables.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/error_types.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/rows.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {
namespace {

std::string attach_again_remedy() {
  return "attach the tables again with " + spelled("`shardwise attach`") + " after removing it";
}

/// Calls visit(name, value) for each stored property of a table, except its place.
template <class Table, class Visit>
void for_each_property(Table& table, const Visit& visit) {
  visit("name", table.name);
  visit("source", table.source);
  visit("key", table.key);
  visit("columns", table.columns);
  visit("rows", table.num_rows);
  visit("attached_at", table.attached_at);
}

/// A table in the list, with the place of its bytes.
struct Listed {
  SideTable table;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Errors: nlohmann::json::exception; InvalidArgument.
template <class Value>
void read_value(const nlohmann::json& entry, const char* name, Value& value) {
  const nlohmann::json& stored = entry.at(name);
  // The conversion of a real number out of range would be undefined.
  if (std::is_integral_v<Value> && !stored.is_number_integer()) {
    throw InvalidArgument("a number is malformed", name, "");
  }
  stored.get_to(value);
}

/// Errors: nlohmann::json::exception; InvalidArgument.
std::vector<Listed> parse_list(std::string_view json) {
  std::vector<Listed> tables;
  const nlohmann::json list = nlohmann::json::parse(json);
  for (const nlohmann::json& entry : list.at("tables")) {
    Listed& listed = tables.emplace_back();
    for_each_property(listed.table,
                      [&](const char* name, auto& value) { read_value(entry, name, value); });
    listed.table.checksum = hash_of_cell({.bytes = entry.at("checksum").get<std::string>()});
    read_value(entry, "offset", listed.offset);
    read_value(entry, "bytes", listed.bytes);
  }
  return tables;
}

[[noreturn]] void damaged(const std::string& file, std::string_view why) {
  throw CorruptIndex("the file of side tables is damaged",
                     in_quotes(file) + " (" + std::string(why) + ")", attach_again_remedy());
}

/// Returns the list of the tables in the file after checking the header. Errors: CorruptIndex;
/// VersionMismatch.
std::vector<Listed> list_of(std::string_view bytes, const std::string& file) {
  SideHeader header;
  if (bytes.size() < sizeof header) damaged(file, "the header is truncated");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kSideMagic, sizeof kSideMagic) != 0) {
    damaged(file, "the magic number is wrong");
  }
  if (header.version != kSideVersion) {
    throw VersionMismatch("the file of side tables has format version " +
                              std::to_string(header.version) + ", but this library reads version " +
                              std::to_string(kSideVersion),
                          in_quotes(file), attach_again_remedy());
  }
  if (header.header_checksum != side_header_checksum(header)) {
    damaged(file, "the header's checksum is wrong");
  }
  if (header.file_bytes != bytes.size() ||
      !range_fits(header.list_offset, header.list_bytes, bytes.size())) {
    damaged(file, "the sections do not fit into the file");
  }
  const std::string_view list = bytes.substr(header.list_offset, header.list_bytes);
  if (hash64(list) != header.list_checksum) damaged(file, "the list's checksum is wrong");
  try {
    return parse_list(list);
  } catch (const nlohmann::json::exception& e) {
    damaged(file, e.what());
  } catch (const InvalidArgument& e) {
    damaged(file, e.what());
  }
}

}  // namespace

std::uint64_t side_header_checksum(const SideHeader& header) noexcept {
  return hash64({reinterpret_cast<const char*>(&header), offsetof(SideHeader, header_checksum)});
}

std::string side_list(const std::vector<SideTable>& tables,
                      const std::vector<std::uint64_t>& table_bytes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::uint64_t offset = sizeof(SideHeader);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    nlohmann::ordered_json& entry = list.emplace_back();
    for_each_property(tables[i], [&](const char* name, const auto& value) { entry[name] = value; });
    entry["checksum"] = hash_cell(tables[i].checksum).bytes;
    entry["offset"] = offset;
    entry["bytes"] = table_bytes[i];
    offset += table_bytes[i];
  }
  return nlohmann::ordered_json{{"tables", std::move(list)}}.dump();
}

SideTableView::SideTableView(SideTable info, std::string_view bytes, const std::string& file)
    : info_(std::move(info)),
      bytes_(bytes),
      table_(bytes, {"a side table is damaged", in_quotes(info_.name) + " in " + in_quotes(file),
                     attach_again_remedy()}),
      segments_(table_.header().num_shards) {
  if (table_.header().header_checksum != info_.checksum ||
      table_.header().num_samples != info_.num_rows) {
    table_.damaged("the table differs from its entry in the list");
  }
}

const SegmentView& SideTableView::segment(std::uint64_t number) const {
  return segments_.of(number, [&] {
    const SegmentView view = table_.segment(number);
    const ShardEntry* const entry = table_.directory() + number;
    if (view.num_samples() != entry[1].first_sample - entry[0].first_sample ||
        view.num_columns() != info_.columns.size()) {
      table_.damaged("a segment belongs to another table");
    }
    return view;
  });
}

const SegmentView& SideTableView::segment_of(std::uint64_t& row) const {
  const std::uint64_t number = table_.shard_of(row);
  row -= table_.directory()[number].first_sample;
  return segment(number);
}

std::optional<std::uint64_t> SideTableView::find(std::string_view key) const {
  std::optional<std::uint64_t> found;
  table_.for_each_with_key(key, [&](std::uint64_t row) {
    found = row;
    return false;
  });
  return found;
}

std::string_view SideTableView::key(std::uint64_t row) const {
  const SegmentView& segment = segment_of(row);
  return segment.key(static_cast<std::uint32_t>(row));
}

MetadataValue SideTableView::value(std::uint64_t row, std::uint32_t column) const {
  const SegmentView& segment = segment_of(row);
  return segment.value(column, static_cast<std::uint32_t>(row));
}

MetadataValue SideTableView::value_of(std::string_view key, std::uint32_t column) const {
  const auto row = find(key);
  return row ? value(*row, column) : MetadataValue();
}

void SideTableView::validate() const {
  table_.check_sections();
  for (std::uint64_t i = 0; i < table_.header().num_shards; ++i) {
    const SegmentView& view = segment(i);
    for (std::uint32_t row = 0; row < view.num_samples(); ++row) {
      if (find(view.key(row)) != table_.directory()[i].first_sample + row) {
        table_.damaged("a key is not found");
      }
    }
  }
}

MetadataValue SideRows::value(std::string_view key, std::uint32_t column) {
  const std::uint64_t num_rows = table_->info().num_rows;
  for (const std::uint64_t row : {row_, row_ + 1}) {
    if (row >= num_rows || table_->key(row) != key) continue;
    row_ = row;
    return table_->value(row, column);
  }
  const auto row = table_->find(key);
  if (!row) return {};
  row_ = *row;
  return table_->value(row_, column);
}

SideTables::SideTables(const std::string& index_path, const std::vector<Index::Column>& own) {
  const std::string path = index_path + std::string(kSideSuffix);
  try {
    file_.emplace(MappedFile::open(path));
  } catch (const NotFound&) {
    return;
  }
  std::set<std::string> names;
  for (const Index::Column& column : own) names.insert(column.name);
  const std::string_view bytes = file_->bytes();
  for (Listed& listed : list_of(bytes, path)) {
    if (listed.offset % 8 != 0 || !range_fits(listed.offset, listed.bytes, bytes.size())) {
      damaged(path, "a table extends beyond the end of the file");
    }
    const std::string where = in_quotes(listed.table.name) + " in " + in_quotes(path);
    for (const std::string& name : listed.table.columns) {
      require_column_name(name, where);
      if (names.insert(name).second) continue;
      throw InvalidArgument("two metadata columns have the name " + in_quotes(name), where,
                            "remove the side table with " + spelled("`shardwise attach --detach`"));
    }
    tables_.push_back(std::make_unique<const SideTableView>(
        std::move(listed.table), bytes.substr(listed.offset, listed.bytes), path));
  }
}

std::vector<std::string> metadata_columns(const Index& index) {
  std::vector<std::string> names;
  for (const Index::Column& column : index.content().columns) names.push_back(column.name);
  for (const auto& table : side_tables_of(index).all()) {
    names.insert(names.end(), table->info().columns.begin(), table->info().columns.end());
  }
  return names;
}

std::optional<MetadataColumn> find_metadata_column(const Index& index,
                                                   std::string_view name) noexcept {
  const auto& own = index.content().columns;
  const auto in_index = std::ranges::find(own, name, &Index::Column::name);
  if (in_index != own.end()) {
    return MetadataColumn{nullptr, static_cast<std::uint32_t>(in_index - own.begin())};
  }
  for (const auto& table : side_tables_of(index).all()) {
    const auto& names = table->info().columns;
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) continue;
    return MetadataColumn{table.get(), static_cast<std::uint32_t>(found - names.begin())};
  }
  return std::nullopt;
}

void require_column_name(const std::string& name, const std::string& where) {
  try {
    if (parse_column(name + "=x").name == name) return;
  } catch (const InvalidArgument&) {
    // The text of this error is about fields.
  }
  throw InvalidArgument("a metadata column cannot have the name " + in_quotes(name), where,
                        "give it another name with NAME=COLUMN: letters, digits and _; sample, "
                        "key, shard and the like are reserved");
}

}  // namespace shardwise::detail
