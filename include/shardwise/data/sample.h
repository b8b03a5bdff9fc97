#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

namespace detail {
struct MemberRecord;
struct OpenShard;
struct OwnBytes;
struct SampleAccess;
class SampleCursor;
struct ShardPin;
template <class Shard>
class ShardHandle;
}  // namespace detail

/// One sample, read in place: views into the mapped shard, nothing copied. Where shards are read
/// and not mapped (Dataset::Access::kRead), views into bytes that the sample holds.
///
/// A Sample shares ownership of its shard's mapping, or of its bytes, and of the index, so its
/// views stay valid while it (or a copy of it) lives, whatever is evicted or closed. Views cannot
/// be taken from a temporary Sample: `data[42]["jpg"]` does not compile. Immutable: any thread.
/// Copying costs a reference count.
///
/// Caveat: reading a view raises SIGBUS if its shard is mapped and was truncated in place
/// meanwhile. copy() and integer() throw instead, and with Dataset::Access::kRead operator[] does.
class SHARDWISE_EXPORT Sample {
 public:
  /// One field of a sample: its name and its bytes.
  struct Field {
    std::string_view name;
    std::string_view bytes;
  };

  ~Sample();
  Sample(const Sample&) noexcept;
  Sample(Sample&&) noexcept;
  Sample& operator=(Sample) noexcept;

  /// The sample's number in its dataset.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }
  /// The sample's number in the index: the same, unless the dataset is a view of some samples.
  [[nodiscard]] std::uint64_t number_in_index() const noexcept;

  [[nodiscard]] std::string_view key() const& noexcept;
  std::string_view key() const&& = delete;  // keep the Sample

  [[nodiscard]] std::size_t num_fields() const noexcept { return num_members_; }
  /// The `i`-th field in archive order. REQUIRES: i < num_fields().
  [[nodiscard]] Field field(std::size_t i) const& noexcept;
  Field field(std::size_t i) const&& = delete;  // keep the Sample

  /// The bytes of a field. Errors: NotFound; the text lists the fields that there are.
  [[nodiscard]] std::string_view operator[](std::string_view field) const&;
  std::string_view operator[](std::string_view field) const&& = delete;  // keep the Sample

  /// The bytes of a field, or nothing if the sample has none of that name.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view field) const& noexcept;
  std::optional<std::string_view> find(std::string_view field) const&& = delete;  // keep the Sample

  [[nodiscard]] bool contains(std::string_view field) const noexcept;

  /// A field that holds a decimal number, blanks around it allowed, as WebDataset's cls and index.
  /// Errors: NotFound; BadField; StaleIndex and kIo as copy().
  [[nodiscard]] std::int64_t integer(std::string_view field) const;
  /// A copy of a field, for when the sample does not live as long, or nothing may be taken from a
  /// shard that changed.
  /// Errors: NotFound; StaleIndex if the mapped file was written to since it was opened; kIo if it
  ///   cannot be read. A file that took the mapped one's place by rename does no harm; but from
  ///   then on, writes to the mapped one are not noticed any more.
  /// Cost: the copy, and a stat where the shard is mapped.
  [[nodiscard]] std::string copy(std::string_view field) const;

  /// "sample 42 ('dir/000042') in shard 'train-000000.tar'": for error texts.
  [[nodiscard]] std::string describe() const;
  /// The path of the shard that holds the sample.
  [[nodiscard]] const std::string& shard_path() const& noexcept;
  const std::string& shard_path() const&& = delete;  // keep the Sample

 private:
  friend class Dataset;
  friend struct detail::SampleAccess;
  friend class detail::SampleCursor;
  Sample() noexcept = default;  // one that was moved from
  Sample(detail::ShardHandle<detail::OpenShard>&& shard, std::uint64_t index) noexcept;

  // In the source file: for its own calls, which must cost none.
  [[nodiscard]] inline std::string_view bytes_of(std::size_t i) const noexcept;
  [[nodiscard]] inline std::optional<std::size_t> number_of(std::string_view field) const noexcept;
  [[nodiscard]] std::size_t require(std::string_view field) const;
  [[noreturn]] void throw_missing(std::string_view field) const;
  [[nodiscard]] std::string copy_of(std::size_t i) const;
  void require_unchanged_map(std::size_t i) const;
  [[noreturn]] void throw_unreadable(std::size_t i) const;

  detail::ShardPin* pin_ = nullptr;  // holds the shard; none in a Sample that was moved from
  const detail::OpenShard* shard_ = nullptr;
  std::shared_ptr<const detail::OwnBytes> own_;  // none: the shard is mapped
  const detail::MemberRecord* members_ = nullptr;
  std::uint64_t index_ = 0;
  std::uint32_t num_members_ = 0;
  std::uint32_t local_ = 0;
};

}  // namespace shardwise
