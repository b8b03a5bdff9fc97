#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "shardwise/base/cancel.h"

namespace shardwise::python {

/// Runs `work` without the GIL and waits for it. Rethrows exceptions of `work`.
///
/// Threads: Python handles signals on the main thread. If the main thread calls this, another
/// thread runs `work`, at the cost of a thread switch. Other threads, and signal handlers, run
/// `work` in the calling thread.
/// Signals: if a signal's handler raises (Ctrl-C), `cancel` and the CancelScope of `work` are set.
/// `work` should then end with Cancelled, and the handler's exception is raised.
/// @param on_cancel  called in the calling thread when `cancel` is set, to end work that checks
/// neither `cancel` nor the CancelScope.
/// REQUIRES: the GIL.
void run_without_gil(const std::function<void(const CancelToken& cancel)>& work,
                     const std::function<void()>& on_cancel = {});

/// Runs work that returns a value.
template <class Work>
auto without_gil(Work&& work) {
  using Result = std::invoke_result_t<Work, const CancelToken&>;
  if constexpr (std::is_void_v<Result>) {
    run_without_gil(std::forward<Work>(work));
  } else {
    std::optional<Result> result;
    run_without_gil([&](const CancelToken& cancel) { result.emplace(work(cancel)); });
    return *std::move(result);
  }
}

}  // namespace shardwise::python
