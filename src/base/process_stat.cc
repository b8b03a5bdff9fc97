#include "base/process_stat.h"

#include <fstream>
#include <iterator>
#include <sstream>

namespace shardwise::detail {

std::vector<std::string> process_stat(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat", std::ios::binary);
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(stat.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

}  // namespace shardwise::detail
