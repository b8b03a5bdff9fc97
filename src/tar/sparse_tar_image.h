#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/mapped_file.h"

namespace shardwise {

/// The headers of a tar that cannot be mapped in place, because it is compressed or remote. It is a
/// nameless sparse file of the tar's length: the data of regular members is left out, and every
/// other byte is at its offset. A scan of it finds the same members.
///
/// The omitted data is exactly what scan_tar() skips, because both read headers with
/// tar::read_raw_entry(). If a scan finds an unreadable header, the bytes that it reads there are
/// kept: those in place of the header, and one header after them.
///
/// Memory: a few MiB, in one pass.
/// Disk: at least a page per header, and the data that `keep` selects.
/// Threads: one.
class SparseTarImage {
 public:
  /// Returns true to keep this member's data. `name` is as in the raw headers.
  using Keep = std::function<bool(std::string_view name, std::uint64_t size_bytes)>;

  /// Consumes the tar's bytes, from front to back.
  class Writer {
   public:
    Writer(File& file, const Keep& keep) : file_(file), keep_(keep) {}

    void take(std::string_view bytes);
    /// Returns how many of the next bytes are omitted, so that they need not be read.
    std::uint64_t skippable() const noexcept;
    /// Advances over `num_bytes` omitted bytes. REQUIRES: num_bytes <= skippable().
    void skip(std::uint64_t num_bytes) noexcept;
    /// True if the next bytes are neither a header nor an end, so that a scan ends there with
    /// damage.
    bool at_damage() const noexcept { return in_rubbish_ && !rubbish_follows_end_; }
    /// Returns the tar's length.
    std::uint64_t finish();

   private:
    bool take_header(std::size_t& at);
    void write(std::size_t at, std::size_t size);

    File& file_;
    const Keep& keep_;
    std::string pending_;
    std::uint64_t first_ = 0;  // offset of pending_
    std::uint64_t body_left_ = 0;
    bool keep_body_ = false;
    bool keep_rest_ = false;
    bool behind_end_ = false;  // only zeros since the last entry
    bool in_rubbish_ = false;
    bool rubbish_follows_end_ = false;
    bool rubbish_has_header_ = false;
  };

  /// @param temporary  the nameless file is made in this path's directory, and vanishes with this
  ///   object.
  /// @param feed       passes all bytes to the writer; its exceptions pass through.
  /// Errors: kNoSpace, kIo.
  SparseTarImage(const std::string& temporary, const Keep& keep,
                 const std::function<void(Writer&)>& feed);

  std::string_view bytes() const noexcept { return mapped_.bytes(); }

 private:
  File file_;
  MappedFile mapped_;
};

}  // namespace shardwise
