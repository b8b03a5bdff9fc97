#include "tar/tar_scanner.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/error_types.h"
#include "base/expanding_reader.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "shardwise/base/compression.h"
#include "tar/tar_header.h"

namespace shardwise::detail {
namespace {

using tar::kBlockBytes;

std::string damaged_remedy() {
  return "restore or repack the shard, or leave out damaged members with " +
         spelled("`shardwise index --on-bad skip`");
}

std::string unsupported_remedy() {
  return "repack the shard with plain files only, without `tar --sparse`, or leave the member out "
         "with " +
         spelled("`shardwise index --on-bad skip`");
}

/// Largest number of bytes and of entries between two calls of TarScanOptions::tick.
constexpr std::uint64_t kTickBytes = std::uint64_t{4} << 20;
constexpr std::uint32_t kTickEntries = 1024;

struct ArchiveDeleter {
  void operator()(archive* a) const noexcept { archive_read_free(a); }
};
using ArchivePtr = std::unique_ptr<archive, ArchiveDeleter>;

std::string error_of(archive* a) {
  const char* text = archive_error_string(a);
  return text == nullptr ? "libarchive gives no reason" : text;
}

/// Thrown inside the scan; converted to a CorruptShard, an Unsupported, or a skipped entry.
struct Damage {
  TarProblem problem;
};

[[noreturn]] void damaged(std::uint64_t offset, std::string_view member, std::string what,
                          ErrorCode code = ErrorCode::kCorruptShard) {
  throw Damage{{code, offset, std::string(member), std::move(what)}};
}

/// The rest of an archive from some header on, for libarchive, with an empty member before it.
/// libarchive checks the first header of an archive more strictly than later headers. With the
/// empty member, its results do not depend on where the rest begins.
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

  /// Opens `a` on this archive, and reads the empty member.
  bool open(archive* a) {
    archive_entry* entry = nullptr;
    return archive_read_open(a, this, nullptr, &Continuation::read, nullptr) == ARCHIVE_OK &&
           archive_read_next_header(a, &entry) == ARCHIVE_OK;
  }
  /// Returns libarchive's position in bytes, not counting the empty member.
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

/// Sets this thread's locale to "C" while it lives. In other locales, libarchive converts pax names
/// from UTF-8 to the locale's character set.
class PlainLocale {
 public:
  PlainLocale() noexcept {
    static const locale_t kPlain = ::newlocale(LC_ALL_MASK, "C", nullptr);
    before_ = ::uselocale(kPlain);
  }
  ~PlainLocale() { ::uselocale(before_); }
  PlainLocale(const PlainLocale&) = delete;
  PlainLocale& operator=(const PlainLocale&) = delete;

 private:
  locale_t before_;
};

std::string_view up_to_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

std::string_view text_or_empty(const char* text) { return text == nullptr ? "" : text; }

/// Returns the entry's type according to libarchive, or nothing for another type.
std::optional<tar::EntryKind> kind_of(archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr) return tar::EntryKind::kHardLink;
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return tar::EntryKind::kFile;
    case AE_IFDIR:
      return tar::EntryKind::kDirectory;
    case AE_IFLNK:
      return tar::EntryKind::kSymbolicLink;
    case AE_IFCHR:
    case AE_IFBLK:
    case AE_IFIFO:
      return tar::EntryKind::kSpecial;
    default:
      return std::nullopt;
  }
}

