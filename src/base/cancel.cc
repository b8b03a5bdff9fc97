#include "shardwise/base/cancel.h"

#include "shardwise/base/error.h"

namespace shardwise {

void CancelToken::throw_cancelled() {
  throw Cancelled("cancelled on request", "", "files that were there before are unchanged");
}

}  // namespace shardwise
