#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/mapped_file.h"

namespace shardwise {

/// An image of a tar that cannot be mapped in place, because it is compressed or remote. The image
/// is a nameless sparse file of the tar's length. It has every byte of the tar at its offset,
/// except the data of regular members. A scan of the image finds the same members as a scan of the
/// tar.
///
/// The omitted data is exactly the data that scan_tar() skips, because both read headers with
/// tar::read_raw_entry(). At an unreadable header, the image has all bytes that a scan reads there:
/// the bytes in place of the header, and the next header after them, if any.
///
/// Memory: a few MiB. The tar is read in one pass.
/// Disk: at least a page per header, and the data that `keep` selects.
/// Threads: one.
class SparseTarImage {
 public:
  /// Returns true if the image must contain this member's data. `name` is the member's name in the
  /// raw headers.
  using Keep = std::function<bool(std::string_view name, std::uint64_t size_bytes)>;

  /// Consumes the tar's bytes, from front to back.
  class Writer {
   public:
    Writer(File& file, const Keep& keep) : file_(file), keep_(keep) {}

    void take(std::string_view bytes);
    /// Returns how many of the next bytes of the tar are omitted. The caller need not read them.
    std::uint64_t skippable() const noexcept;
    /// Advances over `num_bytes` omitted bytes. REQUIRES: num_bytes <= skippable().
    void skip(std::uint64_t num_bytes) noexcept;
    /// True if the next bytes are neither a header nor an end marker, so that a scan reports damage
    /// there.
    bool at_damage() const noexcept { return in_rubbish_ && !rubbish_follows_end_; }
    /// Returns the tar's length.
    std::uint64_t finish();

   private:
    bool take_header(std::size_t& at);
    void write(std::size_t at, std::size_t size);

    File& file_;
    const Keep& keep_;
    std::string pending_;
    std::uint64_t first_ = 0;  // offset of pending_ in the tar
    std::uint64_t body_left_ = 0;
    bool keep_body_ = false;
    bool keep_rest_ = false;
    bool behind_end_ = false;  // true if only zeros follow the last entry so far
    bool in_rubbish_ = false;
    bool rubbish_follows_end_ = false;
    bool rubbish_has_header_ = false;
  };

  /// @param temporary  the nameless file is created in the directory of this path, and exists until
  ///   this object is destroyed.
  /// @param feed       passes all bytes to the writer; the constructor throws its exceptions.
  /// Errors: kNoSpace, kIo.
  SparseTarImage(const std::string& temporary, const Keep& keep,
                 const std::function<void(Writer&)>& feed);

  std::string_view bytes() const noexcept { return mapped_.bytes(); }

 private:
  File file_;
  MappedFile mapped_;
};

}  // namespace shardwise