std::string_view kind_name(std::optional<tar::EntryKind> kind) {
  switch (kind.value_or(tar::EntryKind::kUnsupported)) {
    case tar::EntryKind::kFile:
      return "a file";
    case tar::EntryKind::kDirectory:
      return "a directory";
    case tar::EntryKind::kHardLink:
      return "a hard link";
    case tar::EntryKind::kSymbolicLink:
      return "a symbolic link";
    case tar::EntryKind::kSpecial:
      return "a device or FIFO";
    case tar::EntryKind::kUnsupported:
      break;
  }
  return "an entry of another type";
}

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
      // The bytes after the damage are not read, because they may not be headers.
      report_.skipped.push_back(damage.problem);
      report_.skipped.back().what += "; the rest of the shard is left out with it, " +
                                     std::to_string(archive_.size() - damage.problem.offset) +
                                     " bytes";
    }
    report_.header_hash = headers_.digest();
    return std::move(report_);
  }

 private:
  /// Throws if the file is not an archive at all, even in lenient scans.
  void check_beginning() const {
    if (archive_.empty()) {
      throw CorruptShard(
          "the file is empty, not a tar archive", in_quotes(shard_),
          "copy or pack the shard again; even an empty tar archive has an end marker");
    }
    if (archive_.size() >= kBlockBytes &&
        (tar::has_valid_checksum(archive_.data()) || tar::is_zero_block(archive_.data()))) {
      return;
    }
    if (const Compression compression = detect_compression(archive_);
        compression != Compression::kNone) {
      throw Unsupported(
          "the archive is compressed (" + std::string(compression_name(compression)) + ")",
          in_quotes(shard_), "expand the archive first");
    }
    throw CorruptShard(
        "the file is not a tar archive", in_quotes(shard_) + offset_text(0),
        "check that the path names the right file: the first 512 bytes must be a tar header");
  }

  std::string offset_text(std::uint64_t offset) const {
    return (options_.expanded ? ", expanded offset " : ", offset ") + std::to_string(offset);
  }

  [[noreturn]] void raise(const TarProblem& problem) const {
    std::string where = in_quotes(shard_) + offset_text(problem.offset);
    if (!problem.member.empty()) where += ", member " + in_quotes(problem.member);
    if (problem.code == ErrorCode::kUnsupported)
      throw Unsupported(problem.what, where, unsupported_remedy());
    throw CorruptShard(problem.what, where, damaged_remedy());
  }

  /// Calls the user's tick if it is due.
  void tick(std::uint64_t at) {
    if (at - told_ < kTickBytes && ++entries_since_tick_ < kTickEntries) return;
    told_ = at;
    entries_since_tick_ = 0;
    if (options_.tick) options_.tick(at);
  }

  /// Moves past end markers to the next entry. Returns false at the end of the file.
  bool at_entry() {
    const std::uint64_t end = archive_.size();
    std::uint64_t at = position_;
    for (; end - at >= kBlockBytes && tar::is_zero_block(archive_.data() + at); at += kBlockBytes) {
      tick(at);
    }
    tick(at);
    const bool marked = at != position_;
    report_.end_marker = marked || report_.end_marker;
    const std::string_view rest = archive_.substr(at);
    if (rest.size() < kBlockBytes) {
      if (std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; })) return false;
      if (!marked) damaged(at, {}, "the shard is truncated: it ends within a header");
    }
    if (!marked) return true;
    if (rest.size() >= kBlockBytes && tar::has_valid_checksum(rest.data())) {
      ++report_.num_archives;  // another archive follows; continue with it
      report_.end_marker = false;
      position_ = at;
      return true;
    }
    // Some writers leave arbitrary bytes in their last record, which are ignored. But if these
    // bytes contain a header, ignoring them would lose members.
    for (std::uint64_t i = at + kBlockBytes; range_fits(i, kBlockBytes, end); i += kBlockBytes) {
      tick(i);
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

  /// Reads the entry at position_ if it is an ordinary entry in v7, ustar or GNU format. Otherwise
  /// returns false and changes no state.
  bool read_plain_entry() {
    const char* block = archive_.data() + position_;
    const tar::Header header(block);
    const char type = header.type();
    if (type != '0' && type != '\0' && type != '5' && type != '2' && type != '1') return false;
    if (!header.tail_is_zero()) return false;
    const std::string_view prefix = header.prefix();
    // After the fields for names, v7 and GNU headers may contain data that only some readers
    // interpret: a prefix, times, a sparse map.
    constexpr std::size_t kPrefix = 345, kTail = 500;
    if (!header.is_ustar() &&
        !((header.is_gnu() || header.is_v7()) &&
          std::all_of(block + kPrefix, block + kTail, [](char c) { return c == 0; }))) {
      return false;
    }
    const std::string_view short_name = header.short_name();
    if (short_name.empty()) return false;
    // Readers agree on a size in digits, but not on base-256, leading blanks or zero bytes.
    if (block[124] < '0' || block[124] > '7') return false;
    const auto size = header.size();
    if (!size) return false;
    if (!tar::has_valid_checksum(block)) return false;
    const auto length = static_cast<std::uint64_t>(*size);
    const bool is_file = type == '0' || type == '\0';
    if (!is_file && length != 0) return false;
    // A trailing slash is an old notation for a directory. Readers disagree on a link without a
    // target.
    if (type != '5' && short_name.back() == '/') return false;
    if ((type == '1' || type == '2') && header.short_target().empty()) return false;
    if (block[148] == '\0') return false;  // libarchive reads such a checksum as 0
    std::string_view name = short_name;
    if (!prefix.empty()) {
      joined_name_.assign(prefix).append("/").append(short_name);  // see tar::Header::name()
      name = joined_name_;
    }
    headers_.update({block, kBlockBytes});
    if (is_file) {
      accept({name, position_, position_ + kBlockBytes, length});
    } else {
      pass_by(type == '5'   ? tar::EntryKind::kDirectory
              : type == '1' ? tar::EntryKind::kHardLink
                            : tar::EntryKind::kSymbolicLink,
              name, header.short_target(), position_);
      position_ += kBlockBytes;
    }
    return true;
  }

  /// Calls `visit` for a member, and moves past its data.
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

  /// Counts an entry that is not a file. Reports it if its name could be that of a member.
  void pass_by(tar::EntryKind kind, std::string_view name, std::string_view target,
               std::uint64_t header_offset) {
    if (kind == tar::EntryKind::kDirectory) {
      ++report_.num_directories;
      return;
    }
    TarOther other{.type = TarOther::Type::kSpecial,
                   .name = name,
                   .target = {},
                   .header_offset = header_offset};
    if (kind == tar::EntryKind::kSpecial) {
      ++report_.num_special;
    } else {
      ++report_.num_links;
      other.type = kind == tar::EntryKind::kHardLink ? TarOther::Type::kHardLink
                                                     : TarOther::Type::kSymbolicLink;
      other.target = target;
    }
    if (options_.visit_other) options_.visit_other(other);
  }

  /// Reads the raw headers from position_ to the end of this archive, or past the first unsupported
  /// entry, and compares them with libarchive's results.
  void read_with_libarchive() {
    const std::uint64_t base = position_;
    // Only whole blocks are passed. The rest is zero, or at_entry() reports it as a truncation.
    const std::uint64_t size = (archive_.size() - base) / kBlockBytes * kBlockBytes;
    Continuation rest(archive_.substr(base, size));
    const ArchivePtr reader(archive_read_new());
    if (!reader) throw std::bad_alloc();
    archive* a = reader.get();
    if (archive_read_support_format_tar(a) != ARCHIVE_OK || !rest.open(a)) {
      damaged(base, {}, "libarchive cannot read further: " + error_of(a));
    }
    for (;;) {
      tick(position_);
      std::optional<tar::RawEntry> raw;
      if (!is_end(position_)) {
        std::string why;
        raw = tar::read_raw_entry(archive_, position_, &why);
        if (!raw) damaged(position_, {}, why);
        if (raw->kind() == tar::EntryKind::kUnsupported) return leave_out(*raw);
      }
      if (!libarchive_reads(a, base, raw)) return;
      read_entry(*raw);
    }
  }

  /// Lets libarchive read an entry, and throws unless it matches `raw`. Returns false if both find
  /// the end.
  bool libarchive_reads(archive* a, std::uint64_t base, const std::optional<tar::RawEntry>& raw) {
    const PlainLocale locale;
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(a, &entry);
    if (status == ARCHIVE_EOF) {
      if (!raw) return false;
      damaged(position_, raw->name,
              "libarchive sees the end of the archive before the end of the raw bytes");
    }
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
      damaged(position_, {}, "malformed: " + error_of(a));
    }
    if (!raw)
      damaged(position_, {}, "libarchive reads beyond the end of the archive in the raw bytes");
    require_same(*raw, entry, base + Continuation::position(a));
    return true;
  }

  /// Visits or counts the entry, and moves past it.
  void read_entry(const tar::RawEntry& raw) {
    headers_.update(archive_.substr(position_, raw.data_offset - position_));
    const std::string_view name = up_to_nul(raw.name);
    const tar::EntryKind kind = raw.kind();
    if (kind == tar::EntryKind::kFile) {
      accept({name, raw.header_offset, raw.data_offset, raw.size});
      return;
    }
    pass_by(kind, name, up_to_nul(raw.target), raw.header_offset);
    position_ = raw.data_offset;
    if (raw.type == 'D') {
      skip_body(raw, raw.data_offset);
    } else if (raw.size != 0) {
      require_no_body(raw);
    }
  }

  /// True if `size` bytes at `offset`, padded to whole blocks, lie within the archive.
  bool padded_range_fits(std::uint64_t offset, std::uint64_t size) const noexcept {
    return range_fits(offset, size, archive_.size()) &&
           tar::padded(size) <= archive_.size() - offset;
  }

  bool is_end(std::uint64_t offset) const noexcept {
    if (offset >= archive_.size()) return true;
    const std::string_view rest = archive_.substr(offset, kBlockBytes);
    return std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; });
  }

  bool is_header(std::uint64_t offset) const noexcept {
    return range_fits(offset, kBlockBytes, archive_.size()) &&
           tar::has_valid_checksum(archive_.data() + offset);
  }

  void skip_body(const tar::RawEntry& raw, std::uint64_t at) {
    if (!padded_range_fits(at, raw.size)) {
      damaged(raw.header_offset, raw.name,
              "the shard is truncated within " + std::string(kind_name(raw.kind())));
    }
    position_ = at + tar::padded(raw.size);
  }

  /// Links, directories and devices have no data, even if their size field is not 0. But GNU tar
  /// skips that many bytes, except after directories, and after hard links whose size is not from
  /// pax. libarchive skips them only after hard links in pax archives. The entry is refused if
  /// skipping would change which entries follow.
  void require_no_body(const tar::RawEntry& raw) const {
    const bool never_skipped = raw.type == '5' || (raw.type == '1' && !raw.pax_size);
    if (never_skipped && is_header(raw.data_offset)) return;
    if (is_end(raw.data_offset)) {
      const std::uint64_t left = archive_.size() - raw.data_offset;
      const std::string_view body =
          archive_.substr(raw.data_offset, std::min(left, tar::padded(std::min(left, raw.size))));
      if (std::all_of(body.begin(), body.end(), [](char c) { return c == 0; })) return;
    }
    damaged(raw.header_offset, raw.name,
            std::string(kind_name(raw.kind())) + " with a size of " + std::to_string(raw.size) +
                " bytes; readers disagree on whether the bytes after it are its data");
  }

  /// True for a link without a target. libarchive's type for such an entry depends on earlier
  /// entries.
  static bool is_link_to_nothing(const tar::RawEntry& raw) {
    const tar::EntryKind kind = raw.kind();
    return (kind == tar::EntryKind::kHardLink || kind == tar::EntryKind::kSymbolicLink) &&
           up_to_nul(raw.target).empty();
  }

  /// True if the names differ only because libarchive adds no slash after a prefix that ends with a
  /// slash.
  static bool is_joined_otherwise(const tar::RawEntry& raw, std::string_view name) {
    const std::string_view whole = up_to_nul(raw.name);
    for (std::size_t at = whole.find("//"); at != std::string_view::npos;
         at = whole.find("//", at + 1)) {
      if (whole.substr(0, at) == name.substr(0, at) && whole.substr(at + 1) == name.substr(at)) {
        return true;
      }
    }
    return false;
  }

  /// Throws unless libarchive and the raw headers agree on an entry.
  void require_same(const tar::RawEntry& raw, archive_entry* entry,
                    std::uint64_t data_offset) const {
    const auto differ = [&](const std::string& said, const std::string& is) {
      damaged(raw.header_offset, raw.name, "libarchive " + said + ", the raw header " + is);
    };
    if (raw.data_offset != data_offset) {
      // The text omits the offset: libarchive's result depends on the member's bytes, which are not
      // available for every shard.
      differ("finds the data elsewhere", "ends at " + std::to_string(raw.data_offset));
    }
    const std::optional<tar::EntryKind> kind = kind_of(entry);
    if (kind != raw.kind() && !is_link_to_nothing(raw)) {
      differ("takes the entry for " + std::string(kind_name(kind)),
             "says " + std::string(kind_name(raw.kind())));
    }
    const auto size = static_cast<std::uint64_t>(archive_entry_size(entry));
    if (raw.kind() == tar::EntryKind::kFile && size != raw.size) {
      differ("says " + std::to_string(size) + " bytes", std::to_string(raw.size));
    }
    const char* name = archive_entry_pathname(entry);
    if (name != nullptr && up_to_nul(raw.name) != name && !is_joined_otherwise(raw, name)) {
      differ("reads the name " + in_quotes(name), "says " + in_quotes(up_to_nul(raw.name)));
    }
    if (kind != tar::EntryKind::kHardLink && kind != tar::EntryKind::kSymbolicLink) return;
    const std::string_view target =
        text_or_empty(kind == tar::EntryKind::kHardLink ? archive_entry_hardlink(entry)
                                                        : archive_entry_symlink(entry));
    if (up_to_nul(raw.target) != target) {
      differ("reads the target " + in_quotes(target), "says " + in_quotes(up_to_nul(raw.target)));
    }
  }

  /// Throws, or records an unsupported entry and moves past it.
  void leave_out(const tar::RawEntry& raw) {
    const TarProblem problem{
        ErrorCode::kUnsupported, raw.header_offset, raw.name,
        raw.sparse ? "the member is sparse, so the shard does not hold its bytes as they are"
                   : "an entry of type " + in_quotes({&raw.type, 1}) +
                         ", which readers interpret differently"};
    if (!options_.lenient) throw Damage{problem};
    headers_.update(archive_.substr(position_, raw.data_offset - position_));
    report_.skipped.push_back(problem);
    // Skip the body and, for old GNU sparse headers, the extension blocks before it.
    std::uint64_t at = raw.data_offset;
    if (raw.type == 'S') {
      bool extended = archive_[raw.header_offset + 482] != 0;
      while (extended && range_fits(at, kBlockBytes, archive_.size())) {
        extended = archive_[at + 504] != 0;
        at += kBlockBytes;
      }
    }
    skip_body(raw, at);
  }

  const std::string_view archive_;
  const std::string& shard_;
  const TarScanOptions& options_;
  const std::function<void(const TarMember&)>& visit_;
  std::uint64_t position_ = 0;  // offset of the next header; everything before it is accounted for
  std::uint64_t told_ = 0;      // offset at the last call of tick
  std::uint32_t entries_since_tick_ = 0;
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

Compression shard_compression(std::string_view first_bytes) noexcept {
  if (first_bytes.size() >= tar::kBlockBytes && tar::has_valid_checksum(first_bytes.data())) {
    return Compression::kNone;
  }
  return detect_compression(first_bytes);
}

}  // namespace shardwise::detail
