#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace shardwise {

// Directories in which this user keeps what others are neither to write nor to replace. `purpose`
// is what the directory is to be, for error texts: "a shard cache".

/// Throws the InvalidArgument that a directory gets which cannot be what it is to be.
[[noreturn]] void refuse_directory(const std::string& path, std::string_view purpose,
                                   std::string_view why, std::string_view remedy);

/// Makes the directory, with mode 0700, unless it is there.
void make_directory(const std::string& path);
/// As make_directory(), and makes the directories above it that are missing.
void make_directories(const std::string& path);

/// Throws unless it is a directory of this user's to which nobody else may write. A link to one
/// will do: what it leads to is checked.
/// Errors: NotFound, kIo; InvalidArgument.
void require_own_directory(const std::string& path, std::string_view purpose);
/// Throws if others than its owner may write to the directory, by its mode.
/// Errors: NotFound, kIo; InvalidArgument.
void require_unshared_directory(const std::string& path, std::string_view purpose);

/// True if the file, or what a link at `path` leads to, belongs to neither this user nor root.
/// Errors: NotFound, kIo.
bool belongs_to_another(const std::string& path);
/// True if another user than root may write to the open file, as its owner or by its mode. Access
/// control lists count as far as they show in the mode.
bool may_be_written_by_others(const File& file);
/// True if another user than root may put something else under this name, or under one of the
/// directories or links that lead there. Errors: NotFound, kIo.
bool may_be_replaced_by_others(const std::string& path);

// Directories that are shared with a group: its members may write to them, and nobody else. What is
// made in one belongs to the group, too (the bit setgid), whatever the umask is.

/// True if the directory is shared with its group.
bool is_group_directory(const std::string& path);
/// Makes a directory that is shared with its group, unless something is there. It appears as such:
/// no other process sees it before it is shared. Errors: kIo.
void make_group_directory(const std::string& path);
/// Lets only those open a file of this user's who may write to its folder: this user, and the group
/// if the folder is shared with it. So nobody else can lock it.
void share_as_folder(const File& file);
/// As share_as_folder(), and lets those read the file who may read `like`.
void share_for_reading(const File& file, const std::string& like);
/// Throws unless it is a directory, of whomever, that not everybody may write to.
/// Errors: as require_own_directory().
void require_no_public_directory(const std::string& path, std::string_view purpose);

}  // namespace shardwise
