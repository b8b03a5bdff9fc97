#include "shardwise/tar/tar_scanner.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "shardwise/base/bytes.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/text.h"
#include "tar/tar_header.h"

namespace shardwise {
namespace {

using tar::kBlockBytes;

constexpr std::string_view kDamagedRemedy =
    "restore or repack the shard, or index with the policy `skip`";

constexpr std::string_view kSparseRemedy =
    "repack the shard without `tar --sparse`, or index with the policy `skip`";

struct ArchiveDeleter {
  void operator()(archive* a) const noexcept { archive_read_free(a); }
};
using ArchivePtr = std::unique_ptr<archive, ArchiveDeleter>;

std::string error_of(archive* a) {
  const char* text = archive_error_string(a);
  return text == nullptr ? "libarchive does not say why" : text;
}

/// Thrown inside the scan and turned into a CorruptShard, an Unsupported, or a skipped entry.
struct Damage {
  TarProblem problem;
};

[[noreturn]] void damaged(std::uint64_t offset, std::string_view member, std::string what,
                          ErrorCode code = ErrorCode::kCorruptShard) {
  throw Damage{{code, offset, std::string(member), std::move(what)}};
}

/// An archive from some header on, as libarchive reads it: an empty member comes first, since
/// libarchive looks harder at the first header than at later ones, and what it finds must not
/// depend on where it starts.
class Continuation {
 public:
  explicit Continuation(std::string_view rest) : rest_(rest) {
    constexpr std::string_view kOctal = "0000000";
    first_[0] = '-';
    for (const std::size_t at : {100U, 108U, 116U, 124U, 136U})
      kOctal.copy(&first_[at], kOctal.size());
    first_[156] = '0';
    std::memcpy(&first_[257], "ustar\00000", 8);
    std::memset(&first_[148], ' ', 8);
    unsigned sum = 0;
    for (const char c : first_) sum += static_cast<unsigned char>(c);
    std::snprintf(&first_[148], 8, "%06o", sum);
  }

  /// Opens `a` on it, and reads the empty member.
  bool open(archive* a) {
    archive_entry* entry = nullptr;
    return archive_read_open(a, this, nullptr, &Continuation::read, nullptr) == ARCHIVE_OK &&
           archive_read_next_header(a, &entry) == ARCHIVE_OK;
  }
  /// How far libarchive has come in what follows the empty member, bytes.
  static std::uint64_t position(archive* a) {
    return static_cast<std::uint64_t>(archive_filter_bytes(a, 0)) - kBlockBytes;
  }

 private:
  static la_ssize_t read(archive*, void* self, const void** buffer) {
    auto& from = *static_cast<Continuation*>(self);
    const int piece = from.next_piece_++;
    const std::string_view bytes = piece == 0   ? std::string_view(from.first_.data(), kBlockBytes)
                                   : piece == 1 ? from.rest_
                                                : std::string_view();
    *buffer = bytes.data();
    return static_cast<la_ssize_t>(bytes.size());
  }

  const std::string_view rest_;
  std::array<char, kBlockBytes> first_{};
  int next_piece_ = 0;
};

class Scanner {
 public:
  Scanner(std::string_view archive, const std::string& shard, const TarScanOptions& options,
          const std::function<void(const TarMember&)>& visit)
      : archive_(archive), shard_(shard), options_(options), visit_(visit) {}

  TarScanReport run() {
    check_beginning();
    try {
      while (at_entry()) {
        if (options_.libarchive_only || !read_plain_entry()) read_with_libarchive();
      }
    } catch (const Damage& damage) {
      if (!options_.lenient) raise(damage.problem);
      report_.skipped.push_back(damage.problem);  // nothing after it can be trusted
    }
    report_.header_hash = headers_.digest();
    return std::move(report_);
  }

 private:
  /// Tells an archive from what is none at all: these are errors also when damage is skipped.
  void check_beginning() const {
    if (archive_.empty()) {
      throw CorruptShard("the file is empty, not a tar archive", in_quotes(shard_),
                         "a tar archive has at least its end marker; copy or pack the shard again");
    }
    if (archive_.size() >= kBlockBytes &&
        (tar::has_valid_checksum(archive_.data()) || tar::is_zero_block(archive_.data()))) {
      return;
    }
    if (const Compression compression = detect_compression(archive_);
        compression != Compression::kNone) {
      throw Unsupported(
          "the archive is compressed (" + std::string(compression_name(compression)) + ")",
          in_quotes(shard_), "expand it first");
    }
    throw CorruptShard(
        "the file is not a tar archive", in_quotes(shard_) + offset_text(0),
        "its first 512 bytes are no tar header; check that the right file was given");
  }

  std::string offset_text(std::uint64_t offset) const {
    return (options_.expanded ? ", expanded offset " : ", offset ") + std::to_string(offset);
  }

  [[noreturn]] void raise(const TarProblem& problem) const {
    std::string where = in_quotes(shard_) + offset_text(problem.offset);
    if (!problem.member.empty()) where += ", member " + in_quotes(problem.member);
    if (problem.code == ErrorCode::kUnsupported)
      throw Unsupported(problem.what, where, kSparseRemedy);
    throw CorruptShard(problem.what, where, kDamagedRemedy);
  }

