#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace shardwise {

// Directories that other users may neither write to nor replace. `purpose` names the directory's
// use in error texts, e.g. "a shard cache".

/// Throws InvalidArgument: the directory is unsuitable for `purpose`.
[[noreturn]] void refuse_directory(const std::string& path, std::string_view purpose,
                                   std::string_view why, std::string_view remedy);

/// Makes the directory with mode 0700, unless it exists.
void make_directory(const std::string& path);
/// Makes the directory and its missing parents, each like make_directory().
void make_directories(const std::string& path);

/// Throws unless `path` is a directory of this user to which no other user may write. A link is
/// followed, and its target checked.
/// Errors: NotFound, kIo; InvalidArgument.
void require_own_directory(const std::string& path, std::string_view purpose);
/// Throws if the directory's mode lets others than its owner write to it.
/// Errors: NotFound, kIo; InvalidArgument.
void require_unshared_directory(const std::string& path, std::string_view purpose);

/// True if the file, or a link's target, belongs to neither this user nor root.
/// Errors: NotFound, kIo.
bool belongs_to_another(const std::string& path);
/// True if a user other than root may write to the open file, as its owner or by its mode. Access
/// control lists count only as far as the mode shows them.
bool may_be_written_by_others(const File& file);
/// True if a user other than root may replace this file, or one of the directories or links on its
/// path.
/// Errors: NotFound, kIo.
bool may_be_replaced_by_others(const std::string& path);

// Directories shared with a group: only its members may write to them. New entries also belong to
// the group (the setgid bit), whatever the umask is.

/// True if the directory is shared with its group.
bool is_group_directory(const std::string& path);
/// Makes a directory that is shared with its group, unless `path` exists. Other processes see it
/// only once it is shared.
/// Errors: kIo.
void make_group_directory(const std::string& path);
/// Lets only writers of the file's folder open a file of this user: the user, and the folder's
/// group if the folder is shared with it. This keeps other users from locking it.
void share_as_folder(const File& file);
/// Calls share_as_folder(), and also lets the readers of `like` read the file.
void share_for_reading(const File& file, const std::string& like);
/// Throws unless `path` is a directory, of any user, that is not writable for everybody.
/// Errors: as require_own_directory().
void require_no_public_directory(const std::string& path, std::string_view purpose);

}  // namespace shardwise
