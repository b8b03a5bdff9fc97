#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// Reads of mapped files that another process may truncate. Normally a read raises SIGBUS, which
// ends the process, if the file lost the page or the disk cannot read it. copy_mapped() and
// MappedReadGuard survive that.
//
// Effects on the process: each use checks that our handler for SIGBUS is installed, and installs it
// again if not, also in a forked child. Handlers that others install later, e.g. Python's
// faulthandler or PyTorch's worker processes, are therefore harmless. Foreign faults are forwarded
// to the previous handler, with its flags and mask, or get their default effect. While it runs, the
// previous handler is the installed one, so it may forward in turn.
//
// Limits: there is no protection in a thread that blocks SIGBUS, nor if another handler is
// installed during a use.
//
// A truncation within a page is not detected: the page with the new end stays readable, with zeros
// after the end. A caller that must know compares the file's size afterwards.

/// When to check that our handler is installed.
enum class Look : std::uint8_t {
  kAlways,  ///< one system call per use
  /// At most once per tick of the kernel's clock (1 to 10 ms) in each thread. A handler that was
  /// installed since the last check goes unnoticed.
  kOnceATick,
};

/// Copies `size` bytes out of a file mapping.
/// @return  false if pages of it are gone; then the content of `to` is unspecified.
/// Threads: any, also on the same mapping.
/// Cost: a memcpy, and the check of `look`.
[[nodiscard]] SHARDWISE_EXPORT bool copy_mapped(void* to, const void* from, std::size_t size,
                                                Look look = Look::kAlways) noexcept;

/// One of several copies, see copy_mapped().
struct MappedCopy {
  void* to;
  const void* from;
  std::size_t size;
};

/// Makes several copies out of file mappings.
/// @return  false if a page is gone; then the content of all targets is unspecified.
/// Threads: any, also on the same mapping.
/// Cost: the memcpys, and one check of `look`.
[[nodiscard]] SHARDWISE_EXPORT bool copy_mapped(std::span<const MappedCopy> copies,
                                                Look look = Look::kAlways) noexcept;

/// Protects this thread's reads of [address, address + size) while it lives. If a page is gone,
/// zeros replace the mapping from that page to the end of the range, and damaged() becomes true.
///
/// It is for code that reads a whole file and cannot be interrupted; otherwise use copy_mapped().
/// The mapping must have no other reader, now or later: the zeros stay until it is unmapped, and
/// look like the file's bytes.
/// After reading, check damaged(), even if an exception ended it, since zeros may have caused it.
/// If it is true, discard the results and unmap.
///
/// Lifetime: the range lies in a mapping that outlives the guard; `address` need not be
///   page-aligned.
/// Threads: one thread creates the guard, reads, checks and destroys it. Guards may be nested.
/// Cost: free per read.
class SHARDWISE_EXPORT MappedReadGuard {
 public:
  [[nodiscard]] MappedReadGuard(const void* address, std::size_t size) noexcept;
  ~MappedReadGuard();
  MappedReadGuard(const MappedReadGuard&) = delete;
  MappedReadGuard& operator=(const MappedReadGuard&) = delete;

  /// True if a page was gone and zeros were read.
  bool damaged() const noexcept;

 private:
  friend struct BusErrorHandler;
  /// Maps zeros from the page of `fault` to the end of the range. Returns false if `fault` is
  /// outside the range, or mapping fails.
  bool mend(const char* fault) noexcept;

  const char* const begin_;
  const char* const end_;
  MappedReadGuard* const outer_;  // the next guard of the same thread
  std::atomic<bool> damaged_{false};
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::copy_mapped;
using detail::Look;
using detail::MappedCopy;
using detail::MappedReadGuard;
}  // namespace shardwise
