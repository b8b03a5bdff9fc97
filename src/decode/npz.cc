#include "decode/npz.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/counted.h"
#include "base/text.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

struct CloseArchive {
  void operator()(archive* reader) const noexcept { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, CloseArchive>;

[[noreturn]] void fail(archive* reader, std::string_view what) {
  const char* const why = archive_error_string(reader);
  throw DecodeFailure("npz: " + std::string(what) + (why == nullptr ? "" : ": ") +
                      (why == nullptr ? "" : why));
}

Reader open(std::string_view bytes) {
  if (bytes.starts_with("PK\5\6")) throw DecodeFailure("npz: the file has no arrays");
  if (!bytes.starts_with("PK\3\4")) throw DecodeFailure("npz: the file is not a zip archive");
  Reader reader(archive_read_new());
  if (!reader) throw std::bad_alloc();
  if (archive_read_support_format_zip_seekable(reader.get()) != ARCHIVE_OK ||
      archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
    fail(reader.get(), "cannot open the zip archive");
  }
  return reader;
}

std::string_view name_of(archive_entry* entry) {
  const char* const name = archive_entry_pathname(entry);
  return name == nullptr ? std::string_view() : name;
}

/// Reads the data of the archive member that the reader is at.
std::string read_member(archive* reader, std::string_view array, std::uint64_t max_bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::string data;
  for (;;) {
    const std::size_t filled = data.size();
    if (filled > max_bytes) {
      throw DecodeFailure("npz: array " + in_quotes(array) + " exceeds the limit of " +
                          counted(max_bytes, "byte"));
    }
    // Allocate as data arrives, because the sizes that the archive states are unverified.
    data.resize(filled + std::max(kPiece, filled / 2));
    const la_ssize_t got = archive_read_data(reader, data.data() + filled, data.size() - filled);
    if (got < 0) fail(reader, "array " + in_quotes(array) + " cannot be read");
    data.resize(filled + static_cast<std::size_t>(got));
    if (got == 0) return data;
  }
}

}  // namespace

std::string read_npz(std::string_view bytes, std::string_view array, std::uint64_t max_bytes) {
  const Reader reader = open(bytes);
  const std::string wanted = std::string(array) + ".npy";
  std::optional<std::string> found;
  std::string others;
  constexpr std::size_t kMaxNamed = 1000;  // characters
  for (archive_entry* entry = nullptr;;) {
    const int result = archive_read_next_header(reader.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    // A warning concerns only names and times.
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
      fail(reader.get(), "the zip archive is damaged");
    std::string_view name = name_of(entry);
    if (name == wanted && archive_entry_filetype(entry) == AE_IFREG) {
      if (found) throw DecodeFailure("npz: the file has two arrays " + in_quotes(array));
      found = read_member(reader.get(), array, max_bytes);
    }
    if (name.ends_with(".npy")) name.remove_suffix(4);
    if (others.size() < kMaxNamed) others += (others.empty() ? "" : ", ") + escaped(name);
  }
  if (found) return *std::move(found);
  throw DecodeFailure("npz: the file has no array " + in_quotes(array) + "; its arrays are " +
                      others);
}

}  // namespace shardwise::detail
