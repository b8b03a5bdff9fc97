#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/normal_path.h"
#include "blocking.h"
#include "field_names.h"
#include "gil.h"
#include "index/lost_rests.h"
#include "ingest/reusable_index.h"
#include "objects.h"
#include "raised.h"
#include "shardwise/base/error.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/repack.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_cache.h"
#include "shardwise/ingest/source_list.h"
#include "shardwise/ingest/verify.h"
#include "shardwise/order/sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// Calls a Python function. Returns false with Python's error set. Uses the C API and no nanobind
/// objects: if the interpreter ends within the function, it never returns, and such objects would
/// be released without the GIL.
bool call_with_progress(PyObject* function, const Progress& progress) {
  PyObject* const records = PyImport_ImportModule("shardwise.records");
  if (records == nullptr) return false;
  PyObject* const record =
      PyObject_CallMethod(records, "Progress", "KKKKK", progress.bytes_done, progress.num_bytes,
                          progress.shards_done, progress.num_shards, progress.samples);
  Py_DECREF(records);
  if (record == nullptr) return false;
  PyObject* const result = PyObject_CallFunctionObjArgs(function, record, nullptr);
  Py_DECREF(record);
  Py_XDECREF(result);
  return result != nullptr;
}

/// Returns a callback that calls a Python function from any thread.
ProgressCallback progress_of(nb::object function) {
  if (function.is_none()) return {};
  return [kept = keep(std::move(function))](const Progress& progress) {
    const GilAcquired acquired;
    bool has_returned = false;
    call_python([&] { has_returned = call_with_progress(kept.get(), progress); });
    if (!has_returned) throw_raised();
  };
}

/// @param path  of the index that was built.
nb::object report_of(const BuildReport& report, const std::string& path) {
  detail::LostRests lost;
  if (report.summary.num_skipped > 0) {
    lost = without_gil([&](const CancelToken&) { return detail::lost_rests(*Index::open(path)); });
  }
  nb::dict without_value;
  for (std::size_t i = 0; i < report.without_value.size(); ++i) {
    without_value[name_object(report.summary.content.columns[i].name)] = report.without_value[i];
  }
  return nb::module_::import_("shardwise.records")
      .attr("BuildReport")(report.summary.num_shards, report.summary.num_samples,
                           report.summary.num_members, to_string(report.summary.fingerprint),
                           report.shards_scanned, report.shards_reused, report.shards_moved,
                           report.shards_resumed, report.dropped, report.gone,
                           report.summary.num_skipped, report.without_end_marker, without_value,
                           lost.num_shards, lost.bytes);
}

BuildOptions options_of(const std::vector<std::string>& columns, bool hashes, bool unique_keys,
                        const std::string& policies, bool drop_missing, bool accept_times,
                        bool check_index, std::optional<unsigned> threads, nb::object progress) {
  BuildOptions options;
  for (const std::string& column : columns) {
    options.content.columns.push_back(parse_column(column));
  }
  options.content.hashes = hashes;
  options.content.unique_keys = unique_keys;
  options.content.policies = parse_defect_policies(policies);
  options.drop_missing = drop_missing;
  options.accept_times = accept_times;
  options.check_index = check_index;
  options.threads = threads;
  options.progress = progress_of(std::move(progress));
  return options;
}

/// Returns the fetchers of a cache, or null if the defaults apply.
std::shared_ptr<const Fetchers> fetchers_of(nb::handle cache) {
  return cache.is_none() ? nullptr : nb::cast<const CacheObject&>(cache).cache->options().fetchers;
}

/// Completes the requested content with that of the existing index, if it can be read.
/// @param has_policies  true if the call sets policies, so the index's are not used.
void keep_content(const Index::Content& kept, bool has_policies, Index::Content& content) {
  if (!has_policies) content.policies = kept.policies;
  if (content.columns.empty()) content.columns = kept.columns;
  content.hashes |= kept.hashes;
  content.unique_keys |= kept.unique_keys;
}

