#include "shardwise/loader/epochs.h"

#include <string>

#include "base/error_types.h"

namespace shardwise::detail {

void throw_epoch_ended(std::uint64_t epoch) {
  throw InvalidArgument("the end of the epoch was reached", "epoch " + std::to_string(epoch),
                        "call set_epoch(" + std::to_string(epoch + 1) +
                            ") on the loader, or iterate over its epochs()");
}

void throw_loader_moved_on(std::uint64_t epoch) {
  throw NotExact("epoch " + std::to_string(epoch) +
                     " cannot be continued or proven, because the loader is in another epoch",
                 {}, "finish and prove each epoch before beginning another");
}

}  // namespace shardwise::detail
