#include "base/fault_point.h"

#include <atomic>

namespace shardwise::detail {
namespace {
std::atomic<FaultHandler> fault_handler{nullptr};
}  // namespace

void set_fault_handler(FaultHandler handler) noexcept { fault_handler.store(handler); }

void reach_fault_point(const char* name) {
  if (const FaultHandler handler = fault_handler.load()) handler(name);
}

}  // namespace shardwise::detail
