#include "interrupt.h"

#include <csignal>

#include "shardwise/base/error.h"

namespace shardwise::tools {
namespace {

CancelToken::Flag interrupted{false};

void on_signal(int) { interrupted.store(true); }

}  // namespace

void install_signal_handlers() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction old {};
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = on_signal;
    // No SA_RESTART: a write that a slow reader holds up must notice.
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

const CancelToken& interrupt_token() {
  static const CancelToken token(&interrupted);
  return token;
}

void throw_if_interrupted() {
  if (interrupted.load()) throw Cancelled("interrupted");
}

}  // namespace shardwise::tools
