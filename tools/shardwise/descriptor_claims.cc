#include "descriptor_claims.h"

#include "interrupt.h"
#include "progress.h"

namespace shardwise::tools {

void check_descriptor_claims(const std::string& index,
                             const std::vector<WidsDescriptor>& descriptors, RemoteShards* remote,
                             bool md5, bool quiet) {
  if (descriptors.empty()) return;
  Progress progress("checking md5", Unit::kBytes, quiet);
  WidsCheckOptions options;
  options.md5 = md5;
  options.remote = remote;
  options.cancel = &interrupt_flag();
  options.progress = [&](std::uint64_t bytes_done, std::uint64_t num_bytes) {
    progress.update(bytes_done, num_bytes, [] { return std::string(); });
  };
  const std::shared_ptr<const Index> opened = Index::open(index);
  for (const WidsDescriptor& descriptor : descriptors) {
    check_against_descriptor(*opened, descriptor, options);
  }
}

}  // namespace shardwise::tools
