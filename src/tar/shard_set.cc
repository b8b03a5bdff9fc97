#include "tar/shard_set.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/text.h"

namespace shardwise::detail {

std::vector<std::uint64_t> numbers_there(const ShardWriter::Names& names) {
  namespace fs = std::filesystem;
  const std::size_t slash = names.before.rfind('/');
  const std::size_t in_name = slash == std::string::npos ? 0 : slash + 1;
  const std::string folder = in_name == 0 ? "." : names.before.substr(0, in_name);
  const std::size_t begin = names.before.size() - in_name;
  std::vector<std::uint64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (name.size() <= begin + names.after.size() || entry->is_directory(error)) continue;
    const std::optional<std::int64_t> number =
        parse_int64(std::string_view(name).substr(begin, name.size() - begin - names.after.size()));
    if (!number || *number < 0) continue;
    const auto n = static_cast<std::uint64_t>(*number);
    if (names.name(n).substr(in_name) == name) numbers.push_back(n);
  }
  if (error) throw_errno(error.value(), "cannot list the folder", folder);
  return numbers;
}

bool is_of_shard_writer(const std::string& path) {
  constexpr std::size_t kHeaderBytes = 512;
  std::string header(kHeaderBytes, '\0');
  const File file = File::open_read(path);
  if (file.read_at(0, header.data(), header.size()) != header.size()) return false;
  const auto has = [&](std::size_t begin, std::string_view bytes) {
    return std::string_view(header).substr(begin).starts_with(bytes);
  };
  constexpr std::string_view kNobody("000000 \0", 8);
  const std::string no_name(32, '\0');
  return has(108, kNobody) && has(116, kNobody) && has(136, "00000000000 ") &&  // uid, gid, mtime
         has(257, "ustar") && has(265, no_name) && has(297, no_name);  // names of user and group
}

}  // namespace shardwise::detail
