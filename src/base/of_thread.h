#pragma once

#include <memory>

namespace shardwise::detail {

/// Returns the calling thread's object of type T for one place in the code. To identify the place,
/// pass a lambda that is written there; its type is `Place`.
///
/// The object is on the heap, because a library that is loaded late, e.g. by a Python extension,
/// has only little `thread_local` storage.
template <class T, class Place>
T& of_thread(Place /*place*/) {
  thread_local const auto mine = std::make_unique<T>();
  return *mine;  // NOLINT(clang-analyzer-cplusplus.NewDelete): not freed before the thread ends
}

}  // namespace shardwise::detail
