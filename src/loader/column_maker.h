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
#include "shardwise/data/sample.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/order/sample_key.h"

namespace shardwise::detail {

/// What one row of all columns is made of.
struct RowInput {
  const Sample& sample;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  ///< of the sample, in the loader's data
  /// In the epoch, where a sample may come twice in one.
  std::optional<std::uint64_t> position;
  /// Of the thread, for what takes long; none: nobody counts.
  StageTimes* times = nullptr;
  /// What a compressed field may expand to.
  std::uint64_t max_expanded_bytes = std::uint64_t{1} << 30;

  /// The key of what is random about the row.
  [[nodiscard]] Hash128 random() const noexcept {
    return position ? sample_key(seed, epoch, number, *position) : sample_key(seed, epoch, number);
  }
  /// From now on the time belongs to this stage.
  void enter(Stage stage) const noexcept {
    if (times != nullptr) times->enter(stage);
  }
  /// What a decoder forgave an image of the sample.
  void forgive(const std::vector<std::string>& warnings) const {
    if (times == nullptr || warnings.empty()) return;
    times->add_forgiven({warnings, number, sample.describe()});
  }
  /// So many bytes of a field are read.
  void add_bytes(std::size_t bytes) const noexcept {
    if (times != nullptr) times->add_bytes(bytes);
  }
};

struct RowOutput;

/// The memory of one row of a ragged column, until all rows of its batch are made.
class SHARDWISE_EXPORT RowBuffer {
 public:
  /// Gives the row this shape. Errors: InvalidArgument if it has negative numbers, or one already.
  std::span<std::byte> resize(std::span<const std::int64_t> shape, std::size_t value_bytes);

  /// As a user's function sees it.
  [[nodiscard]] static columns::Row row(RowOutput& output) noexcept;

  /// Whether it was given one. A row without is empty, of as many dimensions as the others.
  [[nodiscard]] bool has_shape() const noexcept { return bytes_ != nullptr; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
  std::vector<std::int64_t> shape_;
};

/// Where a row is written.
struct RowOutput {
  std::span<std::byte> slot;    ///< its place in the batch; of kRagged columns empty
  RowBuffer* ragged = nullptr;  ///< of kRagged columns
  DType dtype = DType::kUInt8;
  std::span<const std::int64_t> shape;  ///< of the row; of kRagged and kSized columns empty
};

/// Where several rows are written, of a column whose rows' sizes are known.
struct RowSlots {
  std::byte* memory = nullptr;            ///< of the first row
  std::size_t row_bytes = 0;              ///< of each; not of kSized columns
  const std::int64_t* offsets = nullptr;  ///< of kSized columns: of these rows, and of their end

  [[nodiscard]] std::span<std::byte> operator[](std::size_t row) const noexcept {
    if (offsets == nullptr) return {memory + row * row_bytes, row_bytes};
    const auto begin = static_cast<std::size_t>(offsets[row] - offsets[0]);
    return {memory + begin, static_cast<std::size_t>(offsets[row + 1] - offsets[row])};
  }
};

/// Makes the rows of one column. Immutable; make() is called by several threads at once.
class SHARDWISE_EXPORT ColumnMaker {
 public:
  /// How large rows are.
  enum class Layout : std::uint8_t {
    kFixed,      ///< all as row_shape() says
    kLikeFirst,  ///< in each batch all as its first: as row_shape_of() says
    kSized,      ///< as many bytes as the index says of what fields() names
    kRagged,     ///< make() says
  };

  /// @param row_shape  of kFixed, where it is known beforehand.
  ColumnMaker(DType dtype, Layout layout, std::vector<std::int64_t> row_shape = {})
      : dtype_(dtype), layout_(layout), row_shape_(std::move(row_shape)) {}
  virtual ~ColumnMaker();

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Layout layout() const noexcept { return layout_; }

  /// What it makes, of which fields, and its options, but for type and shape: "integer 'cls'". All
  /// ranks must have the same.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Whether a row takes so long, some us, that the clock may be read for each.
  [[nodiscard]] virtual bool takes_long() const { return false; }
  /// Of kFixed.
  [[nodiscard]] virtual std::vector<std::int64_t> row_shape() const { return row_shape_; }
  /// Of kLikeFirst. Errors: as make().
  [[nodiscard]] virtual std::vector<std::int64_t> row_shape_of(const RowInput&) const { return {}; }
  /// The field that a row is made of. None: of kSized the key, else perhaps several, or any.
  [[nodiscard]] virtual const FieldChoice* fields() const { return nullptr; }
  /// Whether a row needs only some parts of its field, as a clip of a video does: then it is not
  /// read ahead.
  [[nodiscard]] virtual bool reads_parts() const { return false; }

  /// Of images: where the channels are.
  [[nodiscard]] virtual std::optional<ImageTransform::Layout> image_layout() const {
    return std::nullopt;
  }

  /// Writes a row.
  /// Errors: NotFound, BadField, Unsupported if the sample is bad.
  virtual void make(const RowInput& input, RowOutput& output) const = 0;

  /// Whether make_rows() can do it.
  [[nodiscard]] virtual bool makes_rows() const { return false; }
  /// Writes the rows of several samples, for less than make() one by one; of all but kRagged.
  /// @param bytes  is raised by those of fields that were read.
  /// @return  false if one of them cannot be made: make() is to say why.
  [[nodiscard]] virtual bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                                       std::size_t& bytes) const {
    static_cast<void>(samples), static_cast<void>(slots), static_cast<void>(bytes);
    return false;
  }

 private:
  const DType dtype_;
  const Layout layout_;
  const std::vector<std::int64_t> row_shape_;
};

/// The shape of the rows of the column `name`. Errors: InvalidArgument if a number is negative.
[[nodiscard]] std::vector<std::int64_t> required_shape(std::vector<std::int64_t> shape,
                                                       const std::string& name);

}  // namespace shardwise::detail
