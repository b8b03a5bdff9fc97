#pragma once

#include <string>

namespace shardwise::fuzz {

// Corrects the checksums that mutations break, so that readers continue to the content. Only this
// file depends on byte layouts. It does not change intact files; a test checks this.

/// Corrects every header that a reader would reach. The sizes in the headers give the places of the
/// next ones.
void fix_tar_headers(std::string& archive);
void fix_segment(std::string& segment);
/// Corrects the table's directory and header, including the length of the file. Segments are
/// unchanged.
void fix_table(std::string& table);
/// Corrects the header of a file of side tables, including the length of the file, and the checksum
/// of its list. The tables are unchanged.
void fix_side_tables(std::string& file);

}  // namespace shardwise::fuzz
