#pragma once

namespace shardwise::python {

/// Collects the reports of failed fetches that are retried, for log_retries(). Called once.
void collect_retry_notes();

/// Logs the reports collected so far, as warnings of the logger "shardwise". The main thread calls
/// it while it waits for work, so that fetching threads need no GIL. Returns false with Python's
/// error set if a handler of the logger raised.
/// Cost: one atomic load if there are none.
/// REQUIRES: the GIL.
bool log_retries();

}  // namespace shardwise::python
