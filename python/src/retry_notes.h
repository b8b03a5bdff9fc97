#pragma once

namespace shardwise::python {

/// From now on, failed fetches that are retried are logged as warnings of the logger "shardwise".
/// A thread of its own logs them, because fetching threads must not wait for the GIL, and the
/// thread that called Shardwise waits for them.
void log_retries();

}  // namespace shardwise::python
