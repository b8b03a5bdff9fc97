#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "shardwise/base/compression.h"
#include "shardwise/base/file.h"
#include "shardwise/base/mapped_file.h"

namespace shardwise {

/// The expanded bytes of a compressed tar with its members' data left out: a temporary sparse file
/// of the expanded length, in which every byte that is not data of a regular member stands where it
/// stands in the expanded stream, so that it can be scanned like an archive that is not compressed.
///
/// The data that is left out is exactly what scan_tar steps over, because both read headers with
/// tar::read_raw_entry; from the first header that cannot be read everything is kept, so the scan
/// finds the same damage.
///
/// One pass over the compressed bytes; memory is a few MiB. Disk: the headers, a page each at
/// least, and what `keep` asks for. One thread.
class HeaderImage {
 public:
  /// True if the data of this member is wanted too. `name` as in the raw headers.
  using Keep = std::function<bool(std::string_view name, std::uint64_t size_bytes)>;

  /// @param temporary  path beside which the temporary file is made; it goes with this object.
  /// @param tick       called now and then; what it throws ends the expansion.
  /// Errors: as ExpandingReader; kNoSpace, kIo.
  HeaderImage(std::string_view compressed, Compression compression, const std::string& shard,
              const std::string& temporary, const Keep& keep, const std::function<void()>& tick);

  std::string_view bytes() const noexcept { return mapped_.bytes(); }
  std::uint64_t expanded_bytes() const noexcept { return mapped_.bytes().size(); }

 private:
  AtomicFile file_;  // never committed
  MappedFile mapped_;
};

}  // namespace shardwise
