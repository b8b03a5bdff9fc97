#include "zip_bytes.h"

#include <archive.h>
#include <archive_entry.h>

#include <stdexcept>

namespace shardwise::fuzz {

std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflated) {
  archive* const writer = archive_write_new();
  std::string bytes(1 << 16, '\0');
  for (const auto& [name, data] : members) bytes.resize(bytes.size() + name.size() + data.size());
  std::size_t used = 0;
  archive_write_set_format_zip(writer);
  deflated ? archive_write_zip_set_compression_deflate(writer)
           : archive_write_zip_set_compression_store(writer);
  archive_write_set_bytes_in_last_block(writer, 1);
  archive_write_open_memory(writer, bytes.data(), bytes.size(), &used);
  for (const auto& [name, data] : members) {
    archive_entry* const entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0600);
    archive_entry_set_size(entry, static_cast<la_int64_t>(data.size()));
    archive_write_header(writer, entry);
    archive_write_data(writer, data.data(), data.size());
    archive_entry_free(entry);
  }
  const bool ok = archive_write_close(writer) == ARCHIVE_OK;
  archive_write_free(writer);
  if (!ok) throw std::runtime_error("the zip archive could not be written");
  bytes.resize(used);
  return bytes;
}

}  // namespace shardwise::fuzz
