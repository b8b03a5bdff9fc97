#include "storage/opening_time.h"

namespace shardwise::detail {
namespace {

thread_local std::chrono::nanoseconds time_of_thread{};

}  // namespace

std::chrono::nanoseconds opening_time() noexcept { return time_of_thread; }

OpeningTimer::~OpeningTimer() { time_of_thread += std::chrono::steady_clock::now() - begin_; }

}  // namespace shardwise::detail
