#include "ingest/build_journal.h"

#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "shardwise/base/bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/base/fault_point.h"
#include "shardwise/base/hash.h"

namespace shardwise {
namespace {

constexpr std::string_view kMagic("SDWJRN2\n", 8);
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRecordHeaderBytes = 16;

void put(std::string& out, std::uint64_t value) {
  char bytes[8];
  store_le64(bytes, value);
  out.append(bytes, sizeof bytes);
}

void put(std::string& out, std::string_view bytes) {
  put(out, std::uint64_t{bytes.size()});
  out += bytes;
}

/// Takes a payload apart. Payloads passed their hash, but are read as if they had not.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t number() {
    if (bytes_.size() < 8) throw CorruptIndex("a journal record is too short");
    const std::uint64_t value = load_le64(bytes_.data());
    bytes_.remove_prefix(8);
    return value;
  }
  std::string_view text() {
    const std::uint64_t size = number();
    if (size > bytes_.size()) throw CorruptIndex("a journal record is too short");
    const std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
  }

 private:
  std::string_view bytes_;
};

std::string to_payload(const ShardPart& part) {
  const ShardRow& row = part.row;
  std::string out;
  put(out, row.url);
  put(out, row.validator);
  for (const std::uint64_t value :
       {row.size_bytes, static_cast<std::uint64_t>(row.mtime_ns), row.num_samples, row.num_members,
        row.num_not_samples, row.num_archives, row.trailing_bytes, std::uint64_t{row.end_marker},
        static_cast<std::uint64_t>(row.compression), row.expanded_bytes,
        std::uint64_t{row.content_hash.has_value()}, row.content_hash.value_or(Hash128{}).high,
        row.content_hash.value_or(Hash128{}).low, row.header_hash.high, row.header_hash.low,
        row.first_header_hash, row.segment_checksum}) {
    put(out, value);
  }
  put(out, part.segment);
  put(out, std::uint64_t{part.skipped.size()});
  for (const SkippedMember& member : part.skipped) {
    put(out, member.offset);
    put(out, member.name);
    put(out, member.reason);
  }
  return out;
}

ShardPart from_payload(std::string_view payload) {
  PayloadReader in(payload);
  ShardPart part;
  ShardRow& row = part.row;
  row.url = in.text();
  row.validator = in.text();
  row.size_bytes = in.number();
  row.mtime_ns = static_cast<std::int64_t>(in.number());
  row.num_samples = in.number();
  row.num_members = in.number();
  row.num_not_samples = in.number();
  row.num_archives = in.number();
  row.trailing_bytes = in.number();
  row.end_marker = in.number() != 0;
  row.compression = static_cast<Compression>(in.number());
  row.expanded_bytes = in.number();
  const bool has_content_hash = in.number() != 0;
  const std::uint64_t high = in.number();
  const std::uint64_t low = in.number();
  if (has_content_hash) row.content_hash = Hash128{high, low};
  row.header_hash.high = in.number();
  row.header_hash.low = in.number();
  row.first_header_hash = in.number();
  row.segment_checksum = in.number();
  part.segment = in.text();
  for (std::uint64_t left = in.number(); left > 0; --left) {
    SkippedMember member;
    member.offset = in.number();
    member.name = in.text();
    member.reason = in.text();
    part.skipped.push_back(std::move(member));
  }
  std::string why;
  const auto view = SegmentView::check(part.segment, &why);
  if (!view) throw CorruptIndex(why);
  part.key_hashes = hash_keys(*view);
  part.fields = count_fields(*view);
  part.reused = true;
  part.resumed = true;
  return part;
}

}  // namespace

BuildJournal::BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace)
    : path_(index_path + ".journal"), options_hash_(options_hash), pace_(pace) {
  try {
    open_existing();
  } catch (const Error&) {
    found_.clear();  // not to be read: then it is not gone on with
    file_.reset();
  }
}

void BuildJournal::open_existing() {
  if (::access(path_.c_str(), F_OK) != 0) return;
  File file = File::open_or_create(path_);
  if (!file.try_lock()) {
    enabled_ = false;
    return;
  }
  if (!file.has_name()) return;
  file_ = std::move(file);
  read_records();
}

void BuildJournal::read_records() {
  mapped_ = MappedFile::open(path_);
  const std::string_view bytes = mapped_->bytes();
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic) ||
      load_le64(bytes.data() + kMagic.size()) != options_hash_) {
    return;
  }
  end_ = kHeaderBytes;
  while (range_fits(end_, kRecordHeaderBytes, bytes.size())) {
    const std::uint64_t size = load_le64(bytes.data() + end_);
    if (!range_fits(end_ + kRecordHeaderBytes, size, bytes.size())) return;
    const std::string_view payload = bytes.substr(end_ + kRecordHeaderBytes, size);
    if (hash64(payload, end_) != load_le64(bytes.data() + end_ + 8)) return;
    found_[std::string(PayloadReader(payload).text())] = payload;
    end_ += kRecordHeaderBytes + size;
  }
}

std::optional<ShardPart> BuildJournal::find(const std::string& url, const FileIdentity& identity,
                                            const std::string& validator) const {
  const auto it = found_.find(url);
  if (it == found_.end()) return std::nullopt;
  PayloadReader in(it->second);
  in.text();
  if (in.text() != validator) return std::nullopt;
  if (in.number() != identity.size_bytes) return std::nullopt;
  if (static_cast<std::int64_t>(in.number()) != identity.mtime_ns) return std::nullopt;
  try {
    return from_payload(it->second);
  } catch (const CorruptIndex&) {
    return std::nullopt;
  }
}

void BuildJournal::add(const ShardPart& part) {
  if (!enabled_) return;
  const std::string payload = to_payload(part);
  const std::uint64_t offset = (end_ == 0 ? kHeaderBytes : end_) + pending_.size();
  put(pending_, std::uint64_t{payload.size()});
  put(pending_, hash64(payload, offset));
  pending_ += payload;
  if (pending_.size() >= pace_.bytes ||
      std::chrono::steady_clock::now() - last_flush_ >= pace_.age) {
    flush();
  }
}

void BuildJournal::flush() {
  if (!file_) {
    File file = File::open_or_create(path_);
    if (!file.try_lock() || !file.has_name()) {
      enabled_ = false;
      return;
    }
    file_ = std::move(file);
  }
  if (end_ == 0) {
    std::string header(kMagic);
    put(header, options_hash_);
    file_->resize(0);
    file_->write_at(0, header);
    end_ = kHeaderBytes;
  }
  file_->resize(end_);  // what an earlier build was killed over goes
  file_->write_at(end_, pending_);
  end_ += pending_.size();
  pending_.clear();
  last_flush_ = std::chrono::steady_clock::now();
  SHARDWISE_FAULT_POINT("journal.flushed");
}

void BuildJournal::remove() noexcept {
  if (file_) ::unlink(path_.c_str());
  file_.reset();
}

}  // namespace shardwise
