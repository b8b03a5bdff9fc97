#pragma once

#include <string>

namespace shardwise::fuzz {

// Mutation breaks checksums, and what has a wrong one is refused at the door. These make them right
// again, so that what lies behind is reached. The only place here that knows byte layouts: what is
// whole stays as it is, which a test holds.

/// Of every header that a reader would come to, as far as sizes tell where they lie.
void fix_tar_headers(std::string& archive);
void fix_segment(std::string& segment);
/// Of the table's header and directory, and the file's length; segments stay as they are.
void fix_table(std::string& table);

}  // namespace shardwise::fuzz
