#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// Reading mapped files that somebody may truncate. Touching a page of a mapping that its file no
// longer has, or that the disk cannot give, raises SIGBUS, which ends the process; what is read by
// the two below does not.
//
// Effects on the process: each use looks whether the handler for SIGBUS is theirs, and if it is not
// installs it again, so that handlers that come later (those of Python's faulthandler, and of
// PyTorch's worker processes) do no harm; in a forked child, too. A fault that is not theirs goes
// on to the handler that was there, with its flags and mask, or has its default effect; that one
// finds itself installed, and may pass on in turn. They protect nothing in a thread that blocks
// SIGBUS, nor while somebody installs a handler in the middle of a use.
//
// They cannot see a truncation within a page: the page with the file's new end stays readable, with
// zeros behind the end. Callers that must know that no byte is missing compare the file's size
// afterwards.

/// When to look whether the handler is still ours.
enum class Look : std::uint8_t {
  kAlways,  ///< a system call, some 0.1 us
  /// At most once in a tick of the kernel's clock (1 to 10 ms) in each thread; some ns. A handler
  /// that was installed since then is not seen yet.
  kOnceATick,
};

/// Copies `size` bytes out of a file mapping.
/// @return  false if pages of it are gone; what `to` holds then is unspecified.
/// Threads: any, also on the same mapping. Cost: a memcpy, some 10 ns, and the look.
[[nodiscard]] SHARDWISE_EXPORT bool copy_mapped(void* to, const void* from, std::size_t size,
                                                Look look = Look::kAlways) noexcept;

/// One of several copies.
struct MappedCopy {
  void* to;
  const void* from;
  std::size_t size;
};

/// Makes several copies out of file mappings.
/// @return  false if pages of one are gone; what the places hold then is unspecified.
/// Threads: as above. Cost: the memcpys, some 10 ns for all together, and the look.
[[nodiscard]] SHARDWISE_EXPORT bool copy_mapped(std::span<const MappedCopy> copies,
                                                Look look = Look::kAlways) noexcept;

/// While it lives, this thread's reads of [address, address + size) do not fault: from the first
/// page that is gone to the end of the range, zeros take the mapping's place, and damaged() is
/// true.
///
/// Only for a mapping that nobody else reads, and that nobody reads afterwards: the zeros stay
/// until it is unmapped, and to another reader they would be the file's bytes. For code that runs
/// over a whole file and cannot be left in the middle (copy_mapped is for all else). The owner
/// asks damaged() when the reading is over, also when it ended with an exception, for that may have
/// come of the zeros; then it drops what was read and unmaps.
///
/// The range lies in a mapping, which outlives the guard; `address` need not be a page's.
/// Threads: one; made, asked and destroyed by the one that reads. Guards may be nested.
/// Cost: none a read.
class SHARDWISE_EXPORT MappedReadGuard {
 public:
  [[nodiscard]] MappedReadGuard(const void* address, std::size_t size) noexcept;
  ~MappedReadGuard();
  MappedReadGuard(const MappedReadGuard&) = delete;
  MappedReadGuard& operator=(const MappedReadGuard&) = delete;

  /// True if a page was gone, and zeros were read.
  bool damaged() const noexcept;

 private:
  friend struct BusErrorHandler;
  /// Puts zeros in the place of what begins with the page of `fault`. False if that is not in the
  /// range, or cannot be done.
  bool mend(const char* fault) noexcept;

  const char* const begin_;
  const char* const end_;
  MappedReadGuard* const outer_;  // of the same thread
  std::atomic<bool> damaged_{false};
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::copy_mapped;
using detail::Look;
using detail::MappedCopy;
using detail::MappedReadGuard;
}  // namespace shardwise
