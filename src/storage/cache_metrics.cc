#include "storage/cache_metrics.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

/// Escapes a label's value: UTF-8 with the three escapes of the format.
std::string label_value(std::string_view value) {
  std::string text;
  for (const char c : escaped(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

/// Builds the text, one metric family after another.
class Exposition {
 public:
  explicit Exposition(std::string labels) : labels_(std::move(labels)) {}

  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    family(name, help, "counter", std::to_string(value));
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value) {
    family(name, help, "gauge", std::to_string(value));
  }
  void counter_seconds(std::string_view name, std::string_view help,
                       std::chrono::nanoseconds value) {
    family(name, help, "counter", seconds(value.count()));
  }
  void gauge_time(std::string_view name, std::string_view help, std::int64_t time_ns) {
    family(name, help, "gauge", seconds(time_ns));
  }

  std::string take() { return std::move(text_); }

 private:
  /// Formats a time in seconds, independent of the locale.
  static std::string seconds(std::int64_t ns) {
    char fraction[16];
    constexpr std::int64_t kNsInSecond = 1'000'000'000;
    ns = std::max<std::int64_t>(ns, 0);
    std::snprintf(fraction, sizeof fraction, ".%09lld", static_cast<long long>(ns % kNsInSecond));
    return std::to_string(ns / kNsInSecond) + fraction;
  }
  void family(std::string_view name, std::string_view help, std::string_view type,
              std::string_view value) {
    const std::string full = "shardwise_cache_" + std::string(name);
    text_ += "# HELP " + full + " " + std::string(help) + "\n";
    text_ += "# TYPE " + full + " " + std::string(type) + "\n";
    text_ += full + labels_ + " " + std::string(value) + "\n";
  }

  const std::string labels_;
  std::string text_;
};

}  // namespace

std::string process_metrics(const ShardCache::Stats& stats, const ShardCache::Options& options,
                            std::int64_t pid) {
  Exposition all("{directory=\"" + label_value(options.directory) + "\",pid=\"" +
                 std::to_string(pid) + "\"}");
  all.counter("hits_total", "Requested shards that were in the cache.", stats.hits);
  all.counter("misses_total", "Requested shards that were not in the cache.", stats.misses);
  all.counter("fetched_shards_total", "Shards fetched by this process.", stats.fetched);
  all.counter("fetched_bytes_total", "Bytes of the fetched shards as transferred.",
              stats.fetched_bytes);
  all.counter("waits_total", "Waits for a shard that another process or thread was fetching.",
              stats.waits);
  all.counter_seconds("waited_seconds_total",
                      "Time that readers waited for shards, including their own fetches.",
                      stats.waited);
  all.counter("evicted_shards_total", "Evicted shards.", stats.evicted);
  all.counter("evicted_bytes_total", "Bytes of the evicted shards.", stats.evicted_bytes);
  all.counter("wrong_transfers_total", "Transfers whose content was not the requested shard.",
              stats.wrong);
  all.counter("bypassed_shards_total",
              "Fetched shards that were not kept because the cache was full.", stats.bypassed);
  all.gauge("budget_bytes", "Budget of the cache in this process.", options.budget_bytes);
  return all.take();
}

std::string directory_metrics(const std::vector<ShardCache::Entry>& entries,
                              const std::vector<ShardCache::Entry>& coming,
                              std::string_view directory) {
  std::uint64_t bytes = 0, in_use = 0, in_use_bytes = 0, coming_bytes = 0;
  std::int64_t oldest_ns = 0;
  for (const ShardCache::Entry& entry : entries) {
    bytes += entry.size_bytes;
    if (entry.in_use) ++in_use, in_use_bytes += entry.size_bytes;
    if (oldest_ns == 0 || entry.last_use_ns < oldest_ns) oldest_ns = entry.last_use_ns;
  }
  for (const ShardCache::Entry& entry : coming) coming_bytes += entry.size_bytes;
  Exposition all("{directory=\"" + label_value(directory) + "\"}");
  all.gauge("shards", "Complete shards in the cache.", entries.size());
  all.gauge("shard_bytes", "Bytes of the complete shards in the cache.", bytes);
  all.gauge("shards_in_use", "Shards in use by any process.", in_use);
  all.gauge("in_use_bytes", "Bytes of the shards in use by any process.", in_use_bytes);
  all.gauge("shards_coming", "Shards that are being fetched.", coming.size());
  all.gauge("coming_bytes", "Bytes reserved for shards that are being fetched.", coming_bytes);
  all.gauge_time(
      "oldest_use_timestamp_seconds",
      "Last use of the least recently used shard, in seconds since 1970; 0 without shards.",
      oldest_ns);
  return all.take();
}

void write_metrics(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.file().write(text);
  file.keep_as(path);
}

ShardCache::Stats CacheCounts::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

std::string CacheCounts::metrics() const { return process_metrics(stats(), options_, ::getpid()); }

bool CacheCounts::writes_file() const noexcept {
  return !options_.metrics_file.empty() && process_ == process_generation();
}

void CacheCounts::try_write() const noexcept {
  if (!writes_file()) return;
  try {
    write_metrics(options_.metrics_file, metrics());
  } catch (const std::exception&) {  // the old file remains
  }
}

void CacheCounts::write_if_due() noexcept {
  // About the interval at which node_exporter reads the file.
  constexpr std::chrono::seconds kEvery{15};
  if (!writes_file()) return;
  {
    const Lock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - written_ < kEvery) return;
    written_ = now;
  }
  try_write();
}

}  // namespace shardwise::detail
