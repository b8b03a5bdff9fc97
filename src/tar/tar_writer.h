#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "base/file.h"

struct archive;

namespace shardwise {

/// Writes one shard that appears under its name whole or not at all. The same members give the same
/// bytes on every machine: no times, owners or machine's modes; ustar headers, with pax ones only
/// for what ustar cannot say. One thread.
///
/// Errors: kIo, kNoSpace. A writer that is destroyed without commit() leaves nothing.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  void add(const std::string& name, std::string_view content);
  /// Copies the file at `source`, whatever its size, through a small buffer.
  /// Errors: also NotFound; kIo if it shrinks meanwhile.
  void add_file(const std::string& name, const std::string& source);
  void commit();

  /// Bytes that a member of this size takes in a tar, long names aside.
  [[nodiscard]] static std::uint64_t member_bytes(std::uint64_t content_bytes);
  /// Bytes of a file whose members take `member_bytes`, with the end marker and tar's padding.
  [[nodiscard]] static std::uint64_t archive_bytes(std::uint64_t member_bytes);

  /// Where libarchive's bytes go, and what became of them.
  struct Target {
    File* file;  ///< null: nothing is written any more
    std::exception_ptr failure;
  };

 private:
  void begin(const std::string& name, std::uint64_t size_bytes);
  void write(std::string_view bytes);
  void require(int result, const char* action);

  AtomicFile file_;
  Target target_{&file_.file(), nullptr};
  archive* archive_;
};

}  // namespace shardwise
