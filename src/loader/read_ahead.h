#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/page_request.h"
#include "loader/engine.h"
#include "shardwise/base/export.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// A source of plans that asks the kernel to read the data of coming plans before the engine's
/// threads need it, while the page cache lacks that data. It takes the plans from another source.
///
/// The calling threads' disk reads, by page faults or by requests, show that data is not cached.
/// The source then plans some hundred samples ahead of the engine.
///
/// Threads: one at a time, as for Engine::Source.
/// Cost: a system call per few dozen samples, once a few thousand samples were found cached.
/// Errors: those of the other source, each in the place of its plan.
class SHARDWISE_EXPORT ReadAheadSource {
 public:
  ReadAheadSource(Engine::Source source, MixedDataset data, std::span<const Column> columns);

  std::optional<BatchPlan> operator()();

  /// Whether the last call requested samples.
  [[nodiscard]] bool is_asking() const noexcept { return is_asking_; }

 private:
  struct Asked {
    BatchPlan plan;
    std::uint64_t bytes = 0;  // number of bytes requested for the plan
  };

  /// Begins to request samples if this thread has read from disk since its last check.
  void look();
  void plan_one();
  /// Requests the samples of a plan from the kernel. Returns the number of bytes.
  std::uint64_t ask(const BatchPlan& plan);
  /// Whether enough samples were requested beyond the next plan.
  [[nodiscard]] bool is_ahead() const noexcept;

  const Engine::Source source_;
  const MixedDataset data_;
  // One for each part of the data. Not freed in a forked child, where another thread of the parent
  // may have been changing them.
  std::shared_ptr<std::vector<PageRequest>> requests_;
  std::deque<Asked> plans_;  // plans not yet handed out
  std::size_t rows_since_look_ = 0;
  bool is_asking_ = true;
  std::size_t asked_in_vain_ = 0;  // consecutive samples that were already in memory
  bool has_ended_ = false;
  std::exception_ptr error_;  // thrown by the other source after its last plan
};

}  // namespace shardwise::detail
