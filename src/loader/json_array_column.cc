#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/error_types.h"
#include "base/json.h"
#include "loader/value_column.h"

namespace shardwise::detail {
namespace {

using Token = JsonReader::Token;

/// Calls use(T{}) with the type T of values of a column. Returns false for a type that JSON numbers
/// cannot have.
template <class Use>
bool with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kUInt8:
      return use(std::uint8_t{}), true;
    case DType::kInt8:
      return use(std::int8_t{}), true;
    case DType::kUInt16:
      return use(std::uint16_t{}), true;
    case DType::kInt16:
      return use(std::int16_t{}), true;
    case DType::kUInt32:
      return use(std::uint32_t{}), true;
    case DType::kInt32:
      return use(std::int32_t{}), true;
    case DType::kUInt64:
      return use(std::uint64_t{}), true;
    case DType::kInt64:
      return use(std::int64_t{}), true;
    case DType::kFloat32:
      return use(float{}), true;
    case DType::kFloat64:
      return use(double{}), true;
    default:
      return false;
  }
}

/// The numbers of nested JSON arrays, and their shape.
class Numbers {
 public:
  /// A reason why an array cannot be a row.
  struct Fault {
    std::string reason;
  };

  /// Errors: Fault.
  Numbers(std::string_view json, DType dtype) : reader_(json), dtype_(dtype) {
    const Token token = reader_.next();
    if (token != Token::kArray) throw Fault{shown_json(json)};
    read(token, 0);
    if (rank_ && *rank_ != shape_.size()) throw Fault{"it mixes arrays and numbers"};
  }

  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  void read(Token token, std::size_t depth) {
    if (token != Token::kArray) return read_number(token, depth);
    if (rank_ && depth >= *rank_) throw Fault{"it mixes arrays and numbers"};
    std::int64_t size = 0;
    for (Token next = reader_.next(); next != Token::kEndOfArray; next = reader_.next()) {
      read(next, depth + 1);
      ++size;
    }
    if (shape_.size() <= depth) shape_.resize(depth + 1, -1);
    if (shape_[depth] == -1) shape_[depth] = size;
    if (shape_[depth] != size) throw Fault{"its arrays differ in length"};
  }

  void read_number(Token token, std::size_t depth) {
    if (rank_.value_or(depth) != depth) throw Fault{"it mixes arrays and numbers"};
    rank_ = depth;
    with_type(dtype_, [&]<class T>(T) {
      const auto value = number<T>(token);
      if (!value) {
        throw Fault{"it contains " + std::string(reader_.token()) + ", which is not " +
                    std::string(to_string(dtype_))};
      }
      bytes_.append(reinterpret_cast<const char*>(&*value), sizeof *value);
    });
  }

  template <class T>
  std::optional<T> number(Token token) const {
    if (token != Token::kNumber) return std::nullopt;
    if constexpr (std::is_floating_point_v<T>) {
      if (std::abs(reader_.real()) > double{std::numeric_limits<T>::max()}) return std::nullopt;
      return static_cast<T>(reader_.real());
    } else if constexpr (std::is_unsigned_v<T>) {
      const auto value = reader_.whole();
      if (!value || *value > std::numeric_limits<T>::max()) return std::nullopt;
      return static_cast<T>(*value);
    } else {
      const auto value = reader_.integer();
      using Limits = std::numeric_limits<T>;
      if (!value || *value < Limits::min() || *value > Limits::max()) return std::nullopt;
      return static_cast<T>(*value);
    }
  }

  JsonReader reader_;
  const DType dtype_;
  std::optional<std::size_t> rank_;  // depth of the numbers, if there are any
  std::vector<std::int64_t> shape_;  // -1 means unknown
  std::string bytes_;
};

class JsonArrayColumn final : public ColumnMaker {
 public:
  JsonArrayColumn(ValueFields fields, DType dtype, std::vector<std::int64_t> shape,
                  std::optional<std::size_t> rank)
      : ColumnMaker(dtype, shape.empty() ? Layout::kRagged : Layout::kFixed, shape),
        from_(std::move(fields)),
        rank_(rank) {}

  [[nodiscard]] std::string describe() const override {
    return (rank_ ? "tokens " : "array ") + from_.describe();
  }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] const FieldChoice* fields() const override { return &from_.fields; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = from_.fields.in(input.sample);
    std::string json;
    const auto found = from_.find(input, place, json);
    if (!found) from_.throw_no_value(input.sample, place);
    try {
      write(Numbers(*found, dtype()), output);
    } catch (const Numbers::Fault& fault) {
      from_.refuse(input.sample, place, "an array", fault.reason);
    }
  }

 private:
  void write(const Numbers& numbers, RowOutput& output) const {
    const std::vector<std::int64_t>& shape = numbers.shape();
    std::span<std::byte> to = output.slot;
    if (layout() == Layout::kFixed) {
      if (!std::ranges::equal(shape, output.shape)) {
        throw Numbers::Fault{"its shape is " + shape_text(shape) +
                             ", but the column's rows have shape " + shape_text(output.shape)};
      }
    } else if (rank_ && shape.size() != *rank_) {
      throw Numbers::Fault{"its shape is " + shape_text(shape) +
                           ", but tokens must be one list of numbers"};
    } else if (numbers.bytes().empty()) {
      return;  // an empty row has the same number of dimensions as the other rows
    } else {
      to = output.ragged->resize(shape, size_of(dtype()));
    }
    if (!numbers.bytes().empty()) {
      std::memcpy(to.data(), numbers.bytes().data(), numbers.bytes().size());
    }
  }

  const ValueFields from_;
  const std::optional<std::size_t> rank_;
};

}  // namespace

std::shared_ptr<const ColumnMaker> json_array(ValueFields fields, DType dtype,
                                              std::vector<std::int64_t> shape,
                                              std::optional<std::size_t> rank) {
  if (!with_type(dtype, [](auto) {})) {
    throw InvalidArgument("JSON has no arrays of this type", to_string(dtype),
                          "choose an integer type, float32 or float64");
  }
  return std::make_shared<JsonArrayColumn>(std::move(fields), dtype, std::move(shape), rank);
}

}  // namespace shardwise::detail
