#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

// The folder of an index that was fetched from a URL. It has the index's two files and a file with
// its origin. ingest/fetched_index.h fetches into this folder. An index that is opened in such a
// folder finds its shards relative to its URL, not relative to the folder.

/// The end of the name of each such folder.
inline constexpr std::string_view kFetchedSuffix = ".idx.fetched";

/// The origin of an index that was fetched.
struct Origin {
  std::string url;         ///< without user, password and signature
  std::string index;       ///< name of the catalogue, in the folder
  std::string validator;   ///< version that the server stated for the catalogue; may be empty
  std::uint64_t size = 0;  ///< of the catalogue, in bytes
};

/// True if the name of `folder` is that of a folder of fetched indexes.
bool is_fetched_folder(std::string_view folder) noexcept;
/// Returns the origin that is stored in a folder. Returns nullopt if the folder has none, or it is
/// damaged.
std::optional<Origin> read_origin(const std::string& folder);
/// Stores the origin in a folder, in one step.
void write_origin(const std::string& folder, const Origin& origin);

/// Returns the URL of a file that is stored beside the index at `url`.
/// @param path  relative path of the file. It is percent-encoded, unless the index is in an object
///   store.
std::string url_beside(std::string_view url, std::string_view path);

/// Returns behind_links(path), to write an index there. Errors: Unsupported if `path` is a URL.
std::string path_to_write(const std::string& path);

}  // namespace shardwise
