#pragma once

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Called at every fault point in builds with SHARDWISE_FAULT_POINTS (test builds). The handler may
/// kill the process or throw, so that a test can prove that no data is lost. nullptr removes the
/// handler.
using FaultHandler = void (*)(const char* name);
SHARDWISE_EXPORT void set_fault_handler(FaultHandler handler) noexcept;

SHARDWISE_EXPORT void reach_fault_point(const char* name);
}  // namespace shardwise::detail

namespace shardwise {
using detail::FaultHandler;
using detail::set_fault_handler;
}  // namespace shardwise

#ifdef SHARDWISE_FAULT_POINTS
#define SHARDWISE_FAULT_POINT(name) ::shardwise::detail::reach_fault_point(name)
#else
#define SHARDWISE_FAULT_POINT(name) static_cast<void>(0)
#endif
