#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hasher.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/data/sample.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/sampler.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Options of `shardwise epoch` about decoding and about bad samples.
struct DecodeArguments {
  std::string decode = "none";
  std::string image_field;
  std::string resize;  // "HxW"
  std::string crop;
  std::string trace;
  std::optional<std::uint64_t> replay;
  std::optional<std::uint64_t> max_bad;
  std::string bad_list;

  [[nodiscard]] bool is_on() const noexcept { return decode != "none"; }
};

/// True if this program has the loader. Without it, samples are read one after another, and options
/// of the loader are refused.
bool has_loader() noexcept;

/// Adds the options about decoding and bad samples. `arguments` must outlive `command`.
void add_decode_options(CLI::App& command, DecodeArguments& arguments);

/// Errors: CLI::ValidationError for options that exclude each other; InvalidArgument if the file of
/// --trace or --bad-list cannot be written, or was not written by the same option.
void check_decode_options(const DecodeArguments& arguments);

/// How each --trace file begins. Files that begin otherwise are never overwritten.
inline constexpr std::string_view kTraceBegin = "[\n{\"name\":\"thread_name\"";

/// Returns a checksum of the contents of all fields. The checksum of several samples is the sum of
/// their checksums, so it does not depend on their order.
/// @param bytes  increased by the size of all fields.
inline std::uint64_t checksum_of(const Sample& sample, std::uint64_t& bytes) noexcept {
  std::uint64_t checksum = 0;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const Sample::Field field = sample.field(i);
    bytes += field.bytes.size();
    checksum += hash64(field.bytes);
  }
  return checksum;
}

/// Loads parts of an epoch by shardwise::loader. A program built without the loader reads samples
/// one after another, and refuses --decode.
/// Threads: one.
class LoadedEpoch {
 public:
  struct Settings {
    std::uint64_t batch_size = 1;
    unsigned threads = 0;
    unsigned fetch_threads = 0;
    /// The ranks that share this node's cache; count 0 means only the loaded rank.
    RankOptions::Range node = {.first = 0, .count = 0};
  };
  /// A loaded batch, and what was counted.
  struct Loaded {
    std::vector<std::uint64_t> samples;
    std::uint64_t checksum = 0;  ///< see checksum_of(); 0 with --decode
    std::uint64_t images = 0;    ///< decoded images; 0 without --decode
  };
  using Use = std::function<void(const Loaded&)>;

  /// Errors: Unsupported for --decode in a program built without the loader.
  LoadedEpoch(const DecodeArguments& arguments, const Settings& settings);
  ~LoadedEpoch();
  LoadedEpoch(const LoadedEpoch&) = delete;
  LoadedEpoch& operator=(const LoadedEpoch&) = delete;

  /// Loads the rest of the epoch from the position of `sampler` on, and calls `use` with each
  /// batch. Does not check earlier deliveries of the epoch.
  /// Errors: BadField if more samples are bad than --max-bad allows, after writing the file of
  /// --bad-list. Errors of a sample have its name. Cancelled after Ctrl-C.
  void load(const MixedDataset& data, const Sampler& sampler, const Use& use);
  /// Loads the first batch, and calls `use` with it `times` times.
  /// @return  duration of these calls.
  /// Errors: those of load(); InvalidArgument if there is no batch.
  std::chrono::duration<double> replay(const MixedDataset& data, const Sampler& sampler,
                                       std::uint64_t times, const Use& use);

  /// Number of loading threads; 0 in a program built without the loader.
  [[nodiscard]] unsigned threads() const;
  [[nodiscard]] std::chrono::duration<double> waited() const;
  /// Bytes of the fields that were read so far.
  [[nodiscard]] std::uint64_t bytes_read() const;
  /// Returns the cause that limits loading, with advice that names options of the command line.
  [[nodiscard]] std::string limit() const;
  /// Damage that decoders tolerated, one line per kind.
  [[nodiscard]] std::vector<std::string> forgiven() const;
  [[nodiscard]] nlohmann::ordered_json forgiven_json() const;
  /// Times by stage.
  [[nodiscard]] nlohmann::ordered_json stages_json() const;
  /// Samples left out, of all ranks, once for each time that a sample was left out.
  [[nodiscard]] std::vector<std::uint64_t> bad_samples() const;
  /// The bad samples, each once, with the reason: bad() returns a few as lines for people, and the
  /// next function returns all as JSON.
  [[nodiscard]] std::vector<std::string> bad() const;
  [[nodiscard]] nlohmann::ordered_json bad_json() const;
  /// Writes the files of --trace and --bad-list: the last events of all ranks in Chrome's trace
  /// format, and the bad samples in the format of --skip. Call it at the end.
  /// Errors: those of writing; BadField if samples of `data` were loaded and all were bad.
  void finish(const MixedDataset& data) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::tools
