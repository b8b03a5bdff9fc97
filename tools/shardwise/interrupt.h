#pragma once

#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {

/// Installs handlers. The first SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU cancels the
/// token below. A second signal of the same kind, one second or more later, ends the process at
/// once. Signals that are ignored when the program starts (nohup, a script's background job) stay
/// ignored. SIGPIPE and SIGXFSZ are ignored, so that a write to a closed pipe, or beyond the limit
/// on file sizes, fails with an error.
void install_signal_handlers();

/// Cancelled by the first of these signals. Ends long work in the library.
const CancelToken& interrupt_token();
/// Returns the flag of interrupt_token(), for a CancelScope.
const CancelToken::Flag& interrupt_flag();

/// Thrown instead of Cancelled if the message has further information, e.g. how to continue.
class Interrupted : public Cancelled {
 public:
  using Cancelled::Cancelled;
};

/// Returns the exit code after a signal, as shells and schedulers expect it: 128 plus the number of
/// the first signal, e.g. 130 after Ctrl-C and 143 after SIGTERM.
int interrupt_exit_code() noexcept;

/// Throws Cancelled if one of these signals has arrived.
void throw_if_interrupted();

}  // namespace shardwise::tools
