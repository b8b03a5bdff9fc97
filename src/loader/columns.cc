#include "shardwise/loader/columns.h"

#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/mapped_read.h"
#include "base/text.h"
#include "data/sample_access.h"
#include "data/sample_cursor.h"
#include "decode/decode_failure.h"
#include "decode/npy.h"
#include "decode/npz.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"

namespace shardwise::columns {
namespace {

using detail::ColumnMaker;
using detail::FieldChoice;
using detail::RowInput;
using detail::RowOutput;
using detail::RowSlots;
using Layout = ColumnMaker::Layout;

/// A choice of fields that a column looks into.
FieldChoice readable(const std::string& fields) {
  FieldChoice choice(fields);
  detail::refuse_pickles(choice);
  return choice;
}

/// Samples for which make_rows() keeps places.
constexpr std::size_t kMostRows = detail::SampleCursor::kMaxRun;

/// The fields of several samples, in place.
class FieldRun {
 public:
  /// Whether all of them have one, and are mapped.
  [[nodiscard]] bool find(std::span<const Sample> samples, const FieldChoice& fields) {
    if (samples.size() > kMostRows || fields.names().empty()) return false;
    detail::FieldPlace last;
    for (const Sample& sample : samples) {
      const auto place = detail::SampleAccess::find(sample, fields.names(), last);
      if (!place || !detail::SampleAccess::is_mapped(sample)) return false;
      fields_[size_++] = sample.field(*place).bytes;
    }
    return true;
  }
  [[nodiscard]] std::span<const std::string_view> fields() const noexcept {
    return {fields_.data(), size_};
  }
  /// Copies them to `to(i)`; false if one cannot be read.
  template <class To>
  [[nodiscard]] bool copy(To&& to) const {
    std::array<detail::MappedCopy, kMostRows> copies;
    for (std::size_t i = 0; i < size_; ++i)
      copies[i] = {to(i), fields_[i].data(), fields_[i].size()};
    return detail::copy_mapped(std::span(copies.data(), size_), detail::Look::kOnceATick);
  }

 private:
  std::array<std::string_view, kMostRows> fields_;
  std::size_t size_ = 0;
};

/// Bytes of a field, sized by the index; of one that may be compressed by its name ragged, but for
/// kAny, which gives it as it is.
class BytesColumn final : public ColumnMaker {
 public:
  enum class Content : std::uint8_t { kAny, kText, kJson };

  BytesColumn(FieldChoice fields, Content content)
      : ColumnMaker(DType::kUInt8, content != Content::kAny && detail::any_compressed(fields)
                                       ? Layout::kRagged
                                       : Layout::kSized),
        fields_(std::move(fields)),
        content_(content) {}

  [[nodiscard]] bool takes_long() const override { return layout() == Layout::kRagged; }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    std::span<std::byte> to = output.slot;
    if (layout() == Layout::kRagged) {
      const detail::FieldBytes bytes(input, place);
      to = resized(output, bytes.size());
      bytes.copy(to);
    } else {
      detail::SampleAccess::copy(input.sample, place, to);
      input.add_bytes(to.size());
    }
    if (is_good({reinterpret_cast<const char*>(to.data()), to.size()})) return;
    if (content_ == Content::kText) {
      detail::throw_bad_field(input.sample, place, "text", "it is not UTF-8");
    }
    detail::throw_bad_field(input.sample, place, "JSON", "it is not valid");
  }
  [[nodiscard]] bool makes_rows() const override { return layout() == Layout::kSized; }
  [[nodiscard]] bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                               std::size_t& bytes) const override {
    FieldRun run;
    if (!run.find(samples, fields_)) return false;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (run.fields()[i].size() != slots[i].size()) return false;
    }
    if (!run.copy([&](std::size_t i) { return slots[i].data(); })) return false;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::span<const std::byte> row = slots[i];
      if (!is_good({reinterpret_cast<const char*>(row.data()), row.size()})) return false;
      bytes += row.size();
    }
    return true;
  }

 private:
  static std::span<std::byte> resized(RowOutput& output, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    return output.ragged->resize(std::span(&count, 1), 1);
  }
  [[nodiscard]] bool is_good(std::string_view text) const {
    if (content_ == Content::kAny) return true;
    return content_ == Content::kText ? is_utf8(text) : nlohmann::json::accept(text);
  }

  const FieldChoice fields_;
  const Content content_;
};

class TokensColumn final : public ColumnMaker {
 public:
  TokensColumn(const std::string& fields, DType dtype)
      : ColumnMaker(required(dtype), Layout::kRagged), fields_(readable(fields)) {}

