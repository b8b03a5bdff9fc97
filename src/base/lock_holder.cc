#include "base/lock_holder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/process_stat.h"
#include "base/text.h"

namespace shardwise::detail {

namespace {

namespace fs = std::filesystem;

/// True if a line of /proc/<pid>/fdinfo/<fd> shows an exclusive lock of an open file on the byte:
///   lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:2146309 17 17
bool is_lock_on(const std::string& line, std::uint64_t inode, std::uint64_t byte) {
  std::istringstream fields(line);
  std::string label, number, kind, strength, access, process, file, end_text;
  std::uint64_t begin = 0;
  if (!(fields >> label >> number >> kind >> strength >> access >> process >> file >> begin >>
        end_text)) {
    return false;
  }
  const bool is_wanted = label == "lock:" && kind == "OFDLCK" && access == "WRITE" &&
                         file.ends_with(":" + std::to_string(inode));
  if (!is_wanted || byte < begin) return false;
  std::uint64_t end = 0;
  return end_text == "EOF" || (std::istringstream(end_text) >> end && byte <= end);
}

bool holds_lock(const fs::path& process, std::uint64_t inode, std::uint64_t byte) {
  try {
    for (const auto& descriptor : fs::directory_iterator(process / "fdinfo")) {
      std::ifstream file(descriptor.path());
      for (std::string line; std::getline(file, line);) {
        if (line.starts_with("lock:") && is_lock_on(line, inode, byte)) return true;
      }
    }
  } catch (const fs::filesystem_error&) {  // it is another user's, or ended
  }
  return false;
}

LockHolder holder_of(const fs::path& process) {
  const std::string pid = process.filename();
  LockHolder holder{.process = std::stoi(pid), .program = {}};
  std::ifstream name(process / "comm");
  std::getline(name, holder.program);
  const std::vector<std::string> stat = process_stat(pid);
  holder.is_stopped = !stat.empty() && (stat[0] == "T" || stat[0] == "t");
  return holder;
}

}  // namespace

std::string LockHolder::text() const {
  return "process " + std::to_string(process) + " (" + escaped(program) + ")" +
         (is_stopped ? ", which is stopped" : "");
}

std::optional<LockHolder> find_lock_holder(const std::string& path, std::uint64_t byte) {
  struct stat locked {};
  if (::stat(path.c_str(), &locked) != 0) return std::nullopt;
  try {
    // Most often it is a thread of this process.
    const fs::path own = "/proc/" + std::to_string(::getpid());
    if (holds_lock(own, locked.st_ino, byte)) return holder_of(own);
    for (const auto& process : fs::directory_iterator("/proc")) {
      const std::string pid = process.path().filename();
      const bool is_process = pid.find_first_not_of("0123456789") == std::string::npos;
      if (is_process && holds_lock(process.path(), locked.st_ino, byte)) {
        return holder_of(process.path());
      }
    }
  } catch (const fs::filesystem_error&) {  // there is no /proc
  }
  return std::nullopt;
}

}  // namespace shardwise::detail
