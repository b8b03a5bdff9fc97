#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "blocking.h"
#include "objects.h"
#include "shardwise/storage/shard_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

nb::dict stats(const CacheObject& self) {
  const ShardCache::Stats stats = self.cache->stats();
  nb::dict all;
  all["hits"] = stats.hits;
  all["misses"] = stats.misses;
  all["fetched"] = stats.fetched;
  all["fetched_bytes"] = stats.fetched_bytes;
  all["waits"] = stats.waits;
  all["evicted"] = stats.evicted;
  all["evicted_bytes"] = stats.evicted_bytes;
  all["bypassed"] = stats.bypassed;
  return all;
}

}  // namespace

void add_caches(nb::module_& module) {
  nb::class_<CacheObject>(
      module, "ShardCache", nb::is_weak_referenceable(),
      "A directory with a byte budget, in which shards that cannot be read where they lie (remote "
      "ones, compressed ones) are kept, shared by all processes of a machine. A shard is fetched "
      "once, however many ask for it. Any thread may use it, and a forked child.\n\n"
      "The directory is made if there is none. budget_bytes: what the shards in it may take "
      "together. bypass_large: a shard that is larger than the budget is fetched each time, "
      "instead "
      "of being an error. allow_pipe: URLs `pipe:command` are run; only for URLs that you wrote "
      "yourself.")
      .def(
          "__init__",
          [](CacheObject* self, const std::string& directory, std::uint64_t budget_bytes,
             bool bypass_large, bool allow_pipe) {
            Fetchers::Options fetching;
            fetching.allow_pipe = allow_pipe;
            new (self) CacheObject{
                ShardCache::open({.directory = directory,
                                  .budget_bytes = budget_bytes,
                                  .bypass_large = bypass_large,
                                  .fetchers = std::make_shared<const Fetchers>(fetching)})};
          },
          "directory"_a, "budget_bytes"_a = std::uint64_t{64} << 30, nb::kw_only(),
          "bypass_large"_a = false, "allow_pipe"_a = false)
      .def_prop_ro("directory",
                   [](const CacheObject& self) { return self.cache->options().directory; })
      .def_prop_ro("budget_bytes",
                   [](const CacheObject& self) { return self.cache->options().budget_bytes; })
      .def_prop_ro(
          "used_bytes", [](const CacheObject& self) { return self.cache->used_bytes(); },
          "Bytes of all shards in it, those that are being fetched included.")
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, int]"),
           "Counts of what this process did with it.\n\n"
           ">>> cache = shardwise.ShardCache(\"cache\", budget_bytes=1 << 30)\n"
           ">>> cache.stats()[\"fetched\"], cache.used_bytes\n"
           "(0, 0)")
      .def(
          "prune",
          [](const CacheObject& self, std::uint64_t max_bytes) {
            return without_gil(
                [&](const CancelToken&) { return self.cache->prune(max_bytes).bytes; });
          },
          "max_bytes"_a,
          "Removes shards that were not used lately until the others take ``max_bytes`` or less; "
          "gives the bytes that were removed. Shards in use stay.");
}

}  // namespace shardwise::python
