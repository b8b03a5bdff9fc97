#pragma once

#include <memory>

namespace shardwise::detail {

/// Returns the calling thread's T for one place in the code. `Place` is the type of a lambda
/// written there.
///
/// T lies on the heap: if the library is loaded late, e.g. with a Python extension, only a small
/// block is left for `thread_local` storage.
template <class T, class Place>
T& of_thread(Place /*place*/) {
  thread_local const auto mine = std::make_unique<T>();
  return *mine;  // NOLINT(clang-analyzer-cplusplus.NewDelete): not freed before the thread ends
}

}  // namespace shardwise::detail
