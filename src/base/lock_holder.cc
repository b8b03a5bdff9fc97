#include "base/lock_holder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/process_stat.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

namespace fs = std::filesystem;

/// Calls `visit` with every path in a folder of /proc that this user may read.
template <class Visit>
void for_each_path(const fs::path& folder, const Visit& visit) {
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) visit(at->path());
}

/// Calls `visit` with the pid of each process and the path of each of its descriptors in /proc.
template <class Visit>
void for_each_descriptor(const Visit& visit) {
  for_each_path("/proc", [&](const fs::path& process) {
    const auto pid = parse_int64(process.filename().native());
    if (!pid) return;
    for_each_path(process / "fd", [&](const fs::path& descriptor) { visit(*pid, descriptor); });
  });
}

LockHolder holder_of(std::int64_t pid) {
  LockHolder holder{.process = static_cast<int>(pid), .program = {}};
  std::ifstream name("/proc/" + std::to_string(pid) + "/comm");
  std::getline(name, holder.program);
  const std::vector<std::string> stat = process_stat(std::to_string(pid));
  holder.is_stopped = !stat.empty() && (stat[0] == "T" || stat[0] == "t");
  return holder;
}

}  // namespace

std::string LockHolder::text() const {
  return "process " + std::to_string(process) + " (" + escaped(program) + ")" +
         (is_stopped ? ", which is suspended" : "");
}

std::multimap<std::string, std::int64_t> processes_with_files_in(const std::string& folder) {
  std::multimap<std::string, std::int64_t> found;
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) return found;
  for_each_descriptor([&](std::int64_t pid, const fs::path& descriptor) {
    std::error_code gone;
    const fs::path file = fs::read_symlink(descriptor, gone);
    if (!gone && file.parent_path() == real) found.emplace(file.filename().string(), pid);
  });
  return found;
}

LockHolders LockHolders::of_file(const std::string& path) {
  LockHolders holders;
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return holders;
  for_each_descriptor([&](std::int64_t pid, const fs::path& descriptor) {
    struct stat open {};
    if (::stat(descriptor.c_str(), &open) != 0 || open.st_dev != file.st_dev ||
        open.st_ino != file.st_ino) {
      return;
    }
    // A line is e.g. lock:	1: OFDLCK ADVISORY  READ -1 00:2a:5678 100 100
    const fs::path process = descriptor.parent_path().parent_path();
    std::ifstream info(process / "fdinfo" / descriptor.filename());
    for (std::string line; std::getline(info, line);) {
      std::istringstream words(line);
      std::string label, number, kind, advisory, access, owner, inode, first, last;
      words >> label >> number >> kind >> advisory >> access >> owner >> inode >> first >> last;
      const auto begin = parse_int64(first);
      if (label != "lock:" || kind != "OFDLCK" || !begin) continue;
      // "EOF" means that the lock extends to the end of the file, even if the file grows.
      const std::int64_t end = parse_int64(last).value_or(INT64_MAX);
      holders.held_.push_back({.pid = pid,
                               .is_exclusive = access == "WRITE",
                               .first = static_cast<std::uint64_t>(*begin),
                               .last = static_cast<std::uint64_t>(end)});
    }
  });
  return holders;
}

std::vector<std::int64_t> LockHolders::of_byte(std::uint64_t offset, bool exclusively) const {
  std::vector<std::int64_t> pids;
  for (const Held& held : held_) {
    if (exclusively && !held.is_exclusive) continue;
    if (held.first <= offset && offset <= held.last) pids.push_back(held.pid);
  }
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

std::optional<LockHolder> find_lock_holder(const std::string& path, std::uint64_t byte,
                                           bool exclusively) {
  const auto pids = LockHolders::of_file(path).of_byte(byte, exclusively);
  if (pids.empty()) return std::nullopt;
  // If this process is among the holders, the caller most likely waits for this process.
  const bool is_own = std::ranges::find(pids, ::getpid()) != pids.end();
  return holder_of(is_own ? ::getpid() : pids.front());
}

}  // namespace shardwise::detail
