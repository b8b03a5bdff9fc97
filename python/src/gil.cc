#include "gil.h"

#include <unistd.h>

namespace shardwise::python {

void wait_for_end_of_process() noexcept {
  while (true) pause();
}

GilReleased::~GilReleased() {
  call_python([&] { PyEval_RestoreThread(state_); });
}

GilAcquired::GilAcquired() noexcept {
  if (Py_IsInitialized() == 0) wait_for_end_of_process();
  call_python([&] { state_ = PyGILState_Ensure(); });
}

GilAcquired::~GilAcquired() {
  // if Python did not know the thread before, this also frees its threading.local() values
  call_python([&] { PyGILState_Release(state_); });
}

}  // namespace shardwise::python
