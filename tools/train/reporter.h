#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "output.h"
#include "shardwise/libtorch/evaluate.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/resume.h"
#include "train_options.h"

namespace shardwise::train {

/// On rank 0, prints results on stdout and progress on stderr.
class Reporter {
 public:
  using Clock = std::chrono::steady_clock;

  Reporter(const Options& options, bool speaks);

  void begin_epoch();
  void progress(std::uint64_t epoch, std::uint64_t step, std::uint64_t steps, double loss,
                double images_per_second);
  void epoch_done(std::uint64_t epoch, double loss, std::int64_t samples, double seconds,
                  const std::optional<libtorch::Mean>& accuracy, const std::string& proof);
  /// Reports the evaluation of an epoch after which the earlier run stopped.
  void evaluated(std::uint64_t epoch, const libtorch::Mean& accuracy);
  /// Prints the table that libtorch::epoch_report() returns.
  void report(const std::string& table);
  /// @param checkpoint  path of the checkpoint of this step; empty without a checkpoint.
  void stopped(const std::string& reason, std::uint64_t step, const std::string& checkpoint);
  void run_done(std::uint64_t epochs, const SkipList& bad, const Loader::Stats& loading);

  /// Throws the error of the first result that could not be written. The run continues until this
  /// call.
  void require_written() const;

 private:
  void print(const nlohmann::ordered_json& json);
  void print(const std::string& line);
  void close_line();

  tools::Output out_;
  std::exception_ptr unwritten_;
  bool reader_is_gone_ = false;
  const bool json_;
  const bool speaks_;
  const bool progress_;
  const bool terminal_;
  bool line_open_ = false;
  Clock::time_point last_{};
  Clock::time_point epoch_start_{};
  std::optional<libtorch::Mean> accuracy_;
  std::vector<std::string> proofs_;
};

}  // namespace shardwise::train
