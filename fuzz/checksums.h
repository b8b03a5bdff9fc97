#pragma once

#include <string>

namespace shardwise::fuzz {

// Corrects the checksums that mutation breaks, so that readers go on to the content. Only this file
// knows byte layouts. It leaves intact files unchanged; a test checks that.

/// Corrects every header that a reader would reach, as far as sizes give their places.
void fix_tar_headers(std::string& archive);
void fix_segment(std::string& segment);
/// Corrects the table's header and directory, and the file's length in it. Segments are unchanged.
void fix_table(std::string& table);

}  // namespace shardwise::fuzz
