#pragma once

#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {

/// From now on the first SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU cancels the token
/// below. One more of its kind that comes a second later or more ends the process at once. A signal
/// that is ignored when the program starts (nohup, a job in the background of a script) stays
/// ignored. Also ignores SIGPIPE and SIGXFSZ, so that a write to a closed pipe, or beyond the limit
/// on the size of files, is an error.
void install_signal_handlers();

/// Says at the first Ctrl-C that long work in the library shall stop.
const CancelToken& interrupt_token();
/// The flag of that token, for a CancelScope.
const CancelToken::Flag& interrupt_flag();

/// Thrown instead of Cancelled where there is more to say than that nothing was left half-written.
class Interrupted : public Cancelled {
 public:
  using Cancelled::Cancelled;
};

/// What a program that a signal interrupted exits with, as shells and schedulers know it: 128 and
/// the number of the signal that came first, so 130 after Ctrl-C and 143 after SIGTERM.
int interrupt_exit_code() noexcept;

/// Throws Cancelled if Ctrl-C was pressed.
void throw_if_interrupted();

}  // namespace shardwise::tools
