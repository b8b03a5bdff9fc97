#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

// Answers of services are small documents without comments, CDATA or relevant attributes. Only the
// text between a tag and its end is needed.

/// The content of the first <tag>, with references such as &amp; resolved; empty if missing.
std::string xml_text(std::string_view document, std::string_view tag);

/// The content of each <tag>, unresolved, since it may hold nested elements.
std::vector<std::string_view> xml_elements(std::string_view document, std::string_view tag);

}  // namespace shardwise
