#include "shardwise/base/error.h"

#include <cerrno>
#include <system_error>

#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/text.h"

namespace shardwise {
namespace {

std::string join(std::string_view what, std::string_view where, std::string_view remedy) {
  std::string text(what);
  if (!where.empty()) text.append(": ").append(where);
  if (!remedy.empty()) text.append("; ").append(remedy);
  return text;
}

}  // namespace

std::string_view error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kOutOfRange:
      return "OutOfRange";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kIo:
      return "Io";
    case ErrorCode::kNoSpace:
      return "NoSpace";
    case ErrorCode::kCorruptShard:
      return "CorruptShard";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kStaleIndex:
      return "StaleIndex";
    case ErrorCode::kCorruptIndex:
      return "CorruptIndex";
    case ErrorCode::kVersionMismatch:
      return "VersionMismatch";
    case ErrorCode::kBadField:
      return "BadField";
    case ErrorCode::kMismatch:
      return "Mismatch";
    case ErrorCode::kNotExact:
      return "NotExact";
    case ErrorCode::kCancelled:
      return "Cancelled";
    case ErrorCode::kDistributed:
      return "Distributed";
    case ErrorCode::kFetch:
      return "Fetch";
  }
  return "Unknown";
}

Error::Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}

Error::Error(ErrorCode code, std::string_view what, std::string_view where, std::string_view remedy)
    : Error(code, join(what, where, remedy)) {}

void detail::throw_error(ErrorCode code, const std::string& text) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      throw InvalidArgument(text);
    case ErrorCode::kOutOfRange:
      throw OutOfRange(text);
    case ErrorCode::kNotFound:
      throw NotFound(text);
    case ErrorCode::kCorruptShard:
      throw CorruptShard(text);
    case ErrorCode::kUnsupported:
      throw Unsupported(text);
    case ErrorCode::kStaleIndex:
      throw StaleIndex(text);
    case ErrorCode::kCorruptIndex:
      throw CorruptIndex(text);
    case ErrorCode::kVersionMismatch:
      throw VersionMismatch(text);
    case ErrorCode::kBadField:
      throw BadField(text);
    case ErrorCode::kMismatch:
      throw Mismatch(text);
    case ErrorCode::kNotExact:
      throw NotExact(text);
    case ErrorCode::kCancelled:
      throw Cancelled(text);
    case ErrorCode::kFetch:
      throw FetchError(text);
    case ErrorCode::kIo:
    case ErrorCode::kNoSpace:
    case ErrorCode::kDistributed:
      break;
  }
  throw Error(code, text);
}

void detail::throw_errno(int errno_value, std::string_view action, std::string_view path) {
  const std::string what(action);
  const std::string where = in_quotes(path);
  const std::string reason = std::generic_category().message(errno_value);
  switch (errno_value) {
    case ENOENT:
      // Only such an action fails because of the file itself; others miss its folder, too.
      if (what == "cannot access" || what == "cannot open")
        throw NotFound("no such file", where, "check the path");
      [[fallthrough]];
    case ENOTDIR:
      throw NotFound(what, where + " (" + reason + ")", "check the path");
    case ENOSPC:
    case EDQUOT:
      throw Error(ErrorCode::kNoSpace, what, where + " (" + reason + ")",
                  "free some space or choose another place, then run again");
    case EFBIG:
      throw Error(ErrorCode::kNoSpace, what, where + " (" + reason + ")",
                  "raise the file size limit (ulimit -f), or choose a file system that supports "
                  "large files, then run again");
    case EACCES:
    case EPERM:
    case EROFS:
      throw Error(ErrorCode::kIo, what, where + " (" + reason + ")",
                  "check the permissions of the file and its folder");
    case EMFILE:
    case ENFILE:
      throw NoDescriptor(what, where + " (" + reason + ")",
                         "raise the limit of open files (ulimit -n)");
    case ENAMETOOLONG:
      throw InvalidArgument(what, where + " (" + reason + ")",
                            "choose a shorter name; the name of an index has at most 200 bytes");
    default:
      throw Error(ErrorCode::kIo, what, where + " (" + reason + ")", "");
  }
}

}  // namespace shardwise
