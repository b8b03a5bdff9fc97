#include "index/table_view.h"

#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/error_types.h"
#include "index/remedies.h"
#include "index/table_writer.h"
#include "shardwise/base/hash.h"

namespace shardwise {

TableView::TableView(std::string_view bytes, Texts texts)
    : bytes_(bytes), texts_(std::move(texts)) {
  if (bytes.size() < sizeof(TableHeader) ||
      std::memcmp(bytes.data(), kTableMagic, sizeof kTableMagic) != 0) {
    damaged("the file is not an offset table");
  }
  header_ = reinterpret_cast<const TableHeader*>(bytes.data());
  const TableHeader& h = *header_;
  if (h.version != kIndexVersion) {
    throw VersionMismatch("the offset table has format version " + std::to_string(h.version) +
                              ", but this library reads version " + std::to_string(kIndexVersion),
                          texts_.place, rebuild_from_sources_remedy());
  }
  if (h.header_checksum != table_header_checksum(h)) damaged("the header's checksum is wrong");
  // The header's checksum matches. But its writer may be hostile, or the file may be truncated.
  constexpr std::uint64_t kMax = std::uint64_t{1} << 40;
  if (h.file_bytes != bytes.size() || h.num_shards >= kMax || h.num_samples >= kMax ||
      h.hint_shift > 40 || h.key_bucket_bits > 36 || h.directory_offset % 8 != 0 ||
      h.hint_offset % 8 != 0 || h.keys_offset % 8 != 0) {
    damaged("the sections do not fit into the file");
  }
  const std::uint64_t directory_bytes = (h.num_shards + 1) * sizeof(ShardEntry);
  const std::uint64_t num_hints =
      h.num_samples == 0 ? 0 : ((h.num_samples - 1) >> h.hint_shift) + 1;
  const std::uint64_t hint_bytes = (num_hints + num_hints % 2) * sizeof(std::uint32_t);
  const std::uint64_t key_bytes =
      KeyIndex::num_words(h.key_bucket_bits, h.num_samples) * sizeof(std::uint64_t);
  if (!range_fits(h.directory_offset, directory_bytes, bytes.size()) ||
      !range_fits(h.hint_offset, hint_bytes, bytes.size()) ||
      !range_fits(h.keys_offset, key_bytes, bytes.size())) {
    damaged("the sections do not fit into the file");
  }
  const std::string_view directory = bytes.substr(h.directory_offset, directory_bytes);
  const std::string_view hints = bytes.substr(h.hint_offset, hint_bytes);
  if (hash64(hints, hash64(directory)) != h.directory_checksum) {
    damaged("the directory's checksum is wrong");
  }
  directory_ = reinterpret_cast<const ShardEntry*>(directory.data());
  hints_ = reinterpret_cast<const std::uint32_t*>(hints.data());
  keys_ = keys_in(bytes);
  look_up_in(bytes);

  if (directory_[0].first_sample != 0 || directory_[0].first_member != 0 ||
      directory_[h.num_shards].first_sample != h.num_samples ||
      directory_[h.num_shards].first_member != h.num_members ||
      directory_[h.num_shards].segment_offset > h.directory_offset) {
    damaged("the directory is wrong");
  }
  for (std::uint64_t i = 0; i < h.num_shards; ++i) {
    if (directory_[i].segment_offset % 8 != 0 ||
        directory_[i].segment_offset > directory_[i + 1].segment_offset ||
        directory_[i].first_sample > directory_[i + 1].first_sample ||
        directory_[i].first_member > directory_[i + 1].first_member) {
      damaged("the directory is wrong");
    }
  }
  for (std::uint64_t i = 0; i < num_hints; ++i) {
    const std::uint64_t sample = i << h.hint_shift;
    if (hints_[i] >= h.num_shards || directory_[hints_[i]].first_sample > sample ||
        directory_[hints_[i] + 1].first_sample <= sample) {
      damaged("the hints are wrong");
    }
  }
}

void TableView::look_up_in(std::string_view bytes) noexcept {
  SHARDWISE_ASSERT(bytes.size() == bytes_.size());
  lookup_bytes_ = bytes;
  lookup_keys_ = keys_in(bytes);
}

KeyIndex TableView::keys_in(std::string_view bytes) const noexcept {
  return {reinterpret_cast<const std::uint64_t*>(bytes.data() + header_->keys_offset),
          header_->key_bucket_bits, header_->num_samples};
}

std::string_view TableView::segment_in(std::string_view bytes, std::uint64_t shard) const noexcept {
  SHARDWISE_ASSERT(shard < header_->num_shards);
  const ShardEntry& entry = directory_[shard];
  return bytes.substr(entry.segment_offset,
                      directory_[shard + 1].segment_offset - entry.segment_offset);
}

std::string_view TableView::segment_bytes(std::uint64_t shard) const noexcept {
  return segment_in(bytes_, shard);
}

SegmentView TableView::segment(std::uint64_t shard) const {
  std::string why;
  const auto view = SegmentView::check(segment_bytes(shard), &why);
  if (!view) damaged("shard " + std::to_string(shard) + ": " + why);
  return *view;
}

void TableView::check_sections() const {
  Hasher128 segments;
  for (std::uint64_t shard = 0; shard < header_->num_shards; ++shard) {
    static_cast<void>(segment(shard));
    SegmentHeader header;
    std::memcpy(&header, segment_bytes(shard).data(), sizeof header);
    segments.update_u64(header.checksum);
  }
  if (segments.digest().low != header_->segments_checksum) {
    damaged("the segments' checksum is wrong");
  }
  if (!keys_.is_intact(header_->keys_checksum)) damaged("the key section's checksum is wrong");
}

std::string_view TableView::key_in(std::string_view bytes, std::uint64_t sample) const {
  const std::uint64_t shard = shard_of(sample);
  const auto key =
      SegmentView::find_key(segment_in(bytes, shard), sample - directory_[shard].first_sample);
  if (!key) damaged("shard " + std::to_string(shard) + ": a key lies outside its segment");
  return *key;
}

void TableView::damaged(std::string_view why) const {
  throw CorruptIndex(texts_.damaged, texts_.place + " (" + std::string(why) + ")", texts_.remedy);
}

}  // namespace shardwise
