#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

// Answers of services are small documents without attributes that matter, comments or CDATA: what
// stands between a tag and its end is all that is asked of them.

/// What stands in the first <tag>, with &amp; and the like resolved; empty if there is none.
std::string xml_text(std::string_view document, std::string_view tag);

/// What stands in each <tag>, as it is written: for documents within.
std::vector<std::string_view> xml_elements(std::string_view document, std::string_view tag);

}  // namespace shardwise
