#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/engine.h"
#include "shardwise/base/export.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// A source of plans that has the kernel read what the plans of another source will need, before
/// the engine's threads need it. It does so while the shards' bytes are not in the page cache.
///
/// The disk reads of the calling threads, by page faults or by requests, show whether bytes are
/// cold. While they are, the source plans some hundred samples ahead of the engine.
///
/// Threads: one at a time, as for Engine::Source.
/// Cost: with warm bytes, after a few thousand samples: a system call for every few dozen samples.
/// Errors: those of the other source, in their places.
class SHARDWISE_EXPORT ReadAheadSource {
 public:
  ReadAheadSource(Engine::Source source, MixedDataset data, std::span<const Column> columns);

  std::optional<BatchPlan> operator()();

  /// Whether samples were requested when the source was last called.
  [[nodiscard]] bool is_asking() const noexcept { return is_asking_; }

 private:
  struct Asked {
    BatchPlan plan;
    std::uint64_t bytes = 0;  // requested for the plan
  };

  /// Starts requests if this thread has read from disk since its last check.
  void look();
  void plan_one();
  /// Requests the samples of a plan from the kernel. Returns the number of bytes.
  std::uint64_t ask(const BatchPlan& plan);
  /// Whether enough is requested beyond the plan that is handed out next.
  [[nodiscard]] bool is_ahead() const noexcept;

  const Engine::Source source_;
  const MixedDataset data_;
  std::optional<std::vector<std::string>> fields_;  // fields that columns read; nullopt means any
  std::deque<Asked> plans_;                         // not yet handed out
  std::size_t rows_since_look_ = 0;
  bool is_asking_ = true;
  std::size_t asked_in_vain_ = 0;  // consecutive samples that were in memory already
  bool has_ended_ = false;
  std::exception_ptr error_;  // of the other source; it ended the plans
};

}  // namespace shardwise::detail
