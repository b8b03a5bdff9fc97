#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "blocking.h"
#include "field_names.h"
#include "index/side_tables.h"
#include "objects.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

DatasetObject open(const std::vector<std::string>& sources, const std::string& access,
                   const CacheObject* cache, std::uint64_t max_open_shards, const std::string& root,
                   bool accept_times, bool allow_part, bool build, bool lazily,
                   const std::string& index_directory, const std::vector<std::string>& columns,
                   std::optional<unsigned> threads, bool offline,
                   std::optional<std::pair<std::uint64_t, std::uint64_t>> fingerprint,
                   nb::object opening) {
  Dataset::Options options;
  options.access = parse_access(access);
  if (cache != nullptr) {
    options.cache = cache->cache;
    // With a resolve function, fetch threads need the GIL. No fetch must still run in the
    // background when the interpreter ends.
    options.wait_for_whole_shards = cache->given.is_none();
  }
  options.max_open_shards = max_open_shards;
  options.root = root;
  options.accept_times = accept_times;
  options.allow_part = allow_part;
  options.index_cache.build_missing = build;
  options.index_cache.directory = index_directory;
  options.index_cache.build.threads = threads;
  options.index_cache.offline = offline;
  if (fingerprint) {
    options.index_cache.fingerprint = Hash128{fingerprint->first, fingerprint->second};
  }
  std::string unreached;  // set if the server of the index was not reached
  options.index_cache.on_unreached = [&](const std::string& url, const std::string& reason) {
    unreached = "the server of " + in_quotes(url) +
                " was not reached, so the last copy of the index is used: " + reason;
  };
  for (const std::string& column : columns) {
    options.index_cache.build.content.columns.push_back(parse_column(column));
  }
  std::vector<std::string> empty;  // columns of the new index for which no sample has a value
  std::vector<std::string> cut;    // shards of the new index without an end-of-archive marker
  options.index_cache.on_built = [&](const std::string&, const SourceList&,
                                     const BuildReport& report) {
    cut = report.without_end_marker;
    for (std::size_t i = 0; i < report.without_value.size(); ++i) {
      const bool is_empty =
          report.without_value[i] > 0 && report.without_value[i] == report.summary.num_samples;
      if (is_empty) empty.push_back(report.summary.content.columns[i].name);
    }
  };
  Dataset data = without_gil([&](const CancelToken& cancel) {
    options.index_cache.build.cancel = cancel;
    if (!lazily) return Dataset::open_sources(sources, options);
    if (sources.size() != 1) {
      throw InvalidArgument("lazily=True opens one descriptor",
                            std::to_string(sources.size()) + " sources are given",
                            "name one wids descriptor (*.json)");
    }
    return Dataset::open_lazily(sources.front(), options);
  });
  // An existing index may lack requested columns.
  const std::vector<Index::Column>& there = data.index().content().columns;
  for (const Index::Column& column : options.index_cache.build.content.columns) {
    if (std::ranges::find(there, column) != there.end()) continue;
    const bool is_whole_field = column.name == column.field && column.json_path.empty();
    const auto found = detail::find_metadata_column(data.index(), column.name);
    const detail::SideTableView* const side_table = found ? found->table : nullptr;
    throw NotFound(
        "the index has no column " + in_quotes(is_whole_field ? column.name : to_string(column)) +
            (side_table != nullptr ? " made from a field" : ""),
        in_quotes(data.index().path()),
        side_table != nullptr ? "leave columns out to use the column of the side table " +
                                    in_quotes(side_table->info().name)
                              : "build it with shardwise.index(columns=...), or leave columns out");
  }
  if (!unreached.empty()) {
    nb::module_::import_("warnings").attr("warn")(unreached, "stacklevel"_a = 3);
  }
  if (!cut.empty()) {
    nb::list names;
    for (const std::string& shard : cut) names.append(name_object(shard));
    nb::module_::import_("shardwise.building").attr("warn_of_cut_shards")(names, 4);
  }
  if (!empty.empty()) {
    nb::list names;
    for (const std::string& name : empty) names.append(name_object(name));
    nb::module_::import_("shardwise.building").attr("warn_of_empty")(names, 4);
  }
  return {std::move(data), std::move(opening), nb::tuple()};
}

}  // namespace

void add_opening(nb::module_& module) {
  module.def("open_dataset", &open, "sources"_a, nb::kw_only(), "access"_a, "cache"_a.none(),
             "max_open_shards"_a, "root"_a, "accept_times"_a, "allow_part"_a, "build"_a, "lazily"_a,
             "index_directory"_a, "columns"_a, "threads"_a.none(), "offline"_a,
             "fingerprint"_a.none(), "opening"_a.none(),
             nb::sig("def open_dataset(sources: collections.abc.Sequence[str], **options: "
                     "typing.Any) -> Dataset"),
             "Implements shardwise.open().");
}

}  // namespace shardwise::python