  /// Moves over end markers to the next entry. False at the end of the file.
  bool at_entry() {
    const std::uint64_t end = archive_.size();
    std::uint64_t at = position_;
    while (end - at >= kBlockBytes && tar::is_zero_block(archive_.data() + at)) at += kBlockBytes;
    const bool marked = at != position_;
    report_.end_marker = marked || report_.end_marker;
    const std::string_view rest = archive_.substr(at);
    if (rest.size() < kBlockBytes) {
      if (std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; })) return false;
      if (!marked) damaged(at, {}, "the shard is truncated: it ends within a header");
    }
    if (!marked) return true;
    if (rest.size() >= kBlockBytes && tar::has_valid_checksum(rest.data())) {
      ++report_.num_archives;  // archives were concatenated: go on
      report_.end_marker = false;
      position_ = at;
      return true;
    }
    // Some writers leave rubbish in their last record; but rubbish that holds a header means that
    // members would be lost.
    for (std::uint64_t i = at + kBlockBytes; range_fits(i, kBlockBytes, end); i += kBlockBytes) {
      if (!tar::is_zero_block(archive_.data() + i) &&
          tar::has_valid_checksum(archive_.data() + i)) {
        damaged(at, {},
                "malformed data after an end marker, with a header after it at offset " +
                    std::to_string(i));
      }
    }
    report_.trailing_bytes = rest.size();
    return false;
  }

  /// Reads the entry at position_ if it is an ordinary one in v7, ustar or GNU format with nothing
  /// special about it. False, with nothing changed, if it is not.
  bool read_plain_entry() {
    const char* block = archive_.data() + position_;
    const tar::Header header(block);
    const char type = header.type();
    if (type != '0' && type != '\0' && type != '5' && type != '2') return false;
    if (!header.tail_is_zero()) return false;
    const std::string_view prefix = header.prefix();
    // Behind their names v7 and GNU headers may hold what means something to some readers: a
    // prefix, times, a sparse map.
    constexpr std::size_t kPrefix = 345, kTail = 500;
    if (!header.is_ustar() &&
        !((header.is_gnu() || header.is_v7()) &&
          std::all_of(block + kPrefix, block + kTail, [](char c) { return c == 0; }))) {
      return false;
    }
    const std::string_view short_name = header.short_name();
    if (short_name.empty()) return false;
    // Readers agree on digits. Base-256, blanks and zero bytes in front are read in several ways.
    if (block[124] < '0' || block[124] > '7') return false;
    const auto size = header.size();
    if (!size) return false;
    if (!tar::has_valid_checksum(block)) return false;
    const auto length = static_cast<std::uint64_t>(*size);
    if (type == '5' || type == '2') {
      if (length != 0) return false;
      headers_.update({block, kBlockBytes});
      ++(type == '5' ? report_.num_directories : report_.num_links);
      position_ += kBlockBytes;
      return true;
    }
    if (short_name.back() == '/') return false;  // an old way to write a directory
    std::string_view name = short_name;
    if (!prefix.empty()) {
      joined_name_.assign(prefix);
      if (joined_name_.back() != '/') joined_name_ += '/';
      joined_name_.append(short_name);
      name = joined_name_;
    }
    headers_.update({block, kBlockBytes});
    accept({name, position_, position_ + kBlockBytes, length});
    return true;
  }

  /// Visits a member whose header ends where its data begins, and moves behind it.
  void accept(const TarMember& member) {
    if (!padded_range_fits(member.data_offset, member.size_bytes)) {
      damaged(member.header_offset, member.name,
              "the shard is truncated: the member needs " + std::to_string(member.size_bytes) +
                  " bytes and padding, the file has " +
                  std::to_string(archive_.size() - member.data_offset) + " left");
    }
    ++report_.num_members;
    visit_(member);
    position_ = member.data_offset + tar::padded(member.size_bytes);
  }

