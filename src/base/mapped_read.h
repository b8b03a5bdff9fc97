#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// Reads of mapped files that another process may truncate. If the file no longer has a page, or the
// disk cannot read it, a normal read raises SIGBUS, which ends the process. copy_mapped() and
// MappedReadGuard handle this.
//
// Effects on the process: each use checks that our handler for SIGBUS is installed, and otherwise
// installs it again, also in a forked child. Other code, e.g. Python's faulthandler or PyTorch's
// worker processes, may therefore install its own handler. Faults outside our reads are forwarded
// to the previous handler, with its flags and mask, or have their default effect. While the
// previous handler runs, it is the installed handler, so it may forward in turn.
//
// Limits: reads are not protected in a thread that blocks SIGBUS, or if other code installs a
// handler during the read.
//
// A truncation within a page is not detected: the page with the new end remains readable, with
// zeros after the end. To detect it, compare the file's size afterwards.

/// When to check that our handler is installed.
enum class Look : std::uint8_t {
  kAlways,  ///< one system call per use
  /// At most once per tick of the kernel's clock (1 to 10 ms) in each thread. A handler that was
  /// installed since the last check is not detected.
  kOnceATick,
};

/// Copies `size` bytes out of a file mapping.
/// @return  false if the file no longer has these pages; the content of `to` is then unspecified.
/// Threads: any, also on the same mapping.
/// Cost: a memcpy, and the check that `look` selects.
[[nodiscard]] SHARDWISE_EXPORT bool copy_mapped(void* to, const void* from, std::size_t size,
                                                Look look = Look::kAlways) noexcept;

/// One of several copies, see copy_mapped().
struct MappedCopy {
  void* to;
  const void* from;
  std::size_t size;
};

/// Makes several copies out of file mappings.
/// @return  false if a file no longer has these pages; the content of all targets is then
///   unspecified.
/// Threads: any, also on the same mapping.
/// Cost: the memcpys, and one check of `look`.
[[nodiscard]] SHARDWISE_EXPORT bool copy_mapped(std::span<const MappedCopy> copies,
                                                Look look = Look::kAlways) noexcept;

/// Protects this thread's reads of [address, address + size) while it lives. If the file no longer
/// has a page, zeros are mapped from that page to the end of the range, and damaged() becomes true.
///
/// It is for code that reads a whole file and cannot be interrupted; otherwise use copy_mapped().
/// The mapping must have no other reader, now or later, because the zeros remain until it is
/// unmapped and look like the file's bytes. After reading, check damaged(), even if reading ended
/// by an exception, because zeros may have caused the exception. If damaged() is true, discard the
/// results and unmap the file.
///
/// Lifetime: the range is part of a mapping that outlives the guard. `address` need not be
///   page-aligned.
/// Threads: one thread creates the guard, reads, checks and destroys it. Guards may be nested.
/// Cost: none per read.
class SHARDWISE_EXPORT MappedReadGuard {
 public:
  [[nodiscard]] MappedReadGuard(const void* address, std::size_t size) noexcept;
  ~MappedReadGuard();
  MappedReadGuard(const MappedReadGuard&) = delete;
  MappedReadGuard& operator=(const MappedReadGuard&) = delete;

  /// True if the file no longer had a page, so that zeros were read.
  bool damaged() const noexcept;

 private:
  friend struct BusErrorHandler;
  /// Maps zeros from the page of `fault` to the end of the range. Returns false if `fault` is
  /// outside the range, or mapping fails.
  bool mend(const char* fault) noexcept;

  const char* const begin_;
  const char* const end_;
  MappedReadGuard* const outer_;  // the enclosing guard of the same thread
  std::atomic<bool> damaged_{false};
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::copy_mapped;
using detail::Look;
using detail::MappedCopy;
using detail::MappedReadGuard;
}  // namespace shardwise
