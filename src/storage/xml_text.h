#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

// A minimal XML reader. Cloud services answer with small documents without comments, CDATA or
// relevant attributes, and only the text between a start tag and its end tag is needed.

/// Returns the content of the first <tag>, with references such as &amp; resolved; empty if it
/// is missing.
std::string xml_text(std::string_view document, std::string_view tag);

/// Returns the content of each <tag>. References are not resolved, because the content may have
/// nested elements.
std::vector<std::string_view> xml_elements(std::string_view document, std::string_view tag);

}  // namespace shardwise
