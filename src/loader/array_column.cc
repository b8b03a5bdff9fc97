#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error_types.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "decode/npy.h"
#include "decode/npz.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"
#include "loader/value_column.h"
#include "shardwise/loader/columns.h"

namespace shardwise::columns {
namespace {

using detail::ColumnMaker;
using detail::FieldChoice;
using detail::RowInput;
using detail::RowOutput;
using Layout = ColumnMaker::Layout;

/// NumPy's letter of a kind is the first letter of the type's name, e.g. 'u' for uint8.
DType dtype_of(const detail::NpyHeader& header) {
  const auto is_type = [&](DType dtype) {
    return to_string(dtype).front() == header.kind && size_of(dtype) == header.item_bytes;
  };
  auto dtype = DType::kBool;
  while (!is_type(dtype)) dtype = static_cast<DType>(static_cast<int>(dtype) + 1);
  return dtype;
}

class ArrayColumn final : public ColumnMaker {
 public:
  /// @param member  of .npz files; empty for .npy files.
  ArrayColumn(const std::string& fields, std::string member, DType dtype,
              const std::vector<std::int64_t>& shape)
      : ColumnMaker(dtype, shape.empty() ? Layout::kRagged : Layout::kFixed, shape),
        fields_(FieldChoice::readable(fields)),
        member_(std::move(member)) {}

  [[nodiscard]] std::string describe() const override {
    return (member_.empty() ? "npy " : "npz '" + escaped(member_) + "' of ") + fields_.describe();
  }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    const detail::FieldBytes field(input, place);
    std::string_view bytes = field.view();
    std::string unpacked;
    try {
      if (!member_.empty()) {
        bytes = unpacked = detail::read_npz(bytes, member_, input.max_expanded_bytes);
      }
      const detail::NpyHeader header = detail::parse_npy_header(bytes);
      if (dtype_of(header) != dtype()) {
        throw detail::DecodeFailure(
            "npy: the values are " + std::string(to_string(dtype_of(header))) +
            ", but the column's values are " + std::string(to_string(dtype())));
      }
      if (layout() == Layout::kFixed && !std::ranges::equal(header.shape, output.shape)) {
        throw detail::DecodeFailure("npy: the shape is " + detail::shape_text(header.shape) +
                                    ", but the column's rows have shape " +
                                    detail::shape_text(output.shape));
      }
      std::span<std::byte> to = output.slot;
      if (output.ragged != nullptr) to = output.ragged->resize(header.shape, header.item_bytes);
      detail::write_npy(header, bytes, to.data());
    } catch (const detail::DecodeFailure& failure) {
      detail::throw_bad_field(input.sample, place, "an array", failure.what());
    }
  }

 private:
  const FieldChoice fields_;
  const std::string member_;
};

}  // namespace
}  // namespace shardwise::columns

namespace shardwise {

Column detail::array_as_stored(const Sample& sample, std::size_t place) {
  const FieldBytes bytes(RowInput{.sample = sample, .position = {}}, place);
  try {
    return columns::array(std::string(sample.field(place).name),
                          columns::dtype_of(parse_npy_header(bytes.view())));
  } catch (const DecodeFailure& failure) {
    throw_bad_field(sample, place, "an array", failure.what());
  }
}

}  // namespace shardwise

namespace shardwise::columns {

Column array(const std::string& fields, DType dtype, std::vector<std::int64_t> shape) {
  if (detail::ValueFields from(fields); from.path) {
    std::string name = from.name();
    shape = detail::required_shape(std::move(shape), fields);
    return {std::move(name),
            detail::json_array(std::move(from), dtype, std::move(shape), std::nullopt)};
  }
  return {detail::first_name(fields),
          std::make_shared<ArrayColumn>(fields, "", dtype,
                                        detail::required_shape(std::move(shape), fields))};
}

Column npz(const std::string& fields, const std::string& array, DType dtype,
           std::vector<std::int64_t> shape) {
  if (array.empty()) {
    throw InvalidArgument("a column of .npz files needs the name of an array", in_quotes(fields),
                          "name an array of the file");
  }
  return {array, std::make_shared<ArrayColumn>(fields, array, dtype,
                                               detail::required_shape(std::move(shape), array))};
}

}  // namespace shardwise::columns
