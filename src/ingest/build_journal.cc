#include "ingest/build_journal.h"

#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "base/private_file.h"
#include "index/rows.h"
#include "shardwise/base/bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/base/fault_point.h"
#include "shardwise/base/hash.h"

namespace shardwise {
namespace {

constexpr std::string_view kMagic("SDWJRN3\n", 8);
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRecordHeaderBytes = 16;

void put(std::string& out, std::uint64_t value) {
  char bytes[8];
  store_le64(bytes, value);
  out.append(bytes, sizeof bytes);
}

std::string to_payload(const ShardPart& part) {
  std::string out;
  pack(to_cells(part.row), out);
  pack(std::vector<Cell>{{.bytes = part.segment}}, out);
  put(out, part.skipped.size());
  for (const SkippedMember& member : part.skipped) pack(to_cells(member), out);
  return out;
}

/// Takes a payload apart. Payloads passed their hash, but are read as if they had not.
template <class Row>
Row take_row(std::string_view& payload) {
  const auto cells = unpack(to_cells(Row{}), payload);
  if (!cells) throw CorruptIndex("a journal record is too short");
  return from_cells<Row>(*cells);
}

ShardPart from_payload(std::string_view payload) {
  ShardPart part;
  part.row = take_row<ShardInfo>(payload);
  const auto segment = unpack(std::vector<Cell>{{}}, payload);
  if (!segment || payload.size() < 8) throw CorruptIndex("a journal record is too short");
  part.segment = (*segment)[0].bytes;
  std::uint64_t left = load_le64(payload.data());
  payload.remove_prefix(8);
  for (; left > 0; --left) part.skipped.push_back(take_row<SkippedMember>(payload));
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
  if (file.try_lock() != FileLock::kTaken) {
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
    std::string_view rest = payload;
    found_[take_row<ShardInfo>(rest).url] = payload;
    end_ += kRecordHeaderBytes + size;
  }
}

std::optional<ShardPart> BuildJournal::find(const std::string& url, const FileIdentity& identity,
                                            const std::string& validator) const {
  const auto it = found_.find(url);
  if (it == found_.end()) return std::nullopt;
  try {
    std::string_view payload = it->second;
    const auto row = take_row<ShardInfo>(payload);
    if (row.validator != validator || row.size_bytes != identity.size_bytes ||
        row.mtime_ns != identity.mtime_ns) {
      return std::nullopt;
    }
    return from_payload(it->second);
  } catch (const Error&) {
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
    if (file.try_lock() != FileLock::kTaken || !file.has_name()) {
      enabled_ = false;
      return;
    }
    file_ = std::move(file);
  }
  if (pace_.is_private) make_private(*file_);
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
