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
class HeldShards;
struct JoinedSample;
struct MemberRecord;
struct OpenShard;
struct OwnBytes;
struct SampleAccess;
class SampleCursor;
struct ShardPin;
template <class Shard>
class ShardHandle;
}  // namespace detail

/// One sample, read in place: its fields are views into the mapped shard. With
/// Dataset::Access::kRead they are views into a copy that the sample owns.
///
/// A sample of a join (Dataset::join) has the fields of the first dataset, then those of the
/// others. Its key, numbers and shard are those of the first dataset.
///
/// Threads: immutable; safe from any thread.
/// Lifetime: a Sample shares ownership of the index and of its shard's mapping or its bytes. Its
///   views stay valid while it or a copy of it lives, even if the shard is evicted or closed. Views
///   of a temporary Sample do not compile: `data[42]["jpg"]`.
/// Cost: copying costs a reference count; in a join, also an allocation per joined dataset.
/// Caution: if a mapped shard is truncated in place, reading a view raises SIGBUS. copy() and
///   integer() throw instead. With Dataset::Access::kRead, Dataset::operator[] throws instead.
class SHARDWISE_EXPORT Sample {
 public:
  /// One field of a sample: its name and its bytes.
  struct Field {
    std::string_view name;
    std::string_view bytes;
  };

  ~Sample();
  Sample(const Sample&);
  Sample(Sample&&) noexcept;
  Sample& operator=(Sample) noexcept;

  /// The sample's number in its dataset.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }
  /// The sample's number in the index. It differs from index() only in a view.
  [[nodiscard]] std::uint64_t number_in_index() const noexcept;

  [[nodiscard]] std::string_view key() const& noexcept;
  std::string_view key() const&& = delete;  // keep the Sample

  [[nodiscard]] std::size_t num_fields() const noexcept {
    return joined_ == nullptr ? num_members_ : num_all_fields();
  }
  /// The `i`-th field in archive order. REQUIRES: i < num_fields().
  [[nodiscard]] Field field(std::size_t i) const& noexcept;
  Field field(std::size_t i) const&& = delete;  // keep the Sample

  /// The bytes of a field. Errors: NotFound; the text lists the sample's fields.
  [[nodiscard]] std::string_view operator[](std::string_view field) const&;
  std::string_view operator[](std::string_view field) const&& = delete;  // keep the Sample

  /// The bytes of a field, or nothing if the sample has no field of that name.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view field) const& noexcept;
  std::optional<std::string_view> find(std::string_view field) const&& = delete;  // keep the Sample

  [[nodiscard]] bool contains(std::string_view field) const noexcept;

  /// Parses a field that contains a decimal number, optionally surrounded by blanks, e.g.
  /// WebDataset's cls and index.
  /// Errors: NotFound. BadField. StaleIndex and kIo as in copy().
  [[nodiscard]] std::int64_t integer(std::string_view field) const;
  /// Returns a copy of a field. Use it if the bytes must outlive the sample, or if the shard may
  /// change during the run.
  /// Errors: NotFound. StaleIndex if the mapped file was written to since it was opened. kIo if it
  ///   cannot be read. Replacing the file by rename(2) is not an error, but later writes to the
  ///   replaced file, which stays mapped, are not detected.
  /// Cost: the copy, and a stat(2) if the shard is mapped.
  [[nodiscard]] std::string copy(std::string_view field) const;

  /// A description for error texts: "sample 42 ('dir/000042') in shard 'train-000000.tar'".
  [[nodiscard]] std::string describe() const;
  /// The path of the shard that contains the sample.
  [[nodiscard]] const std::string& shard_path() const& noexcept;
  const std::string& shard_path() const&& = delete;  // keep the Sample

 private:
  friend class Dataset;
  friend class detail::HeldShards;
  friend struct detail::JoinedSample;
  friend struct detail::SampleAccess;
  friend class detail::SampleCursor;
  Sample() noexcept = default;  // a moved-from sample
  Sample(detail::ShardHandle<detail::OpenShard>&& shard, std::uint64_t index) noexcept;

  /// The place of a field: the sample that owns it, and its number among that sample's members.
  struct Place {
    const Sample* sample;
    std::size_t member;
  };

  [[nodiscard]] std::size_t num_all_fields() const noexcept;
  // Defined in the source file, so that calls there are inlined.
  [[nodiscard]] inline Place place_of(std::size_t i) const noexcept;
  [[nodiscard]] inline std::string_view bytes_of(std::size_t member) const noexcept;
  [[nodiscard]] inline std::optional<std::size_t> number_of(std::string_view field) const noexcept;
  [[nodiscard]] Place joined_place(std::size_t i) const noexcept;
  [[nodiscard]] Field joined_field(std::size_t i) const noexcept;
  [[nodiscard]] std::optional<std::size_t> joined_number(std::string_view field) const noexcept;
  [[nodiscard]] std::int64_t integer_of(std::size_t member, std::string_view field) const;
  [[nodiscard]] std::size_t require(std::string_view field) const;
  [[noreturn]] void throw_missing(std::string_view field) const;
  [[nodiscard]] std::string copy_of(std::size_t i) const;
  void require_unchanged_map(std::size_t member) const;
  [[noreturn]] void throw_unreadable(std::size_t member) const;

  detail::ShardPin* pin_ = nullptr;  // pins the shard; null in a moved-from Sample
  const detail::OpenShard* shard_ = nullptr;
  std::shared_ptr<const detail::OwnBytes> own_;  // null if the shard is mapped
  const detail::MemberRecord* members_ = nullptr;
  detail::JoinedSample* joined_ = nullptr;  // owned; null if no dataset is joined
  std::uint64_t index_ = 0;
  std::uint32_t num_members_ = 0;
  std::uint32_t local_ = 0;
};

}  // namespace shardwise
