#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "shardwise/base/cancel.h"

namespace shardwise::python {

/// Runs `work` without the GIL, and returns when it is done. Exceptions of `work` pass through.
///
/// Python handles signals on the main thread. There, a separate thread runs `work`, which costs a
/// thread switch. If a signal's handler raises (Ctrl-C), `cancel` and the worker's CancelScope are
/// set. The work ends with Cancelled, and then the handler's exception is raised. A call from
/// within a handler runs in the calling thread.
/// @param on_cancel  called by the calling thread as well, to end the work in another way.
/// REQUIRES: the GIL.
void run_without_gil(const std::function<void(const CancelToken& cancel)>& work,
                     const std::function<void()>& on_cancel = {});

/// Does the same for work that returns a value.
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
