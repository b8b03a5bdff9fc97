#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_point.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/support.h"

namespace shardwise::test {

/// Counts the scans of shards in this process. Only one such object may exist at a time.
class CountScans {
 public:
  CountScans() {
    count_ = 0;
    set_fault_handler([](const char* name) {
      if (std::string_view(name) == "claimed_shards.scan") ++count_;
    });
  }
  ~CountScans() { set_fault_handler(nullptr); }
  CountScans(const CountScans&) = delete;
  CountScans& operator=(const CountScans&) = delete;

  int count() const { return count_; }

 private:
  static inline std::atomic<int> count_{0};
};

/// A server with shards of different lengths, and a descriptor of these shards.
class ServedDescriptor {
 public:
  struct Shard {
    std::string name;
    std::uint64_t num_samples = 0;
    std::string bytes = {};
    bool says_size = false;
    std::uint64_t claim = 0;
  };

  explicit ServedDescriptor(std::vector<std::uint64_t> lengths = {5, 17, 1, 0, 30, 8}) {
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      shards.push_back({.name = std::to_string(i) + ".tar",
                        .num_samples = lengths[i],
                        .bytes = tar_of_samples(first, lengths[i]),
                        .says_size = i % 2 == 1,
                        .claim = lengths[i]});
      first += lengths[i];
      serve(i);
    }
    write();
  }

  static std::string text_of(std::uint64_t sample, std::string_view version = "") {
    return "text " + std::to_string(sample) + std::string(version) +
           std::string(sample % 40 * 25, 'x');
  }
  static std::string key_of(std::uint64_t sample) { return "s" + std::to_string(sample); }
  /// Returns a shard in which every third sample has an additional field.
  static std::string tar_of_samples(std::uint64_t first, std::uint64_t count,
                                    std::string_view version = "") {
    TarBuilder tar;
    for (std::uint64_t i = first; i < first + count; ++i) {
      tar.file(key_of(i) + ".txt", text_of(i, version));
      tar.file(key_of(i) + ".cls", std::to_string(i % 10));
      if (i % 3 == 0) tar.file(key_of(i) + ".Extra.bin", std::string(i % 7, 'b'));
    }
    return tar.end().bytes();
  }
  void serve(std::size_t i, const std::string& etag = "\"v1\"") {
    server.serve("/" + shards[i].name, {.body = shards[i].bytes, .etag = etag});
  }
  void write() const { write_file(path(), json()); }
  std::string json() const {
    std::string list;
    for (const Shard& shard : shards) {
      if (!list.empty()) list += ",\n";
      list += R"({"url": ")" + shard.name + R"(", "nsamples": )" + std::to_string(shard.claim);
      if (shard.says_size) list += R"(, "filesize": )" + std::to_string(shard.bytes.size());
      list += "}";
    }
    return R"({"wids_version": 1, "base": ")" + server.url("") + R"(", "shardlist": [)" + list +
           "]}";
  }
  std::string path() const { return dir / "train.json"; }
  std::vector<std::string> urls() const {
    std::vector<std::string> all;
    for (const Shard& shard : shards) all.push_back(server.url("/" + shard.name));
    return all;
  }

  std::shared_ptr<ShardCache> cache(const std::string& name = "cache",
                                    std::uint64_t budget_bytes = 1 << 30) const {
    return ShardCache::open({.directory = dir / name,
                             .budget_bytes = budget_bytes,
                             .bypass_large = true,
                             .room_timeout = std::chrono::milliseconds(10),
                             .fetchers = fetchers});
  }
  Dataset::Options options(std::shared_ptr<ShardCache> in) const {
    Dataset::Options all;
    all.cache = std::move(in);
    all.index_cache.directory = dir / "indexes";
    return all;
  }
  Dataset open() const { return Dataset::open_lazily(path(), options(cache())); }
  /// Returns a dataset of the same shards with an index, and with its own cache.
  Dataset indexed() const {
    build_index(dir / "full.idx", urls(), {.remote = make_remote_access(fetchers)});
    return Dataset::open(dir / "full.idx", options(cache("full")));
  }
  int gets() const { return requests("GET"); }
  /// Returns the number of requests for shards.
  int requests(std::string_view method) const {
    int count = 0;
    for (const Shard& shard : shards) count += server.count(method, "/" + shard.name);
    return count;
  }

  TempDir dir;
  TestHttpServer server;
  std::shared_ptr<const Fetchers> fetchers = std::make_shared<const Fetchers>(quick_options());
  std::vector<Shard> shards;
};

/// Compares a sample with what the shards above contain. Returns the difference, or "".
inline std::string difference(const Sample& sample, std::uint64_t number,
                              std::string_view version = "") {
  if (sample.index() != number) return "another number";
  if (sample.key() != ServedDescriptor::key_of(number)) return "another key";
  if (sample["txt"] != ServedDescriptor::text_of(number, version)) return "another text";
  if (sample.integer("cls") != static_cast<std::int64_t>(number % 10)) return "another class";
  if (sample.num_fields() != (number % 3 == 0 ? 3u : 2u)) return "another number of fields";
  if (number % 3 == 0 && sample["extra.bin"] != std::string(number % 7, 'b')) return "other bytes";
  return "";
}

}  // namespace shardwise::test
