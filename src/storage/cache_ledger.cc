#include "storage/cache_ledger.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <random>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/own_directory.h"

namespace shardwise::detail {
namespace {

constexpr char kLedgerMagic[8] = {'S', 'H', 'A', 'R', 'D', 'W', 'U', '\n'};
constexpr std::uint64_t kLedgerVersion = 1;
constexpr std::uint64_t kDoubtAt = 64;

/// The start of the ledger file. The doubt word follows at offset kDoubtAt.
struct Counted {
  char magic[8];
  std::uint64_t version;
  std::uint64_t used_bytes;
  std::uint64_t changes;
  std::uint64_t doubt;     // doubt word when this count was written
  std::uint64_t checksum;  // hash64 of the preceding members
};
static_assert(sizeof(Counted) == 48);

std::uint64_t checksum_of(const Counted& counted) noexcept {
  return hash64({reinterpret_cast<const char*>(&counted), offsetof(Counted, checksum)});
}

template <class Value>
bool read_at(const File& file, std::uint64_t offset, Value& value) {
  return file.read_at(offset, reinterpret_cast<char*>(&value), sizeof value) == sizeof value;
}

std::uint64_t word_of(const File& file) {
  std::uint64_t word = 0;
  return read_at(file, kDoubtAt, word) ? word : 0;
}

/// Replaces the doubt word with a new random word, and returns it.
std::uint64_t cast_doubt(File& file) {
  std::random_device random;
  const std::uint64_t word = (std::uint64_t{random()} << 32 | random()) | 1;
  file.write_at(kDoubtAt, {reinterpret_cast<const char*>(&word), sizeof word});
  return word;
}

CacheLedger::Count read_from(const File& file) {
  Counted counted;
  if (!read_at(file, 0, counted) ||
      std::memcmp(counted.magic, kLedgerMagic, sizeof kLedgerMagic) != 0 ||
      counted.version != kLedgerVersion || counted.checksum != checksum_of(counted)) {
    return {.doubt = word_of(file)};
  }
  CacheLedger::Count count{.changes = counted.changes, .doubt = word_of(file)};
  if (counted.doubt == count.doubt) count.used_bytes = counted.used_bytes;
  return count;
}

void write_to(File& file, std::uint64_t used_bytes, std::uint64_t changes, std::uint64_t doubt) {
  Counted counted{};
  counted.version = kLedgerVersion;
  counted.used_bytes = used_bytes;
  counted.changes = changes;
  counted.doubt = doubt;
  std::memcpy(counted.magic, kLedgerMagic, sizeof kLedgerMagic);
  counted.checksum = checksum_of(counted);
  file.write_at(0, {reinterpret_cast<const char*>(&counted), sizeof counted});
}

}  // namespace

CacheLedger::Count CacheLedger::read() const noexcept {
  try {
    return read_from(File::open_read(directory_.ledger_path()));
  } catch (const std::exception&) {  // missing or unreadable
    return {};
  }
}

CacheLedger::Count CacheLedger::read_before_listing() const noexcept {
  const Count before = read();
  if (before.doubt != 0) return before;
  doubt();
  return read();
}

void CacheLedger::forget() const noexcept { ::unlink(directory_.ledger_path().c_str()); }

void CacheLedger::doubt() const noexcept {
  try {
    File file = File::open_or_create(directory_.ledger_path(), 0600);
    share_as_folder(file);
    cast_doubt(file);
  } catch (const std::exception&) {  // no descriptor, or a full disk: remove the file
    forget();
  }
}

void CacheLedger::change(const std::function<std::int64_t()>& change,
                         std::optional<std::uint64_t> used_bytes) const {
  File file;
  std::uint64_t word = 0;
  Count before;
  try {
    file = File::open_or_create(directory_.ledger_path(), 0600);
    share_as_folder(file);
    before = read_from(file);
    word = cast_doubt(file);
  } catch (const std::exception&) {  // no descriptor, or a full disk: the next user lists the files
    file.close();
    forget();
  }
  if (!used_bytes) used_bytes = before.used_bytes;
  SHARDWISE_FAULT_POINT("shard_cache.in_doubt");
  const std::int64_t grown = change();
  SHARDWISE_FAULT_POINT("shard_cache.not_counted");
  if (file.fd() < 0) return;
  try {
    const bool is_known = used_bytes.has_value();
    const std::uint64_t now = is_known ? *used_bytes + static_cast<std::uint64_t>(grown) : 0;
    write_to(file, now, before.changes + 1, is_known ? word : 0);
  } catch (const std::exception&) {  // the count stays in doubt
  }
}

}  // namespace shardwise::detail
