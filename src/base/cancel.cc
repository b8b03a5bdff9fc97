#include "shardwise/base/cancel.h"

#include "shardwise/base/error.h"

namespace shardwise {

void CancelToken::throw_cancelled() {
  throw Cancelled("cancelled, as asked for", "", "what was there before is as it was");
}

}  // namespace shardwise
