#include "shardwise/loader/epochs.h"

#include <string>

#include "base/error_types.h"

namespace shardwise::detail {

void throw_epoch_ended(std::uint64_t epoch) {
  throw InvalidArgument("the end of the epoch was reached", "epoch " + std::to_string(epoch),
                        "call set_epoch(" + std::to_string(epoch + 1) +
                            ") on the loader to go on, or walk through its epochs()");
}

void throw_loader_moved_on(std::uint64_t epoch) {
  throw NotExact("the loader has moved on", "epoch " + std::to_string(epoch),
                 "walk through an epoch, and prove it, before the next one begins");
}

}  // namespace shardwise::detail
