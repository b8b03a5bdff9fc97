#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/field_choice.h"
#include "loader/stage_times.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/data/sample.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/order/sample_key.h"

namespace shardwise::detail {

/// The input from which a row is made; the same for all columns.
struct RowInput {
  const Sample& sample;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  ///< number of the sample in the loader's data
  /// Position in the epoch. Set only if an epoch may contain a sample more than once.
  std::optional<std::uint64_t> position;
  /// Stage times of the thread; nullptr if they are not measured.
  StageTimes* times = nullptr;
  /// Limit for the bytes of a field after decompression.
  std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;

  /// Returns the key of the row's random draws.
  [[nodiscard]] Hash128 random() const noexcept {
    return position ? sample_key(seed, epoch, number, *position) : sample_key(seed, epoch, number);
  }
  /// Ends the current stage and begins `stage`, for the statistics.
  void enter(Stage stage) const noexcept {
    if (times != nullptr) times->enter(stage);
  }
  /// Records the defects that a decoder tolerated in an image of the sample.
  void forgive(const std::vector<std::string>& warnings) const {
    if (times == nullptr || warnings.empty()) return;
    times->add_forgiven({warnings, number, sample.describe()});
  }
  /// Adds to the statistics of bytes read from fields.
  void add_bytes(std::size_t bytes) const noexcept {
    if (times != nullptr) times->add_bytes(bytes);
  }
};

struct RowOutput;

/// The memory of one row of a ragged column, until all rows of its batch are made.
class SHARDWISE_EXPORT RowBuffer {
 public:
  /// Allocates a row of this shape. Errors: InvalidArgument if a size is negative, if the row
  /// already has a shape, or if memory does not suffice.
  std::span<std::byte> resize(std::span<const std::int64_t> shape, std::size_t value_bytes);

  /// Returns the row that a user's function sees.
  [[nodiscard]] static columns::Row row(RowOutput& output) noexcept;

  /// True after resize(). A row without a shape is empty, and gets as many dimensions as the other
  /// rows.
  [[nodiscard]] bool has_shape() const noexcept { return bytes_ != nullptr; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
  std::vector<std::int64_t> shape_;
};

/// The destination of a row.
struct RowOutput {
  std::span<std::byte> slot;    ///< the row's bytes in the batch; empty for kRagged columns
  RowBuffer* ragged = nullptr;  ///< kRagged columns only
  DType dtype = DType::kUInt8;
  std::span<const std::int64_t> shape;  ///< shape of the row; empty for kRagged and kSized columns
};

/// The destination of consecutive rows, for a column whose row sizes are known.
struct RowSlots {
  std::byte* memory = nullptr;            ///< start of the first row
  std::size_t row_bytes = 0;              ///< bytes of each row; unused for kSized columns
  const std::int64_t* offsets = nullptr;  ///< kSized columns only: start of each of these rows, and
                                          ///< the end of the last

  [[nodiscard]] std::span<std::byte> operator[](std::size_t row) const noexcept {
    if (offsets == nullptr) return {memory + row * row_bytes, row_bytes};
    const auto begin = static_cast<std::size_t>(offsets[row] - offsets[0]);
    return {memory + begin, static_cast<std::size_t>(offsets[row + 1] - offsets[row])};
  }
};

/// Makes the rows of one column. Immutable; several threads call make() concurrently.
class SHARDWISE_EXPORT ColumnMaker {
 public:
  /// How the size of a row is determined.
  enum class Layout : std::uint8_t {
    kFixed,      ///< every row has the shape row_shape()
    kLikeFirst,  ///< every row of a batch has the row_shape_of() of the batch's first good sample
    kSized,   ///< a row has the bytes of the field that fields() names; the index records its size
    kRagged,  ///< make() decides the shape of each row
  };

  /// @param row_shape  kFixed columns only, if known at construction.
  ColumnMaker(DType dtype, Layout layout, std::vector<std::int64_t> row_shape = {})
      : dtype_(dtype), layout_(layout), row_shape_(std::move(row_shape)) {}
  virtual ~ColumnMaker();

  /// The kind of the values in a row.
  enum class Content : std::uint8_t {
    kValues,
    kBytes,  ///< bytes of any kind
    kText,   ///< text in UTF-8; keys of samples may have other bytes
    kJson    ///< one valid JSON value
  };

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Layout layout() const noexcept { return layout_; }

