#pragma once

#include <cstdint>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// What a Reducer also is if the ranks of its run stop together: a step that some rank gives up is
/// given up by all, and their loaders take back what they handed out for it. One thread, the
/// loader's.
class SHARDWISE_EXPORT StepWatch {
 public:
  virtual ~StepWatch();

  /// True if steps are counted. Else a step is whole once the next batch is asked for.
  [[nodiscard]] virtual bool counts_steps() const = 0;
  /// Steps of the run that all ranks have done.
  [[nodiscard]] virtual std::uint64_t num_whole_steps() const = 0;
  /// True if this rank is to stop at once, so that it does not wait for data any more.
  [[nodiscard]] virtual bool wants_to_stop() const = 0;
  /// True once the ranks gave up a step.
  [[nodiscard]] virtual bool gave_up_step() const = 0;
  /// The largest of the ranks' values. Collective.
  [[nodiscard]] virtual std::int64_t largest(std::int64_t value) = 0;

 protected:
  StepWatch() = default;
  StepWatch(const StepWatch&) = default;
  StepWatch& operator=(const StepWatch&) = default;
};

}  // namespace shardwise::detail
