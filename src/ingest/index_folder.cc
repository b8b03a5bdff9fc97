#include "ingest/index_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/normal_path.h"
#include "base/own_directory.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/catalogue.h"

namespace shardwise::detail {
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kIndexSuffix = ".idx";
constexpr std::string_view kLockSuffix = ".lock";
constexpr std::size_t kNameLength = 32;  // hexadecimal digits of a Hash128
constexpr std::time_t kDaySeconds = std::time_t{24} * 60 * 60;
constexpr std::time_t kUnusedSeconds = 30 * kDaySeconds;

/// Returns the value of an environment variable if it is an absolute path.
std::optional<std::string> folder_in(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || value[0] != '/') return std::nullopt;
  return value;
}

std::string this_process() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return "process " + std::to_string(::getpid()) + " on " + host;
}

std::string writer_of(const File& file) {
  std::string text(512, '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  return text.empty() ? "another process" : text;
}

}  // namespace

bool has_index_folder(const IndexCacheOptions& options) {
  return !options.directory.empty() || folder_in("XDG_CACHE_HOME") || folder_in("HOME");
}

std::string index_folder(const IndexCacheOptions& options) {
  if (!options.directory.empty()) return normal_absolute_path(options.directory);
  if (const auto cache = folder_in("XDG_CACHE_HOME")) return *cache + "/shardwise";
  if (const auto home = folder_in("HOME")) return *home + "/.cache/shardwise";
  throw InvalidArgument("no folder is known for the index that is built at first use",
                        "neither XDG_CACHE_HOME nor HOME is set", name_index_folder());
}

void require_own_index_folder(const std::string& folder) {
  if (::access(folder.c_str(), F_OK) == 0) require_own_directory(folder, kIndexFolderPurpose);
}

void make_index_folder(const std::string& folder) {
  try {
    in_index_folder([&] { make_directories(folder); });
  } catch (const NotFound& e) {  // a folder cannot be made at this path, e.g. in /proc
    throw NotFound(std::string(e.what()) + "; or " + name_index_folder());
  }
  require_own_directory(folder, kIndexFolderPurpose);
}

std::string name_index_folder() {
  return "name another folder (" + spelled("IndexCacheOptions::directory") + "), or run " +
         spelled("`shardwise index -o INDEX SOURCE`") + ", and name INDEX in its place";
}

IndexSlot::IndexSlot(const std::string& folder, const std::string& name)
    : folder_(folder), path_(folder + "/" + name + std::string(kIndexSuffix)) {}

std::string IndexSlot::lock_path() const { return path_ + std::string(kLockSuffix); }

File IndexSlot::take_turn(const IndexCacheOptions& options) const {
  constexpr std::chrono::milliseconds kLongestPause{100};
  constexpr std::chrono::seconds kFirstWord{1}, kNextWord{10};
  const Clock::time_point start = Clock::now();
  Clock::time_point next_word = start + kFirstWord;
  std::chrono::milliseconds pause{1};
  for (;; pause = std::min(pause * 2, kLongestPause)) {
    options.build.cancel.throw_if_cancelled();
    File file = File::open_or_create(lock_path(), 0600);  // mode 0600: other users cannot lock it
    switch (file.try_lock()) {
      case FileLock::kUnsupported:
        return file;
      case FileLock::kTaken:
        if (!file.has_name()) continue;  // the file was removed after it was opened
        file.resize(0);
        file.write_at(0, this_process());
        return file;
      case FileLock::kHeldByAnother:
        break;
    }
    if (const auto now = Clock::now(); now >= next_word) {
      next_word = now + kNextWord;
      if (options.on_wait) {
        options.on_wait(writer_of(file),
                        std::chrono::duration_cast<std::chrono::milliseconds>(now - start));
      }
    }
    std::this_thread::sleep_for(pause);
  }
}

void IndexSlot::remove_what_is_no_index() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      throw InvalidArgument("the path of the index exists and is not a file", in_quotes(path_),
                            "remove it");
    }
    if (Catalogue::looks_like_one(path_)) return;
  }
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    throw_errno(errno, "cannot remove", path_);
  }
}

void IndexSlot::leave_nothing_empty() const noexcept {
  if (::access(path_.c_str(), F_OK) == 0 || ::access((path_ + ".journal").c_str(), F_OK) == 0 ||
      ::access(fetched_folder().c_str(), F_OK) == 0) {
    return;
  }
  ::unlink(lock_path().c_str());
}

void IndexSlot::note_use() const noexcept {
  struct stat status {};
  if (::stat(lock_path().c_str(), &status) != 0) return;
  if (std::time(nullptr) - status.st_mtim.tv_sec < kDaySeconds) return;
  ::utimensat(AT_FDCWD, lock_path().c_str(), nullptr, 0);
}

void IndexSlot::remove_others_unused() const noexcept {
  try {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.size() != kNameLength + kIndexSuffix.size() + kLockSuffix.size() ||
          !is_hex(name.substr(0, kNameLength)) || !name.ends_with(kLockSuffix)) {
        continue;
      }
      const IndexSlot other(folder_, name.substr(0, kNameLength));
      if (other.path() != path_ && other.is_unused()) other.remove();
    }
  } catch (const std::exception&) {
    // A leftover only costs disk space.
  }
}

bool IndexSlot::is_unused() const {
  struct stat status {};
  return ::stat(lock_path().c_str(), &status) == 0 &&
         std::time(nullptr) - status.st_mtim.tv_sec > kUnusedSeconds;
}

void IndexSlot::remove() const {
  File file = File::open_or_create(lock_path(), 0600);  // mode 0600: other users cannot lock it
  if (file.try_lock() != FileLock::kTaken || !file.has_name() || !is_unused()) return;
  ::unlink(path_.c_str());  // remove the catalogue first: without it there is no index
  const std::string start = fs::path(path_).filename().string() + ".";
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    std::error_code failed;  // a file that remains is removed later
    if (name.starts_with(start) && entry.path() != lock_path()) {
      fs::remove_all(entry.path(), failed);
    }
  }
  // Remove the lock file last, because another process may build once it is gone.
  ::unlink(lock_path().c_str());
}

}  // namespace shardwise::detail
