#pragma once

#include <cstdint>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A Reducer also implements this if the ranks of its run stop together. If one rank gives up a
/// step, all ranks do, and their loaders take back the batches that they handed out for that step.
/// Threads: the loader's only.
class SHARDWISE_EXPORT StepWatch {
 public:
  virtual ~StepWatch();

  /// True if the run counts its steps. Otherwise a step is complete when the next batch is
  /// requested.
  [[nodiscard]] virtual bool counts_steps() const = 0;
  /// Steps of the run that all ranks have completed.
  [[nodiscard]] virtual std::uint64_t num_whole_steps() const = 0;
  /// True if this rank must stop at once, without waiting for data.
  [[nodiscard]] virtual bool wants_to_stop() const = 0;
  /// True once the ranks have given up a step.
  [[nodiscard]] virtual bool gave_up_step() const = 0;
  /// Returns the largest of the ranks' values. Collective.
  [[nodiscard]] virtual std::int64_t largest(std::int64_t value) = 0;

 protected:
  StepWatch() = default;
  StepWatch(const StepWatch&) = default;
  StepWatch& operator=(const StepWatch&) = default;
};

}  // namespace shardwise::detail