  /// Reads on from position_ to the end of this archive through libarchive, and holds each entry
  /// against the raw headers.
  void read_with_libarchive() {
    const std::uint64_t base = position_;
    if (std::string why; !tar::read_raw_entry(archive_, base, &why)) damaged(base, {}, why);
    // Whole blocks only: what is behind them is zero, or at_entry() finds it truncated.
    const std::uint64_t size = (archive_.size() - base) / kBlockBytes * kBlockBytes;
    Continuation rest(archive_.substr(base, size));
    const ArchivePtr reader(archive_read_new());
    if (!reader) throw std::bad_alloc();
    archive* a = reader.get();
    if (archive_read_support_format_tar(a) != ARCHIVE_OK || !rest.open(a)) {
      damaged(base, {}, "libarchive cannot read on: " + error_of(a));
    }
    // After an entry that is no regular file the next header follows at once, or after a body.
    std::uint64_t body_of_last = 0;
    for (;;) {
      archive_entry* entry = nullptr;
      const int status = archive_read_next_header(a, &entry);
      if (status == ARCHIVE_EOF) {
        if (!is_end(position_) && !is_end(position_ + body_of_last)) {
          damaged(position_, {},
                  "libarchive sees the end of the archive where the raw bytes hold more");
        }
        if (!is_end(position_)) position_ += body_of_last;
        return;
      }
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
        damaged(position_, {}, "malformed: " + error_of(a));
      }
      const std::uint64_t data_offset = base + Continuation::position(a);
      const tar::RawEntry raw = matching_raw_entry(data_offset, body_of_last);
      headers_.update(archive_.substr(position_, raw.data_offset - position_));
      body_of_last = 0;
      if (raw.sparse) {
        skip_sparse(raw);
        continue;
      }
      if (archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr &&
          raw.type != '1') {
        accept_checked(raw, entry);
        continue;
      }
      count_other(raw.type);
      position_ = raw.data_offset;
      if (padded_range_fits(position_, raw.size)) body_of_last = tar::padded(raw.size);
    }
  }

  /// True if `size` bytes at `offset`, and what fills their last block, lie within the archive.
  bool padded_range_fits(std::uint64_t offset, std::uint64_t size) const noexcept {
    return range_fits(offset, size, archive_.size()) &&
           tar::padded(size) <= archive_.size() - offset;
  }

  bool is_end(std::uint64_t offset) const noexcept {
    if (offset >= archive_.size()) return true;
    const std::string_view rest = archive_.substr(offset, kBlockBytes);
    return std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; });
  }

  /// The entry that the raw headers give for what libarchive found; moves position_ over the body
  /// of the entry before if there was one.
  tar::RawEntry matching_raw_entry(std::uint64_t data_offset, std::uint64_t body_of_last) {
    std::string why;
    auto raw = tar::read_raw_entry(archive_, position_, &why);
    if (raw && raw->sparse) return *raw;  // libarchive stands behind its map
    if ((!raw || raw->data_offset != data_offset) && body_of_last != 0) {
      std::string why_behind;
      auto behind = tar::read_raw_entry(archive_, position_ + body_of_last, &why_behind);
      if (behind && (behind->data_offset == data_offset || behind->sparse)) {
        position_ += body_of_last;
        return *behind;
      }
    }
    if (!raw) damaged(position_, {}, why);
    if (raw->data_offset != data_offset) {
      damaged(raw->header_offset, raw->name,
              "libarchive finds the data at offset " + std::to_string(data_offset) +
                  ", the raw headers at " + std::to_string(raw->data_offset));
    }
    return *raw;
  }

  void accept_checked(const tar::RawEntry& raw, archive_entry* entry) {
    const auto said = static_cast<std::uint64_t>(archive_entry_size(entry));
    if (said != raw.size) {
      damaged(raw.header_offset, raw.name,
              "libarchive says " + std::to_string(said) + " bytes, the raw header " +
                  std::to_string(raw.size));
    }
    const char* said_name = archive_entry_pathname(entry);
    const std::string_view raw_name = std::string_view(raw.name).substr(0, raw.name.find('\0'));
    if (said_name != nullptr && raw_name != said_name) {
      damaged(raw.header_offset, raw.name,
              "libarchive reads the name " + in_quotes(said_name) + ", the raw header says " +
                  in_quotes(raw_name));
    }
    accept({raw_name, raw.header_offset, raw.data_offset, raw.size});
  }

  void skip_sparse(const tar::RawEntry& raw) {
    const TarProblem problem{ErrorCode::kUnsupported, raw.header_offset, raw.name,
                             "a sparse member: its bytes do not lie in the shard as they are"};
    if (!options_.lenient) throw Damage{problem};
    report_.skipped.push_back(problem);
    // The body, and for old GNU sparse headers their extension blocks, which libarchive has read.
    std::uint64_t at = raw.data_offset;
    if (raw.type == 'S') {
      bool extended = archive_[raw.header_offset + 482] != 0;
      while (extended && range_fits(at, kBlockBytes, archive_.size())) {
        extended = archive_[at + 504] != 0;
        at += kBlockBytes;
      }
    }
    if (!padded_range_fits(at, raw.size)) {
      damaged(raw.header_offset, raw.name, "the shard is truncated within a sparse member");
    }
    position_ = at + tar::padded(raw.size);
  }

  void count_other(char type) {
    if (type == '1' || type == '2') {
      ++report_.num_links;
    } else if (type == '5' || type == '0' || type == '\0') {
      ++report_.num_directories;
    } else {
      ++report_.num_special;
    }
  }

  const std::string_view archive_;
  const std::string& shard_;
  const TarScanOptions& options_;
  const std::function<void(const TarMember&)>& visit_;
  std::uint64_t position_ = 0;  // of the next header; everything before it is accounted for
  std::string joined_name_;
  Hasher128 headers_;
  TarScanReport report_;
};

}  // namespace

TarScanReport scan_tar(std::string_view archive, const std::string& shard,
                       const TarScanOptions& options,
                       const std::function<void(const TarMember&)>& visit) {
  return Scanner(archive, shard, options, visit).run();
}

}  // namespace shardwise
