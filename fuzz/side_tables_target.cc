#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "checksums.h"
#include "index/side_tables.h"
#include "index_files.h"
#include "shardwise/base/error.h"
#include "shardwise/ingest/attach.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

constexpr std::uint64_t kMaxRows = 64;

/// Returns the path of an intact index without side tables.
std::string plain_index(const std::string& name) {
  const IndexFolder& folder = IndexFolder::get();
  std::string path = folder.path(name);
  write_whole(path, folder.catalogue_bytes());
  std::remove((path + std::string(detail::kSideSuffix)).c_str());
  return path;
}

/// Calls the accessors of a side table, and returns whether the whole table is intact. Typed errors
/// are allowed.
bool walk_table(const detail::SideTableView& table) {
  detail::SideRows rows(table);
  const auto num_columns = static_cast<std::uint32_t>(table.info().columns.size());
  allow_errors([&] {
    for (std::uint64_t row = 0; row < std::min(table.info().num_rows, kMaxRows); ++row) {
      const std::string_view key = table.key(row);
      touch(key);
      static_cast<void>(table.find(key));
      for (std::uint32_t column = 0; column < num_columns; ++column) {
        touch(table.value(row, column).bytes);
        touch(rows.value(key, column).bytes);
      }
    }
  });
  bool is_intact = false;
  if (table.info().num_rows <= kMaxRows) {
    allow_errors([&] {
      table.validate();
      is_intact = true;
    });
  }
  return is_intact;
}

}  // namespace

void side_tables_target(std::string_view input) {
  if (input.empty()) return;
  std::string file(input.substr(1));
  if ((input[0] & 1) != 0) fix_side_tables(file);
  const std::string path = plain_index("side.idx");
  write_whole(path + std::string(detail::kSideSuffix), file);
  allow_errors([&] {
    const std::shared_ptr<const Index> index = Index::open(path);
    for (const auto& table : detail::side_tables_of(*index).all()) walk_table(*table);
  });
}

void csv_target(std::string_view input) {
  if (input.empty()) return;
  const std::string path = plain_index("csv.idx");
  const std::string file =
      IndexFolder::get().path((input[0] & 1) == 0 ? "fuzzed.csv" : "fuzzed.tsv");
  write_whole(file, input.substr(1));
  allow_errors([&] {
    const SideTable::Match match = attach_table(path, file, {.key = "key"});
    SHARDWISE_FUZZ_REQUIRE(match.num_rows_without_sample <= match.num_rows);
    const std::shared_ptr<const Index> index = Index::open(path);
    const auto& tables = detail::side_tables_of(*index).all();
    SHARDWISE_FUZZ_REQUIRE(tables.size() == 1 && tables[0]->info().num_rows == match.num_rows);
    SHARDWISE_FUZZ_REQUIRE(match.num_rows > kMaxRows || walk_table(*tables[0]));
  });
}

std::vector<std::string> side_tables_seeds() {
  const std::string path = plain_index("seed.idx");
  const std::string file = IndexFolder::get().path("seed.csv");
  std::vector<std::string> seeds;
  for (const char* table : {"key,a,b\na,1,x\nnone,,\"y\"\"\"\n", "key,c\nd/c,0.5\n"}) {
    write_whole(file, table);
    attach_table(path, file, {.key = "key", .name = std::to_string(seeds.size())});
    for (const char control : {'\0', '\1'}) {
      seeds.push_back(control + read_whole(path + std::string(detail::kSideSuffix)));
    }
  }
  return seeds;
}

std::vector<std::string> csv_seeds() {
  const std::string bytes(1, '\0');
  return {bytes + "key,a,b\r\na,1,\"x,\"\"\n\"\r\nb,-2.5e3,\r\n",
          bytes + "\xEF\xBB\xBF\"key\",Name,,007\n\nb,1,2,9223372036854775808\n\nd/c,.5,,",
          "\1key\ta\n\"a\"\tx y\nb\t\n"};
}

}  // namespace shardwise::fuzz
