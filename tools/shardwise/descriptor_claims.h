#pragma once

#include <string>
#include <vector>

#include "ingest/remote_shards.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise::tools {

/// For a command that has just built `index`: holds what the descriptors among its
/// sources claim against it, with a progress bar while shards are read for their md5sum.
/// Errors: those of check_against_descriptor. The index stays: it says what the shards hold.
void check_descriptor_claims(const Index& index, const std::vector<WidsDescriptor>& descriptors,
                             const RemoteAccess& remote, bool md5, bool quiet);

}  // namespace shardwise::tools