  /// Describes the column: its kind, its fields and its options, but not type and shape, e.g.
  /// "integer 'cls'". The text must be the same on all ranks.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Whether a row takes several us or more, so that reading the clock for each row costs little.
  [[nodiscard]] virtual bool takes_long() const { return false; }
  [[nodiscard]] virtual Content content() const { return Content::kValues; }
  /// The shape of every row; kFixed only.
  [[nodiscard]] virtual std::vector<std::int64_t> row_shape() const { return row_shape_; }
  /// The shape of the sample's row; kLikeFirst only. Errors: those of make().
  [[nodiscard]] virtual std::vector<std::int64_t> row_shape_of(const RowInput&) const { return {}; }
  /// Returns the fields from which a row is made. For a kSized column, nullptr means that a row is
  /// the sample's key. For other columns, nullptr means that a row may depend on any fields.
  [[nodiscard]] virtual const FieldChoice* fields() const { return nullptr; }
  /// Whether a row needs fields as a whole. The loader does not read ahead for columns that need
  /// only parts of a field, e.g. a clip of a video, or no field. A column that needs parts names
  /// the fields by fields(), and must be able to read them by SampleAccess::open_field().
  [[nodiscard]] virtual bool reads_whole_fields() const { return true; }
  /// Checks that rows can be made from the samples of this data, without reading a sample.
  /// Errors: NotFound or Unsupported, e.g. if the index has no such metadata column.
  virtual void require_data(const MixedDataset&) const {}

  /// Returns the place of the channels for image columns, and nothing for others.
  [[nodiscard]] virtual std::optional<ImageTransform::Layout> image_layout() const {
    return std::nullopt;
  }

  /// Whether rows have a size that depends on the batch's group; of_size() then makes their column.
  [[nodiscard]] virtual bool has_size_by_group() const { return false; }
  /// Returns the maker for a group's size. REQUIRES: has_size_by_group().
  /// Errors: InvalidArgument if the size is impossible.
  [[nodiscard]] virtual std::shared_ptr<const ColumnMaker> of_size(
      const ImageTransform::Size&) const {
    return nullptr;
  }

  /// Writes a row.
  /// Errors: NotFound, BadField or Unsupported if the sample is bad.
  virtual void make(const RowInput& input, RowOutput& output) const = 0;

  /// Whether make_rows() is implemented.
  [[nodiscard]] virtual bool makes_rows() const { return false; }
  /// Writes the rows of several samples, faster than calls of make(). Not for kRagged columns.
  /// @param bytes  increased by the size of the fields that were read.
  /// @return  false if a row cannot be made; make() then reports the error.
  [[nodiscard]] virtual bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                                       std::size_t& bytes) const {
    static_cast<void>(samples), static_cast<void>(slots), static_cast<void>(bytes);
    return false;
  }

  /// Whether make_from_fields() is implemented. A row then depends only on the stored bytes of one
  /// field: the first of fields() that the sample has. The loader needs no Sample for the row.
  [[nodiscard]] virtual bool makes_from_fields() const { return false; }
  /// Like make_rows(), but gets the bytes of the samples' fields in mapped shards: at most
  /// FieldCursor::kMaxRun fields. An implementation reads them with copy_mapped().
  [[nodiscard]] virtual bool make_from_fields(std::span<const std::string_view> fields,
                                              const RowSlots& slots) const {
    static_cast<void>(fields), static_cast<void>(slots);
    return false;
  }

 private:
  const DType dtype_;
  const Layout layout_;
  const std::vector<std::int64_t> row_shape_;
};

/// Makes the rows of one sample, as a batch of one row.
/// Errors: those of ColumnMaker::make().
[[nodiscard]] SHARDWISE_EXPORT Batch make_row(const RowInput& input,
                                              std::span<const Column> columns);

/// Checks `shape`, the row shape of the column `name`, and returns it unchanged. Errors:
/// InvalidArgument if a size is negative.
[[nodiscard]] std::vector<std::int64_t> required_shape(std::vector<std::int64_t> shape,
                                                       const std::string& name);

}  // namespace shardwise::detail