  [[nodiscard]] bool takes_long() const override { return detail::any_compressed(fields_); }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    const detail::FieldBytes bytes(input, place);
    const std::size_t size_bytes = bytes.size();
    const std::size_t value_bytes = size_of(dtype());
    if (size_bytes % value_bytes != 0) {
      detail::throw_bad_field(input.sample, place, "tokens",
                              "its " + std::to_string(size_bytes) + " bytes are no multiple of " +
                                  std::to_string(value_bytes) + ", the size of " +
                                  std::string(to_string(dtype())));
    }
    const auto count = static_cast<std::int64_t>(size_bytes / value_bytes);
    bytes.copy(output.ragged->resize(std::span(&count, 1), value_bytes));
  }

 private:
  static DType required(DType dtype) {
    if (dtype == DType::kUInt16 || dtype == DType::kInt32 || dtype == DType::kUInt32 ||
        dtype == DType::kInt64) {
      return dtype;
    }
    throw InvalidArgument("tokens cannot be of this type", to_string(dtype),
                          "choose uint16, int32, uint32 or int64");
  }

  const FieldChoice fields_;
};

class IntegerColumn final : public ColumnMaker {
 public:
  explicit IntegerColumn(const std::string& fields)
      : ColumnMaker(DType::kInt64, Layout::kFixed), fields_(readable(fields)) {}

  [[nodiscard]] bool takes_long() const override { return detail::any_compressed(fields_); }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::int64_t value = detail::integer_of(input, fields_.in(input.sample));
    std::memcpy(output.slot.data(), &value, sizeof value);
  }
  [[nodiscard]] bool makes_rows() const override { return !takes_long(); }
  [[nodiscard]] bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                               std::size_t& bytes) const override {
    constexpr std::size_t kMostDigits = 32;
    FieldRun run;
    if (!run.find(samples, fields_)) return false;
    for (const std::string_view field : run.fields()) {
      if (field.size() > kMostDigits) return false;
    }
    std::array<std::array<char, kMostDigits>, kMostRows> texts;
    if (!run.copy([&](std::size_t i) { return texts[i].data(); })) return false;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string_view text(texts[i].data(), run.fields()[i].size());
      const auto value = parse_int64(trimmed(text));
      if (!value) return false;
      std::memcpy(slots[i].data(), &*value, sizeof *value);
      bytes += text.size();
    }
    return true;
  }

 private:
  const FieldChoice fields_;
};

class KeyColumn final : public ColumnMaker {
 public:
  KeyColumn() : ColumnMaker(DType::kUInt8, Layout::kSized) {}

  void make(const RowInput& input, RowOutput& output) const override {
    const std::string_view key = input.sample.key();
    if (!key.empty()) std::memcpy(output.slot.data(), key.data(), key.size());
  }
  [[nodiscard]] bool makes_rows() const override { return true; }
  [[nodiscard]] bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                               std::size_t& /*bytes*/) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string_view key = samples[i].key();
      if (!key.empty()) std::memcpy(slots[i].data(), key.data(), key.size());
    }
    return true;
  }
};

DType dtype_of(const detail::NpyHeader& header) {
  switch (header.kind) {
    case 'b':
      return DType::kBool;
    case 'f':
      return header.item_bytes == 2   ? DType::kFloat16
             : header.item_bytes == 4 ? DType::kFloat32
                                      : DType::kFloat64;
    case 'c':
      return header.item_bytes == 8 ? DType::kComplex64 : DType::kComplex128;
    default:
      break;
  }
  const bool is_signed = header.kind == 'i';
  switch (header.item_bytes) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUInt8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUInt16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUInt32;
    default:
      return is_signed ? DType::kInt64 : DType::kUInt64;
  }
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t n : shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return "[" + text + "]";
}

class ArrayColumn final : public ColumnMaker {
 public:
  /// @param member  of .npz files; of .npy files empty.
  ArrayColumn(const std::string& fields, std::string member, DType dtype,
              std::vector<std::int64_t> shape)
      : ColumnMaker(dtype, shape.empty() ? Layout::kRagged : Layout::kFixed),
        fields_(readable(fields)),
        member_(std::move(member)),
        shape_(std::move(shape)) {}

  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override { return shape_; }
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
        throw detail::DecodeFailure("npy: its values are " +
                                    std::string(to_string(dtype_of(header))) +
                                    ", and the column's are " + std::string(to_string(dtype())));
      }
      if (!shape_.empty() && header.shape != shape_) {
        throw detail::DecodeFailure("npy: its shape is " + text_of(header.shape) +
                                    ", and that of the column's rows " + text_of(shape_));
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
  const std::vector<std::int64_t> shape_;
};

