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

/// A source of plans that has the kernel read, ahead of the engine's threads, what the plans of
/// another one will need, for as long as the shards' bytes turn out not to be in the page cache.
///
/// Whether they are shows in what the calling threads read from disk, by faults or by asking: a
/// warm data set costs a look at that for some tens of samples, and nothing else, after its first
/// few thousand. While bytes are cold, it also plans some hundred samples ahead of the engine.
///
/// Called by one thread at a time, as Engine::Source. Errors: those of the other source, in their
/// places.
class SHARDWISE_EXPORT ReadAheadSource {
 public:
  ReadAheadSource(Engine::Source source, MixedDataset data, std::span<const Column> columns);

  std::optional<BatchPlan> operator()();

  /// Whether samples were asked for when it was called last.
  [[nodiscard]] bool is_asking() const noexcept { return is_asking_; }

 private:
  struct Asked {
    BatchPlan plan;
    std::uint64_t bytes = 0;  // that were asked for
  };

  /// Notes whether this thread has read from disk since it was here last.
  void look();
  void plan_one();
  /// Asks for a plan's samples. Returns the number of bytes.
  std::uint64_t ask(const BatchPlan& plan);
  /// Whether enough is asked for behind the plan that is handed out next.
  [[nodiscard]] bool is_ahead() const noexcept;

  const Engine::Source source_;
  const MixedDataset data_;
  std::optional<std::vector<std::string>> fields_;  // that columns read; none: any
  std::deque<Asked> plans_;                         // not yet handed out
  std::size_t rows_since_look_ = 0;
  bool is_asking_ = true;
  std::size_t asked_in_vain_ = 0;  // samples, one after the other, that were all there
  bool has_ended_ = false;
  std::exception_ptr error_;  // which was the end
};

}  // namespace shardwise::detail