nb::object index(const std::string& output, const std::vector<std::string>& sources,
                 const std::vector<std::string>& columns, bool hashes, bool unique_keys,
                 const std::optional<std::string>& policies, bool forget, bool drop_missing,
                 bool accept_times, bool check_index, std::optional<unsigned> threads,
                 std::optional<std::pair<std::uint64_t, std::uint64_t>> part, nb::object progress,
                 nb::object cache) {
  const auto fetchers = fetchers_of(cache);
  BuildOptions options =
      options_of(columns, hashes, unique_keys, policies.value_or("error"), drop_missing,
                 accept_times, check_index, threads, std::move(progress));
  if (part) options.part = BuildOptions::Part{part->first, part->second};
  detail::EarlierContent kept;
  const BuildReport report = without_gil([&](const CancelToken& cancel) {
    options.cancel = cancel;
    if (!forget) {
      kept = detail::earlier_content(output);
      keep_content(kept.content, policies.has_value(), options.content);
    }
    options.remote = make_remote_access(fetchers, nullptr, cancel);
    const SourceList list = read_sources(sources, options.remote);
    options.sources = list.sources;
    BuildReport built = build_index(output, list.shards, options);
    if (options.part) return built;  // a descriptor describes all shards, not a part
    const auto made = Index::open(output);
    for (const WidsDescriptor& descriptor : list.descriptors) {
      check_against_descriptor(*made, descriptor);
    }
    return built;
  });
  if (kept.is_lost) {
    nb::module_::import_("shardwise.building").attr("warn_of_lost_options")(name_object(output));
  }
  return report_of(report, output);
}

nb::object update(const std::string& path, bool drop_missing, bool accept_times, bool check_index,
                  std::optional<unsigned> threads, nb::object progress, nb::object cache) {
  const auto fetchers = fetchers_of(cache);
  BuildOptions options = options_of({}, false, false, "error", drop_missing, accept_times,
                                    check_index, threads, std::move(progress));
  return report_of(without_gil([&](const CancelToken& cancel) {
                     options.cancel = cancel;
                     options.remote = make_remote_access(fetchers, nullptr, cancel);
                     return update_index(path, options);
                   }),
                   path);
}

nb::object merge(const std::string& output, const std::vector<std::string>& parts) {
  return report_of(without_gil([&](const CancelToken& cancel) {
                     BuildOptions options;
                     options.cancel = cancel;
                     return merge_indexes(output, parts, options);
                   }),
                   output);
}

/// Returns the path of an index, which is fetched if `path` is its URL.
std::string index_at(const std::string& path, const RemoteAccess& remote,
                     const CancelToken& cancel) {
  if (!names_an_index(path)) return path;  // opening it reports the error
  IndexCacheOptions options;
  options.build.remote = remote;
  options.build.cancel = cancel;
  return index_for(path, options);
}

nb::list verify(const std::string& path, bool full, std::optional<unsigned> threads,
                nb::object progress, nb::object cache) {
  const auto fetchers = fetchers_of(cache);
  VerifyOptions options;
  options.full = full;
  options.threads = threads;
  options.progress = progress_of(std::move(progress));
  using Finding = std::pair<std::uint64_t, std::string>;
  const std::vector<Finding> findings = without_gil([&](const CancelToken& cancel) {
    options.cancel = cancel;
    options.remote = make_remote_access(fetchers, nullptr, cancel);
    const auto index = Index::open(index_at(path, options.remote, cancel));
    std::vector<Finding> found;
    verify_shards(*index, options,
                  [&](std::uint64_t shard, const std::optional<std::string>& finding) {
                    if (finding) found.emplace_back(shard, *finding);
                  });
    return found;
  });
  nb::list all;
  for (const auto& [shard, text] : findings) {
    all.append(
        nb::make_tuple(shard, nb::steal(PyUnicode_DecodeUTF8(
                                  text.data(), static_cast<Py_ssize_t>(text.size()), "replace"))));
  }
  return all;
}

Repacking::Options repack_options(std::optional<std::uint64_t> shuffle, std::uint64_t max_samples,
                                  std::uint64_t max_bytes, const std::string& prefix,
                                  const std::string& index, std::optional<unsigned> threads,
                                  bool restart) {
  return {.max_samples = max_samples,
          .max_bytes = max_bytes,
          .shuffle = shuffle,
          .prefix = prefix,
          .index = index,
          .threads = threads,
          .restart = restart};
}

