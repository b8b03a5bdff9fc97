// The libFuzzer program. It is compiled once for each target.

#include <cstddef>
#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const shardwise::fuzz::Target kRun =
      shardwise::fuzz::target_named(SHARDWISE_FUZZ_TARGET).run;
  kRun({reinterpret_cast<const char*>(data), size});
  return 0;
}
