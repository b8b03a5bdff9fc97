#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

struct archive;

namespace shardwise {

/// Writes one shard, which appears under its name complete or not at all. Equal members give equal
/// bytes on every machine, because times, owners and modes of the machine are not stored. Headers
/// are ustar. Pax headers are used only for what ustar cannot express.
///
/// Threads: one.
/// Errors: kIo, kNoSpace. A writer that is destroyed without commit() leaves no file.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  void add(const std::string& name, std::string_view content);
  /// Copies the file at `source`, of any size, through a small buffer.
  /// Errors: also NotFound. kIo if the file shrinks while it is copied.
  void add_file(const std::string& name, const std::string& source);
  void commit();

  /// Returns the bytes that a member of this size occupies in a tar, without long names.
  [[nodiscard]] static std::uint64_t member_bytes(std::uint64_t content_bytes);
  /// Returns the size of a file whose members occupy `member_bytes`, with the end marker and tar's
  /// padding.
  [[nodiscard]] static std::uint64_t archive_bytes(std::uint64_t member_bytes);

  struct Target {
    File* file;  ///< null means that all output is discarded
    std::exception_ptr failure;
  };

 private:
  void begin(const std::string& name, std::uint64_t size_bytes);
  void write(std::string_view bytes);
  void require(int result, const char* action);

  struct Free {
    void operator()(archive* writer) const noexcept;
  };

  AtomicFile file_;
  Target target_{&file_.file(), nullptr};
  const std::unique_ptr<archive, Free> archive_;
};

}  // namespace shardwise
