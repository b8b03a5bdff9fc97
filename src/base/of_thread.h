#pragma once

#include <memory>

namespace shardwise::detail {

/// A T of the calling thread, for this one place: `Place` is the type of a lambda written there.
///
/// It lies on the heap. Storage of threads that is `thread_local` itself must find room in a small
/// block where the library is part of what is loaded late, as a Python extension is.
template <class T, class Place>
T& of_thread(Place /*place*/) {
  thread_local const auto mine = std::make_unique<T>();
  return *mine;  // NOLINT(clang-analyzer-cplusplus.NewDelete): not freed before the thread ends
}

}  // namespace shardwise::detail
