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

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/sampler.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// What `shardwise epoch` does with the samples beside reading them.
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

/// Adds the options of decoding and of bad samples. `arguments` must live as long as `command`
/// does.
void add_decode_options(CLI::App& command, DecodeArguments& arguments);

/// Errors: CLI::ValidationError for options that do not go together; InvalidArgument if --trace or
/// --bad-list names a file that cannot be written, or that holds what they did not write.
void check_decode_options(const DecodeArguments& arguments);

/// What the file of --trace begins with. One that begins otherwise is none of ours.
inline constexpr std::string_view kTraceBegin = "[\n{\"name\":\"thread_name\"";

/// Parts of an epoch, loaded by shardwise::loader. One thread.
class DecodedEpoch {
 public:
  struct Settings {
    std::uint64_t batch_size = 1;
    unsigned threads = 0;
    unsigned fetch_threads = 0;
    /// The ranks that share this node's cache; count 0: the one that is loaded.
    RankOptions::Range node = {.first = 0, .count = 0};
  };
  /// What one batch was.
  struct Loaded {
    std::vector<std::uint64_t> samples;
    std::uint64_t images = 0;
    std::uint64_t bytes_read = 0;  ///< of fields, up to now, by all batches
  };
  using Use = std::function<void(const Loaded&)>;

  /// Errors: Unsupported if the program was built without the loader.
  DecodedEpoch(const DecodeArguments& arguments, const Settings& settings);
  ~DecodedEpoch();
  DecodedEpoch(const DecodedEpoch&) = delete;
  DecodedEpoch& operator=(const DecodedEpoch&) = delete;

  /// Loads what the rank of `sampler` gets from where that stands, and gives it to `use`.
  /// @param delivered_before  in this epoch, as the token says where the run stands within one.
  /// Errors: BadField for one bad sample more than --max-bad allows, when the file of --bad-list
  /// has those that were found; others, naming the sample; Cancelled after Ctrl-C.
  void load(const MixedDataset& data, const Sampler& sampler,
            const std::optional<EpochAudit::Sum>& delivered_before, const Use& use);
  /// Loads the first batch of that, and gives it to `use` so many times.
  /// @return  the time that those took.
  /// Errors: as load(); InvalidArgument if there is no batch.
  std::chrono::duration<double> replay(const MixedDataset& data, const Sampler& sampler,
                                       const std::optional<EpochAudit::Sum>& delivered_before,
                                       std::uint64_t times, const Use& use);

  [[nodiscard]] std::chrono::duration<double> waited() const;
  [[nodiscard]] std::uint64_t bytes_read() const;
  /// What limited the loading, and what to try, by options of the command line.
  [[nodiscard]] std::string limit() const;
  /// What decoders forgave, a line for each kind.
  [[nodiscard]] std::vector<std::string> forgiven() const;
  [[nodiscard]] nlohmann::ordered_json forgiven_json() const;
  /// Where the time went.
  [[nodiscard]] nlohmann::ordered_json stages_json() const;
  /// Samples that were left out, of all ranks, as often as they came.
  [[nodiscard]] std::vector<std::uint64_t> bad_samples() const;
  /// Those, each once, with the reason: some as lines for people, all as JSON.
  [[nodiscard]] std::vector<std::string> bad() const;
  [[nodiscard]] nlohmann::ordered_json bad_json() const;
  /// Writes the files of --trace and --bad-list: the last events of all ranks as Chrome's trace
  /// format, and the bad samples as --skip reads them. Call it at the end.
  /// Errors: those of writing; BadField if samples of `data` were loaded, and all were bad.
  void finish(const MixedDataset& data) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::tools
