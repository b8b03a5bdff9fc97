#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/error_types.h"
#include "base/text.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"
#include "shardwise/loader/columns.h"

namespace shardwise::columns {
namespace {

using detail::ColumnMaker;
using detail::FieldChoice;
using detail::RowInput;
using detail::RowOutput;
using Layout = ColumnMaker::Layout;

class FunctionColumn final : public ColumnMaker {
 public:
  FunctionColumn(std::string name, DType dtype, Layout layout, std::vector<std::int64_t> shape,
                 MakeRow make)
      : ColumnMaker(dtype, layout, std::move(shape)),
        name_(std::move(name)),
        make_(std::move(make)) {}

  [[nodiscard]] std::string describe() const override { return "function"; }
  [[nodiscard]] bool takes_long() const override { return true; }
  void make(const RowInput& input, RowOutput& output) const override {
    Row row = detail::RowBuffer::row(output);
    input.enter(detail::Stage::kFunctions);
    try {
      make_(input.sample, input.random(), row);
    } catch (const BadField& error) {
      throw BadField(with_place(error, input.sample));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(with_place(error, input.sample));
    }
    input.enter(detail::Stage::kReading);
  }

 private:
  [[nodiscard]] std::string with_place(const Error& error, const Sample& sample) const {
    const std::string text = error.what();
    const std::string where = sample.describe();
    const bool has_sample = text.find(where) != std::string::npos;
    return "column " + in_quotes(name_) + (has_sample ? "" : ", " + where) + ": " + text;
  }

  const std::string name_;
  const MakeRow make_;
};

class DecodedColumn final : public ColumnMaker {
 public:
  DecodedColumn(FieldChoice fields, DType dtype, Layout layout, std::vector<std::int64_t> shape,
                DecodeField decode)
      : ColumnMaker(dtype, layout, std::move(shape)),
        fields_(std::move(fields)),
        decode_(std::move(decode)) {}

  [[nodiscard]] std::string describe() const override { return "decoded " + fields_.describe(); }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    const detail::FieldBytes bytes(input, place);
    Row row = detail::RowBuffer::row(output);
    input.enter(detail::Stage::kFunctions);
    try {
      decode_(bytes.view(), input.random(), row);
    } catch (const BadField& error) {
      refuse(input.sample, place, error);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("the decoder of field " + in_quotes(input.sample.field(place).name) +
                            ", " + input.sample.describe() + ": " + error.what());
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      refuse(input.sample, place, error);
    }
    input.enter(detail::Stage::kReading);
  }

 private:
  [[noreturn]] static void refuse(const Sample& sample, std::size_t place,
                                  const std::exception& error) {
    detail::throw_bad_field(sample, place, "its decoder expects", error.what());
  }

  const FieldChoice fields_;
  const DecodeField decode_;
};

template <class Function>
Function required(Function make, const std::string& name) {
  if (make) return make;
  throw InvalidArgument("a column has no function", in_quotes(name), "give a function");
}

}  // namespace

Column function(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                MakeRow make) {
  return {name, std::make_shared<FunctionColumn>(name, dtype, Layout::kFixed,
                                                 detail::required_shape(std::move(shape), name),
                                                 required(std::move(make), name))};
}

Column ragged_function(const std::string& name, DType dtype, MakeRow make) {
  return {name, std::make_shared<FunctionColumn>(name, dtype, Layout::kRagged,
                                                 std::vector<std::int64_t>{},
                                                 required(std::move(make), name))};
}

Column decoded(const std::string& fields, DType dtype, std::vector<std::int64_t> shape,
               DecodeField decode) {
  return {detail::first_name(fields),
          std::make_shared<DecodedColumn>(FieldChoice::readable(fields), dtype, Layout::kFixed,
                                          detail::required_shape(std::move(shape), fields),
                                          required(std::move(decode), fields))};
}

Column ragged_decoded(const std::string& fields, DType dtype, DecodeField decode) {
  return {detail::first_name(fields),
          std::make_shared<DecodedColumn>(FieldChoice::readable(fields), dtype, Layout::kRagged,
                                          std::vector<std::int64_t>{},
                                          required(std::move(decode), fields))};
}

std::span<std::byte> Row::resize(std::span<const std::int64_t> shape) {
  if (ragged_ == nullptr) {
    throw InvalidArgument("the rows of this column already have a shape", {},
                          "use ragged_function() for rows of other shapes");
  }
  bytes_ = ragged_->resize(shape, size_of(dtype_));
  return bytes_;
}

}  // namespace shardwise::columns
