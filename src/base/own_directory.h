#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace shardwise {

// Directories that other users can neither write to nor replace. `purpose` states in error texts
// what the directory is used for, e.g. "a shard cache".

/// Throws an InvalidArgument whose text says that the directory is unsuitable for `purpose`.
[[noreturn]] void refuse_directory(const std::string& path, std::string_view purpose,
                                   std::string_view why, std::string_view remedy);

/// Makes the directory with mode 0700, unless it exists.
void make_directory(const std::string& path);
/// Makes the directory and its missing parents, each like make_directory().
void make_directories(const std::string& path);

/// Throws unless `path` is a directory of this user to which no other user may write. If it is a
/// symbolic link, the target is checked.
/// Errors: NotFound, kIo; InvalidArgument.
void require_own_directory(const std::string& path, std::string_view purpose);
/// Throws if the directory's mode permits other users than its owner to write to it.
/// Errors: NotFound, kIo; InvalidArgument.
void require_unshared_directory(const std::string& path, std::string_view purpose);

/// True if the file belongs to neither this user nor root. If it is a symbolic link, the target is
/// checked.
/// Errors: NotFound, kIo.
bool belongs_to_another(const std::string& path);
/// True if a user other than this one and root may write to the open file, as its owner or by its
/// mode. Access control lists are not read; only the mode bits that reflect them count.
bool may_be_written_by_others(const File& file);
/// True if a user other than root may replace this file, or one of the directories or links on its
/// path.
/// Errors: NotFound, kIo.
bool may_be_replaced_by_others(const std::string& path);

// Directories shared with a group: only its members may write to them. New entries also belong to
// the group (the setgid bit), whatever the umask is.

/// True if the directory is shared with its group.
bool is_group_directory(const std::string& path);
/// Makes a directory that is shared with its group, unless `path` exists. The directory appears
/// under its name only after it is shared.
/// Errors: kIo.
void make_group_directory(const std::string& path);
/// Sets the mode of a file of this user, so that only writers of the file's folder can open it:
/// this user, and the group of a shared folder. Other users then cannot lock the file.
void share_as_folder(const File& file);
/// Calls share_as_folder(), and also permits users who may read `like` to read the file.
void share_for_reading(const File& file, const std::string& like);
/// Throws if `path` is not a directory, or if all users may write to it. Its owner may be any user.
/// Errors: those of require_own_directory().
void require_no_public_directory(const std::string& path, std::string_view purpose);

}  // namespace shardwise