nb::tuple tuple_of(const Repacking::Report& report) {
  return nb::make_tuple(report.shards, report.shards_resumed, report.samples, report.shard_bytes,
                        name_object(report.index));
}

void add_repacking(nb::module_& module) {
  module.def(
      "repack",
      [](nb::handle data, const std::string& directory, std::optional<std::uint64_t> shuffle,
         std::uint64_t max_samples, std::uint64_t max_bytes, const std::string& prefix,
         const std::string& index, std::optional<unsigned> threads, bool restart,
         nb::object progress) {
        Repacking::Options options =
            repack_options(shuffle, max_samples, max_bytes, prefix, index, threads, restart);
        options.progress = progress_of(std::move(progress));
        const Dataset& dataset = dataset_of(data);
        return tuple_of(without_gil([&](const CancelToken& cancel) {
          options.cancel = cancel;
          return repack(dataset, directory, options);
        }));
      },
      "data"_a, "directory"_a, nb::kw_only(), "shuffle"_a.none(), "max_samples"_a, "max_bytes"_a,
      "prefix"_a, "index"_a, "threads"_a.none(), "restart"_a, "progress"_a.none(),
      nb::sig("def repack(data: Dataset, directory: str, **options: typing.Any) -> "
              "tuple[int, int, int, int, str]"),
      "Implements shardwise.repack() without a function.");
  nb::class_<Repacking>(module, "Repacking", nb::is_final(),
                        "Implements shardwise.repack() with a function.")
      .def(
          "__init__",
          [](Repacking* self, nb::handle data, const std::string& directory,
             const std::string& function, std::optional<std::uint64_t> shuffle,
             std::uint64_t max_samples, std::uint64_t max_bytes, const std::string& prefix,
             const std::string& index, std::optional<unsigned> threads, bool restart) {
            Repacking::Options options =
                repack_options(shuffle, max_samples, max_bytes, prefix, index, threads, restart);
            const Dataset& dataset = dataset_of(data);
            Repacking work = without_gil([&](const CancelToken& cancel) {
              options.cancel = cancel;
              Repacking made(dataset, directory, options, function);
              made.set_cancel({});
              return made;
            });
            new (self) Repacking(std::move(work));
          },
          "data"_a, "directory"_a, nb::kw_only(), "function"_a, "shuffle"_a.none(), "max_samples"_a,
          "max_bytes"_a, "prefix"_a, "index"_a, "threads"_a.none(), "restart"_a,
          nb::sig("def __init__(self, data: Dataset, directory: str, **options: typing.Any) -> "
                  "None"))
      .def_prop_ro("num_shards", &Repacking::num_shards, "Number of new shards.")
      .def("is_written", &Repacking::is_written, "shard"_a, "True if the new shard exists.")
      .def("samples", &Repacking::samples, "shard"_a, "The numbers of the samples of a new shard.")
      .def("unlock", &Repacking::unlock, "Lets other calls use the folder.")
      .def(
          "finish",
          [](Repacking& self) {
            return tuple_of(without_gil([&](const CancelToken& cancel) {
              self.set_cancel(cancel);
              Repacking::Report report = self.finish();
              self.set_cancel({});
              return report;
            }));
          },
          nb::sig("def finish(self) -> tuple[int, int, int, int, str]"),
          "Builds the index of the new shards.");
}

/// Between rows, the GIL is released and signals are handled.
bool next_row(Query& query) {
  return without_gil([&](const CancelToken& cancel) {
    query.set_cancel(cancel);
    const bool has_row = query.next();
    query.set_cancel({});
    return has_row;
  });
}

nb::tuple query(const std::string& path, const std::string& sql) {
  Query query = without_gil([&](const CancelToken& cancel) {
    return Query(Index::open(index_at(path, make_remote_access(), cancel)), sql);
  });
  nb::list rows;
  const std::size_t columns = query.columns().size();
  while (next_row(query)) {
    nb::list row;
    for (std::size_t i = 0; i < columns; ++i) row.append(value_object(query.value(i)));
    rows.append(nb::tuple(row));
  }
  return nb::make_tuple(query.columns(), rows);
}

