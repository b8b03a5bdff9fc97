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

/// Options of `shardwise epoch` for decoding samples, and for bad ones.
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

/// Adds the options of decoding and of bad samples. `arguments` must live as long as `command`
/// does.
void add_decode_options(CLI::App& command, DecodeArguments& arguments);

/// Errors: CLI::ValidationError for options that exclude each other; InvalidArgument if --trace or
/// --bad-list names a file that cannot be written, or that the same option did not write.
void check_decode_options(const DecodeArguments& arguments);

/// The beginning of a --trace file. A file with another beginning is never overwritten.
inline constexpr std::string_view kTraceBegin = "[\n{\"name\":\"thread_name\"";

/// Returns a checksum of the contents of all fields. The checksum of several samples is the sum of
/// theirs, so it does not depend on their order.
/// @param bytes  is increased by the size of all fields.
inline std::uint64_t checksum_of(const Sample& sample, std::uint64_t& bytes) noexcept {
  std::uint64_t checksum = 0;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const Sample::Field field = sample.field(i);
    bytes += field.bytes.size();
    checksum += hash64(field.bytes);
  }
  return checksum;
}

/// Parts of an epoch, loaded by shardwise::loader. A program without the loader reads one sample
/// after another, and refuses --decode.
/// Threads: one.
class LoadedEpoch {
 public:
  struct Settings {
    std::uint64_t batch_size = 1;
    unsigned threads = 0;
    unsigned fetch_threads = 0;
    /// The ranks that share this node's cache; count 0 means: only the loaded rank.
    RankOptions::Range node = {.first = 0, .count = 0};
  };
  /// A loaded batch.
  struct Loaded {
    std::vector<std::uint64_t> samples;
    std::uint64_t checksum = 0;  ///< see checksum_of(); 0 with --decode
    std::uint64_t images = 0;    ///< decoded images; 0 without --decode
  };
  using Use = std::function<void(const Loaded&)>;

  /// Errors: Unsupported for --decode if the program was built without the loader.
  LoadedEpoch(const DecodeArguments& arguments, const Settings& settings);
  ~LoadedEpoch();
  LoadedEpoch(const LoadedEpoch&) = delete;
  LoadedEpoch& operator=(const LoadedEpoch&) = delete;

  /// Loads the rest of the epoch of `sampler`, from its position, and passes each batch to `use`.
  /// Samples delivered earlier in the epoch are not checked.
  /// Errors: BadField if more samples are bad than --max-bad allows; the file of --bad-list is
  ///   written first. Other errors of a sample name it. Cancelled after Ctrl-C.
  void load(const MixedDataset& data, const Sampler& sampler, const Use& use);
  /// Loads the first batch, and passes it to `use` `times` times.
  /// @return  the duration of these calls.
  /// Errors: see load(); InvalidArgument if there is no batch.
  std::chrono::duration<double> replay(const MixedDataset& data, const Sampler& sampler,
                                       std::uint64_t times, const Use& use);

  /// Loading threads; 0 in a program without the loader.
  [[nodiscard]] unsigned threads() const;
  [[nodiscard]] std::chrono::duration<double> waited() const;
  /// Bytes of the fields that were read so far.
  [[nodiscard]] std::uint64_t bytes_read() const;
  /// What limits the loading, with advice in options of the command line.
  [[nodiscard]] std::string limit() const;
  /// Damage that decoders forgave, one line per kind.
  [[nodiscard]] std::vector<std::string> forgiven() const;
  [[nodiscard]] nlohmann::ordered_json forgiven_json() const;
  /// Times by stage.
  [[nodiscard]] nlohmann::ordered_json stages_json() const;
  /// Samples left out, of all ranks, repeated if they came repeatedly.
  [[nodiscard]] std::vector<std::uint64_t> bad_samples() const;
  /// The bad samples, each once, with the reason: a few as lines for people, all as JSON.
  [[nodiscard]] std::vector<std::string> bad() const;
  [[nodiscard]] nlohmann::ordered_json bad_json() const;
  /// Writes the files of --trace and --bad-list: the last events of all ranks in Chrome's trace
  /// format, and the bad samples in the format of --skip. Call it at the end.
  /// Errors: those of writing; BadField if samples of `data` were loaded, and all were bad.
  void finish(const MixedDataset& data) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::tools
