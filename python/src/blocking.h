#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "shardwise/base/cancel.h"

namespace shardwise::python {

/// Runs `work` without the GIL and waits for it. Rethrows exceptions of `work`.
///
/// Python handles signals on the main thread. If that thread calls, another thread runs `work`,
/// which costs a thread switch. If a signal's handler raises (Ctrl-C), `cancel` and the worker's
/// CancelScope are set. The work then ends with Cancelled, and the handler's exception is raised. A
/// call from within a handler runs `work` in the calling thread.
/// @param on_cancel  called in the calling thread in addition, to end work that checks neither.
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
