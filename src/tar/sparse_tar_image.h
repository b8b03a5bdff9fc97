#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/mapped_file.h"

namespace shardwise {

/// A tar that cannot be mapped where it is, compressed or remote, with its members' data left out:
/// a nameless sparse file of the tar's length, in which every byte that is not data of a regular
/// member stands in its place, so that it can be scanned like the tar itself.
///
/// The data that is left out is exactly what scan_tar steps over, because both read headers with
/// tar::read_raw_entry. Where a scan finds that there are no more headers, or none that can be
/// read, what it looks at is kept: what stands in the place of a header, and one header behind it.
///
/// One pass; memory is a few MiB. Disk: the headers, a page each at least, and what `keep` asks
/// for. One thread.
class SparseTarImage {
 public:
  /// True if the data of this member is wanted too. `name` as in the raw headers.
  using Keep = std::function<bool(std::string_view name, std::uint64_t size_bytes)>;

  /// Takes the tar's bytes, from front to back.
  class Writer {
   public:
    Writer(File& file, const Keep& keep) : file_(file), keep_(keep) {}

    void take(std::string_view bytes);
    /// How many of the next bytes are left out: they need not be brought.
    std::uint64_t skippable() const noexcept;
    /// Stands for the next `num_bytes`. REQUIRES: num_bytes <= skippable().
    void skip(std::uint64_t num_bytes) noexcept;
    /// True if what comes next is no header and no end: a scan ends there, with damage.
    bool at_damage() const noexcept { return in_rubbish_ && !rubbish_follows_end_; }
    /// @return  the tar's length.
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
    bool behind_end_ = false;  // nothing but zeros since the last entry
    bool in_rubbish_ = false;
    bool rubbish_follows_end_ = false;
    bool rubbish_has_header_ = false;
  };

  /// @param temporary  path beside which the nameless file is made; it goes with this object.
  /// @param feed       gives the writer all bytes; what it throws is thrown.
  /// Errors: kNoSpace, kIo.
  SparseTarImage(const std::string& temporary, const Keep& keep,
                 const std::function<void(Writer&)>& feed);

  std::string_view bytes() const noexcept { return mapped_.bytes(); }

 private:
  File file_;
  MappedFile mapped_;
};

}  // namespace shardwise
