#include "base/spelling.h"

#include <atomic>

namespace shardwise::detail {
namespace {

using Rename = std::string_view (*)(std::string_view);

std::atomic<Face> face_here{Face::kLibrary};
std::atomic<Rename> rename_here{nullptr};

/// Returns the name for this process's interface, or an empty text if the interface has no name for
/// it.
std::string_view name_here(const Spelling& what) {
  switch (face_here) {
    case Face::kLibrary:
      break;
    case Face::kPython:
      return what.python;
    case Face::kCommand:
      const Rename rename = rename_here;
      return rename == nullptr ? what.command : rename(what.command);
  }
  return what.library;
}

}  // namespace

void spell_for(Face face, std::string_view (*rename)(std::string_view)) {
  rename_here = rename;
  face_here = face;
}

std::string spelled(const Spelling& what) {
  const std::string_view name = name_here(what);
  return std::string(name.empty() ? what.library : name);
}

std::string if_there(std::string_view before, Named what, std::string_view after) {
  const std::string_view name = name_here(*what);
  if (name.empty()) return {};
  return std::string(before).append(name).append(after);
}

std::string spelled_with(Named option, std::uint64_t value) {
  const std::string name = spelled(option);
  return name + (name.starts_with("--") ? " " : " = ") + std::to_string(value);
}

}  // namespace shardwise::detail
