#include "shardwise/base/cancel.h"

#include <utility>

#include "base/cancel_scope.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

thread_local constinit const CancelToken::Flag* flag_of_thread = nullptr;

}  // namespace

void CancelToken::throw_cancelled() {
  throw Cancelled("cancelled on request", "", "existing files are unchanged");
}

namespace detail {

CancelScope::CancelScope(const CancelToken::Flag& flag) noexcept
    : before_(std::exchange(flag_of_thread, &flag)) {}

CancelScope::~CancelScope() { flag_of_thread = before_; }

CancelToken CancelScope::joined(const CancelToken& token) {
  CancelToken both = token;
  if (flag_of_thread != nullptr) both.also_ = CancelToken(flag_of_thread).flag_;
  return both;
}

}  // namespace detail

}  // namespace shardwise
