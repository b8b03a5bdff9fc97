#include "descriptor_claims.h"

#include "interrupt.h"
#include "progress.h"

namespace shardwise::tools {

void check_descriptor_claims(const Index& index, const std::vector<WidsDescriptor>& descriptors,
                             const RemoteAccess& remote, bool md5, bool quiet) {
  if (descriptors.empty()) return;
  Progress progress("checking the descriptor", Unit::kBytes, quiet);
  WidsDescriptor::CheckOptions options;
  options.md5 = md5;
  options.remote = remote;
  options.cancel = interrupt_token();
  options.progress = progress.of_bytes();
  for (const WidsDescriptor& descriptor : descriptors) {
    check_against_descriptor(index, descriptor, options);
  }
}

}  // namespace shardwise::tools