class FunctionColumn final : public ColumnMaker {
 public:
  FunctionColumn(std::string name, DType dtype, Layout layout, std::vector<std::int64_t> shape,
                 MakeRow make)
      : ColumnMaker(dtype, layout),
        name_(std::move(name)),
        shape_(std::move(shape)),
        make_(std::move(make)) {}

  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override { return shape_; }
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
  const std::vector<std::int64_t> shape_;
  const MakeRow make_;
};

class DecodedColumn final : public ColumnMaker {
 public:
  DecodedColumn(FieldChoice fields, DType dtype, Layout layout, std::vector<std::int64_t> shape,
                DecodeField decode)
      : ColumnMaker(dtype, layout),
        fields_(std::move(fields)),
        shape_(std::move(shape)),
        decode_(std::move(decode)) {}

  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override { return shape_; }
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
  const std::vector<std::int64_t> shape_;
  const DecodeField decode_;
};

/// "jpg" of "jpg;png".
std::string first_of(const std::string& fields) {
  return detail::FieldChoice(fields).names().front();
}

std::vector<std::int64_t> required(std::vector<std::int64_t> shape, const std::string& name) {
  for (const std::int64_t n : shape) {
    if (n >= 0) continue;
    throw InvalidArgument("a column's shape has a negative number",
                          in_quotes(name) + ": " + std::to_string(n),
                          "give the sizes of one row, each 0 or more");
  }
  return shape;
}

template <class Function>
Function required(Function make, const std::string& name) {
  if (make) return make;
  throw InvalidArgument("a column has no function", in_quotes(name), "give one");
}

}  // namespace

Column bytes(const std::string& fields) {
  return {first_of(fields),
          std::make_shared<BytesColumn>(FieldChoice(fields), BytesColumn::Content::kAny)};
}

Column text(const std::string& fields) {
  return {first_of(fields),
          std::make_shared<BytesColumn>(readable(fields), BytesColumn::Content::kText)};
}

Column json(const std::string& fields) {
  return {first_of(fields),
          std::make_shared<BytesColumn>(readable(fields), BytesColumn::Content::kJson)};
}

Column tokens(const std::string& fields, DType dtype) {
  return {first_of(fields), std::make_shared<TokensColumn>(fields, dtype)};
}

Column integer(const std::string& fields) {
  return {first_of(fields), std::make_shared<IntegerColumn>(fields)};
}

Column key(const std::string& name) { return {name, std::make_shared<KeyColumn>()}; }

Column array(const std::string& fields, DType dtype, std::vector<std::int64_t> shape) {
  return {first_of(fields),
          std::make_shared<ArrayColumn>(fields, "", dtype, required(std::move(shape), fields))};
}

Column npz(const std::string& fields, const std::string& array, DType dtype,
           std::vector<std::int64_t> shape) {
  if (array.empty()) {
    throw InvalidArgument("a column of .npz files needs the name of an array", in_quotes(fields),
                          "name one as it was saved");
  }
  return {array,
          std::make_shared<ArrayColumn>(fields, array, dtype, required(std::move(shape), array))};
}

Column function(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                MakeRow make) {
  return {name, std::make_shared<FunctionColumn>(name, dtype, Layout::kFixed,
                                                 required(std::move(shape), name),
                                                 required(std::move(make), name))};
}

Column ragged_function(const std::string& name, DType dtype, MakeRow make) {
  return {name, std::make_shared<FunctionColumn>(name, dtype, Layout::kRagged,
                                                 std::vector<std::int64_t>{},
                                                 required(std::move(make), name))};
}

Column decoded(const std::string& fields, DType dtype, std::vector<std::int64_t> shape,
               DecodeField decode) {
  return {first_of(fields), std::make_shared<DecodedColumn>(readable(fields), dtype, Layout::kFixed,
                                                            required(std::move(shape), fields),
                                                            required(std::move(decode), fields))};
}

Column ragged_decoded(const std::string& fields, DType dtype, DecodeField decode) {
  return {first_of(fields), std::make_shared<DecodedColumn>(
                                readable(fields), dtype, Layout::kRagged,
                                std::vector<std::int64_t>{}, required(std::move(decode), fields))};
}

std::span<std::byte> Row::resize(std::span<const std::int64_t> shape) {
  if (ragged_ == nullptr) {
    throw InvalidArgument("the rows of this column have a shape already", {},
                          "use ragged_function() for rows of other shapes");
  }
  bytes_ = ragged_->resize(shape, value_bytes_);
  return bytes_;
}

}  // namespace shardwise::columns
