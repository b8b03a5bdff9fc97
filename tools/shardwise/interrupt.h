#pragma once

#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {

/// Installs handlers: the first SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU cancels the
/// token below. Another one of the same kind, a second or more later, ends the process at once. A
/// signal that is ignored when the program starts (nohup, a background job of a script) stays
/// ignored. SIGPIPE and SIGXFSZ are ignored, so that a write to a closed pipe, or beyond the limit
/// on file sizes, is an error.
void install_signal_handlers();

/// Cancelled at the first of these signals; ends long work in the library.
const CancelToken& interrupt_token();
/// The flag of interrupt_token(), for a CancelScope.
const CancelToken::Flag& interrupt_flag();

/// Thrown instead of Cancelled if the message has to tell more, e.g. how to continue.
class Interrupted : public Cancelled {
 public:
  using Cancelled::Cancelled;
};

/// The exit code after a signal, as shells and schedulers expect it: 128 plus the number of the
/// first signal, so 130 after Ctrl-C and 143 after SIGTERM.
int interrupt_exit_code() noexcept;

/// Throws Cancelled after the first of these signals.
void throw_if_interrupted();

}  // namespace shardwise::tools
