#pragma once

#include <string>
#include <vector>

#include "ingest/remote_shards.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise::tools {

/// For a command that has just built `index`: checks it against the descriptors among its sources.
/// Shows a progress bar if it reads shards for their md5sum.
/// Errors: those of check_against_descriptor(). The index remains, since it describes the shards
/// correctly.
void check_descriptor_claims(const Index& index, const std::vector<WidsDescriptor>& descriptors,
                             const RemoteAccess& remote, bool md5, bool quiet);

}  // namespace shardwise::tools
