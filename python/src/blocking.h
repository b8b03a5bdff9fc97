#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "shardwise/base/cancel.h"

namespace shardwise::python {

/// Runs `work` without the GIL, and returns when it is done. What it throws is thrown here.
///
/// On the main thread, where Python handles signals, a signal whose handler raises (Ctrl-C) ends
/// the work with Cancelled, and then the handler's exception is raised: `cancel` becomes true, and
/// so does what the calling thread's CancelScope is asked for. There the work is done by a thread
/// of its own, at some 10 us more. A handler that itself gets here works in its own thread.
/// @param on_cancel  is then called, too, by the calling thread: for work that has a way of its own
///   to end.
/// REQUIRES: the GIL.
void run_without_gil(const std::function<void(const CancelToken& cancel)>& work,
                     const std::function<void()>& on_cancel = {});

/// The same for work that gives a value.
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
