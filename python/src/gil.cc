#include "gil.h"

#include <unistd.h>

namespace shardwise::python {

void wait_for_end_of_process() noexcept {
  while (true) pause();
}

GilReleased::~GilReleased() {
  call_python([&] { PyEval_RestoreThread(state_); });
}

}  // namespace shardwise::python
