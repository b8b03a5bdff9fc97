#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "base/spelling.h"
#include "shardwise/loader/loader.h"

namespace shardwise {
namespace {

using std::chrono::nanoseconds;

/// Data loading does not slow down a consumer that waits for less than this share of its time.
constexpr double kHardlyWaits = 0.05;
/// If threads work for less than this share of their time, something else slows them down.
constexpr double kOftenIdle = 0.6;

double part_of(nanoseconds part, nanoseconds whole) {
  if (whole.count() <= 0) return 0;
  return std::clamp(static_cast<double>(part.count()) / static_cast<double>(whole.count()), 0.0,
                    1.0);
}

std::string percent(double part) { return std::to_string(std::lround(part * 100)) + " %"; }

/// The kind of work that took most of the threads' time.
struct Limit {
  nanoseconds time{};
  std::string_view name;  ///< name of a run with this limit, e.g. "decode-bound"
  std::string_view work;  ///< work of its threads
  std::string remedy{};   ///< a remedy other than more threads
};

/// Whether reading takes much longer than it would from memory.
bool is_storage_slow(const Loader::Stats& stats) {
  std::uint64_t samples = 0;
  for (const std::uint64_t count : stats.sample_times) samples += count;
  const double us = static_cast<double>(stats.reading.count()) / 1e3;
  return us > 20.0 * static_cast<double>(samples) &&
         static_cast<double>(stats.bytes_read) < 500.0 * us;
}

Limit limit_of(const Loader::Stats& stats) {
  const bool fetches = stats.fetch_threads > 0;
  const std::array limits = {
      Limit{stats.opening, fetches ? "fetch-bound" : "opening-bound", "opening shards"},
      Limit{stats.reading, is_storage_slow(stats) ? "read-bound (cold storage)" : "read-bound",
            "reading"},
      Limit{stats.decoding, "decode-bound", "decoding",
            "smaller images" + if_there(", or ", "ImageDecoding::Scaling::kFast")},
      Limit{stats.transforming, "transform-bound", "transforming",
            "smaller outputs, or fewer steps"},
      Limit{stats.functions, "function-bound", "in column functions", "faster functions"},
      Limit{stats.planning + stats.collating, "batch-bound", "putting batches together",
            "columns with a fixed shape"},
  };
  return *std::max_element(limits.begin(), limits.end(),
                           [](const Limit& a, const Limit& b) { return a.time < b.time; });
}

/// Returns how many threads would finish the loading in the time that the consumer needs for its
/// own work.
unsigned enough_threads(const Loader::Stats& stats, double busy, double waits) {
  const double needed =
      std::ceil(static_cast<double>(stats.threads) * busy / std::max(1 - waits, 0.01));
  return static_cast<unsigned>(
      std::clamp(needed, stats.threads + 1.0, std::max(2.0 * stats.threads, 1.0)));
}

std::string remedy(const Loader::Stats& stats, const Limit& limit, double busy, double waits) {
  if (limit.name == "fetch-bound") {
    return if_there("", "fetch_threads").empty()
               ? std::string("a larger cache")
               : spelled_with("fetch_threads", std::uint64_t{2} * stats.fetch_threads) +
                     ", or a larger cache";
  }
  if (limit.name == "opening-bound") {
    return "an order that reads more samples per shard in a row" +
           if_there(", or a larger number of open shards (", "Dataset::Options::max_open_shards",
                    ")");
  }
  unsigned threads = enough_threads(stats, busy, waits);
  // Threads that wait for a disk do not each need a core.
  if (limit.name != "read-bound (cold storage)") threads = std::min(threads, stats.cores);
  if (threads > stats.threads) return spelled_with("threads", threads);
  const std::string other = limit.remedy.empty() ? "" : limit.remedy + ", or ";
  return other + "more cores (all " + std::to_string(stats.cores) + " are busy)";
}

}  // namespace

std::string Loader::Stats::summary() const {
  if (elapsed.count() <= 0 && batches == 0) return "no batch was loaded yet";
  const double waits = part_of(waited, elapsed);
  if (waits < kHardlyWaits && threads == 0) {
    return "consumer-bound: no threads; the consumer loads by itself, " + percent(waits) +
           " of the time";
  }
  if (waits < kHardlyWaits) {
    return "consumer-bound: batches were ready " + percent(1 - waits) + " of the time";
  }
  const Limit limit = limit_of(*this);
  if (threads == 0) {
    return std::string(limit.name) + ": no threads; the consumer loads by itself, " +
           percent(waits) + " of the time; try " +
           spelled_with("threads", std::clamp(cores, 1U, 2U));
  }
  const nanoseconds work =
      planning + opening + reading + decoding + transforming + functions + collating;
  const double busy = part_of(work, work + idle);
  const std::string who = std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  const std::string consumer = "the consumer waited " + percent(waits) + " of the time";
  if (busy < kOftenIdle && batches > 4 * prefetch) {
    return "prefetch-bound: " + who + " at " + percent(busy) + ", though " + consumer +
           (if_there("", "prefetch").empty() ? ""
                                             : "; try " + spelled_with("prefetch", 2 * prefetch));
  }
  return std::string(limit.name) + ": " + who + " at " + percent(busy) + ", " +
         percent(part_of(limit.time, work)) + " of it " + std::string(limit.work) + "; " +
         consumer + "; try " + remedy(*this, limit, busy, waits);
}

}  // namespace shardwise