nb::object counts_of(const FetchPlan::CacheCounts& counts) {
  return nb::module_::import_("shardwise.records")
      .attr("CacheCounts")(counts.uses, counts.fetches, counts.bytes_fetched, counts.evictions,
                           counts.bypasses, counts.peak_bytes);
}

nb::object plan(nb::handle data, const Order& order, std::uint64_t world_size,
                std::uint64_t batch_size, std::uint64_t nodes, std::uint64_t cache_bytes,
                std::uint64_t epochs, std::uint64_t first_epoch) {
  const Dataset& dataset = dataset_of(data);
  const FetchPlan plan = without_gil([&](const CancelToken& cancel) {
    const auto sampler =
        make_sampler(dataset, order, {.world_size = world_size, .batch_size = batch_size});
    sampler->set_epoch(first_epoch);
    FetchPlan::Options options;
    options.nodes = nodes;
    options.cache_bytes = cache_bytes;
    options.epochs = epochs;
    options.cancel = cancel;
    return plan_fetches(*sampler, FetchPlan::Shards::of(dataset), options);
  });
  const nb::module_ records = nb::module_::import_("shardwise.records");
  nb::list all;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const FetchPlan::NodeEpoch total = plan.total(epoch);
    all.append(records.attr("EpochFetches")(plan.first_epoch + epoch, total.shards, total.bytes,
                                            counts_of(total.lru), counts_of(total.next_use)));
  }
  return records.attr("FetchPlan")(plan.num_shards, plan.total_bytes, plan.bytes_in_use(),
                                   plan.bytes_for_once_an_epoch(), plan.bytes_for_once(), all);
}

}  // namespace

void add_building(nb::module_& module) {
  module.def(
      "at_home", [](const std::string& path) { return at_home(path); }, "path"_a,
      nb::sig("def at_home(path: str) -> str"),
      "The path with a leading ~ replaced by the home folder.");
  module.def("index", &index, "output"_a, "sources"_a, nb::kw_only(), "columns"_a, "hashes"_a,
             "unique_keys"_a, "policies"_a.none(), "forget"_a, "drop_missing"_a, "accept_times"_a,
             "check_index"_a, "threads"_a.none(), "part"_a.none(), "progress"_a.none(),
             "cache"_a.none(),
             nb::sig("def index(output: str, sources: list[str], **options: typing.Any) -> "
                     "shardwise.records.BuildReport"),
             "Implements shardwise.index().");
  module.def(
      "update", &update, "path"_a, nb::kw_only(), "drop_missing"_a, "accept_times"_a,
      "check_index"_a, "threads"_a.none(), "progress"_a.none(), "cache"_a.none(),
      nb::sig("def update(path: str, **options: typing.Any) -> shardwise.records.BuildReport"),
      "Implements shardwise.update().");
  module.def("merge", &merge, "output"_a, "parts"_a,
             nb::sig("def merge(output: str, parts: list[str]) -> shardwise.records.BuildReport"),
             "Implements shardwise.merge().");
  module.def("verify", &verify, "path"_a, nb::kw_only(), "full"_a, "threads"_a.none(),
             "progress"_a.none(), "cache"_a.none(),
             nb::sig("def verify(path: str, **options: typing.Any) -> list[tuple[int, str]]"),
             "Implements shardwise.verify().");
  module.def(
      "query", &query, "path"_a, "sql"_a,
      nb::sig("def query(path: str, sql: str) -> tuple[list[str], list[tuple[typing.Any, ...]]]"),
      "Implements shardwise.query().");
  module.def("plan", &plan, "data"_a, nb::kw_only(), "order"_a, "world_size"_a, "batch_size"_a,
             "nodes"_a, "cache_bytes"_a, "epochs"_a, "first_epoch"_a,
             nb::sig("def plan(data: Dataset, **options: typing.Any) -> "
                     "shardwise.records.FetchPlan"),
             "Implements shardwise.plan().");
  add_repacking(module);
}

}  // namespace shardwise::python
