#include "columns.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "errors.h"
#include "field_names.h"
#include "loader/column_maker.h"
#include "objects.h"
#include "options.h"
#include "orders.h"
#include "raised.h"
#include "row_values.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

using detail::ColumnMaker;
using detail::RowBuffer;
using detail::RowInput;
using detail::RowOutput;
using Shape = std::optional<std::vector<std::int64_t>>;

ColumnObject& held_by(PyObject* self) { return held_in<ColumnObject>(self); }

/// Adds a line that Python shows below an exception's traceback.
void note(const RaisedInPython& error, const std::string& place) {
  const Gil gil;
  try {
    error.add_note(place);
  } catch (nb::python_error&) {  // raise it without the note if it accepts none
  }
}

/// Returns a row's random key as one Python int of 128 bits.
nb::object whole_number(const Hash128& key) {
  const nb::object high = nb::int_(key.high);
  return (high << nb::int_(64)) | nb::int_(key.low);
}

/// A column whose rows a Python function makes.
class PythonColumn final : public ColumnMaker {
 public:
  /// @param function  owned by the ColumnObject, which outlives the loader.
  /// @param parts     null until the column belongs to a loader.
  PythonColumn(std::string name, RowType type, PyObject* function,
               std::shared_ptr<const Parts> parts)
      : ColumnMaker(type.dtype, type.shape ? Layout::kFixed : Layout::kRagged,
                    type.shape.value_or(std::vector<std::int64_t>{})),
        name_(std::move(name)),
        type_(std::move(type)),
        function_(function),
        parts_(std::move(parts)) {}

  [[nodiscard]] std::shared_ptr<const PythonColumn> over(const Parts& parts) const {
    return std::make_shared<PythonColumn>(name_, type_, function_,
                                          std::make_shared<const Parts>(parts));
  }

  [[nodiscard]] std::string describe() const override { return "function"; }
  [[nodiscard]] bool takes_long() const override { return true; }
  void make(const RowInput& input, RowOutput& output) const override {
    columns::Row row = RowBuffer::row(output);
    input.enter(detail::Stage::kFunctions);
    try {
      in_python([&] { call(input, row); });
    } catch (const RaisedInPython& error) {
      note(error, "in the function of " + place(input.sample));
      throw;
    } catch (const BadField& error) {
      throw BadField(with_place(error, input.sample));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(with_place(error, input.sample));
    }
    input.enter(detail::Stage::kReading);
  }

 private:
  void call(const RowInput& input, columns::Row& row) const {
    PyObject* const dataset = parts_->datasets[parts_->data.part_of(input.number)];
    std::optional<std::uint64_t> number;
    if (parts_->data.num_parts() > 1) number = input.number;
    const nb::object sample = nb::steal(new_sample(Sample(input.sample), dataset, number));
    if (!sample.is_valid()) nb::raise_python_error();
    write_row(nb::handle(function_)(sample, whole_number(input.random())), type_, row);
  }

  [[nodiscard]] std::string place(const Sample& sample) const {
    return "column " + in_quotes(name_) + ", " + sample.describe();
  }
  [[nodiscard]] std::string with_place(const Error& error, const Sample& sample) const {
    return place(sample) + ": " + error.what();
  }

  const std::string name_;
  const RowType type_;
  PyObject* const function_;
  const std::shared_ptr<const Parts> parts_;
};

ColumnObject function_column(const NameArgument& given, const std::string& dtype, Shape shape,
                             nb::object function) {
  const std::string& name = given.bytes;
  RowType type{parse_dtype(dtype), std::move(shape)};
  // Call this for its check: it throws if a number of the shape is negative.
  if (type.shape) columns::function(name, type.dtype, *type.shape, [](auto&&...) {});
  PyObject* const called = function.ptr();
  return {Column(name, std::make_shared<PythonColumn>(name, std::move(type), called, nullptr)),
          std::move(function)};
}

/// Returns a decoder that calls a Python function. An exception of the function marks the sample as
/// bad, except if RaisedInPython::is_bad_value() is false.
columns::DecodeField decoder(PyObject* function, RowType type) {
  return [function, type = std::move(type)](std::string_view bytes, const Hash128& random,
                                            columns::Row& row) {
    try {
      in_python([&] {
        const nb::bytes copy(bytes.data(), bytes.size());
        write_row(nb::handle(function)(copy, whole_number(random)), type, row);
      });
    } catch (const RaisedInPython& error) {
      if (error.code() == ErrorCode::kBadField) throw BadField(error.what());
      if (!error.is_bad_value()) throw;
      throw std::runtime_error(error.what());
    }
  };
}

/// A decoded column. If an exception of its decoder ends the epoch, it gets a note with the names
/// of the field and the sample.
class NotedColumn final : public ColumnMaker {
 public:
  explicit NotedColumn(std::shared_ptr<const ColumnMaker> decoded)
      : ColumnMaker(decoded->dtype(), decoded->layout(), decoded->row_shape()),
        decoded_(std::move(decoded)) {}

  [[nodiscard]] std::string describe() const override { return decoded_->describe(); }
  [[nodiscard]] bool takes_long() const override { return decoded_->takes_long(); }
  [[nodiscard]] const detail::FieldChoice* fields() const override { return decoded_->fields(); }
  void make(const RowInput& input, RowOutput& output) const override {
    try {
      decoded_->make(input, output);
    } catch (const RaisedInPython& error) {
      const std::size_t field = fields()->in(input.sample);
      note(error, "in the decoder of field " + in_quotes(input.sample.field(field).name) + ", " +
                      input.sample.describe());
      throw;
    }
  }

 private:
  const std::shared_ptr<const ColumnMaker> decoded_;
};

ColumnObject decoded_column(const NameArgument& given, const std::string& dtype, Shape shape,
                            nb::object function) {
  const std::string& fields = given.bytes;
  const RowType type{parse_dtype(dtype), shape};
  auto decode = decoder(function.ptr(), type);
  const Column column = shape ? columns::decoded(fields, type.dtype, *shape, std::move(decode))
                              : columns::ragged_decoded(fields, type.dtype, std::move(decode));
  return {Column(column.name(), std::make_shared<NotedColumn>(column.maker())),
          std::move(function)};
}

ColumnObject plain(Column column) { return {std::move(column), nb::none()}; }

using MissingText = std::optional<std::string>;
using MissingInteger = std::optional<std::int64_t>;
using MissingNumber = std::optional<double>;

/// @param missing  the value for samples that lack one; None if such samples are bad.
ColumnObject column_of_kind(const std::string& kind, const NameArgument& given,
                            nb::handle missing) {
  const std::string& fields = given.bytes;
  if (kind == "text") return plain(columns::text(fields, nb::cast<MissingText>(missing)));
  if (kind == "json") return plain(columns::json(fields, nb::cast<MissingText>(missing)));
  if (kind == "integer") return plain(columns::integer(fields, nb::cast<MissingInteger>(missing)));
  if (kind == "number") return plain(columns::number(fields, nb::cast<MissingNumber>(missing)));
  return plain(kind == "bytes" ? columns::bytes(fields) : columns::key(fields));
}

ColumnObject metadata_column(const std::string& kind, const std::string& column,
                             nb::handle missing) {
  if (kind == "text") {
    return plain(columns::metadata<std::string>(column, nb::cast<MissingText>(missing)));
  }
  if (kind == "number") {
    return plain(columns::metadata<double>(column, nb::cast<MissingNumber>(missing)));
  }
  return plain(columns::metadata(column, nb::cast<MissingInteger>(missing)));
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(held_by(self).function.ptr());
  Py_VISIT(held_by(self).made_from.ptr());
  return 0;
}

// No tp_clear, since a loader's threads may still call the function. Clearing the function's own
// references breaks a cycle. If the cycle contains a loader, the loader ends its threads first.
PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {0, nullptr},
};

}  // namespace

Parts parts_over(const nb::tuple& datasets) {
  Parts all{mixed_dataset(datasets), {}};
  for (const nb::handle part : datasets) all.datasets.push_back(part.ptr());
  return all;
}

std::vector<Column> columns_over(nb::handle columns, const Parts& parts) {
  std::vector<Column> all;
  for (const nb::handle given : columns) {
    const ColumnObject* object = nullptr;
    if (!nb::try_cast(given, object) || object == nullptr) {
      throw nb::type_error(
          "columns= has an entry that is not a column; make columns by the functions of "
          "shardwise.columns");
    }
    const Column& column = object->column;
    const auto* const own = dynamic_cast<const PythonColumn*>(column.maker().get());
    all.push_back(own == nullptr ? column : Column(column.name(), own->over(parts)));
  }
  return all;
}

void add_columns(nb::module_& module) {
  nb::class_<ColumnObject>(module, "Column", nb::type_slots(slots), nb::is_final(),
                           "An array of each batch, with one row per sample. The functions of "
                           "shardwise.columns make columns. Immutable.")
      .def_prop_ro(
          "name", [](const ColumnObject& self) { return name_object(self.column.name()); },
          nb::sig("def name(self) -> str"), "Name of the array in a batch.")
      .def(
          "named",
          [](const ColumnObject& self, const NameArgument& name) {
            return ColumnObject{self.column.named(name.bytes), self.function, self.made_from};
          },
          "name"_a, "This column under another name.")
      .def(
          "_made_from",
          [](const ColumnObject& self, nb::tuple how) {
            return ColumnObject{self.column, self.function, std::move(how)};
          },
          "how"_a)
      .def(
          "__reduce__",
          [](const ColumnObject& self) {
            return nb::make_tuple(nb::module_::import_("shardwise.columns").attr("made_again"),
                                  nb::make_tuple(self.made_from, name_object(self.column.name())));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def_prop_ro(
          "dtype",
          [](const ColumnObject& self) {
            return std::string(to_string(self.column.maker()->dtype()));
          },
          "Type of its values, named as in NumPy, or \"bfloat16\".")
      .def("__repr__", [](const ColumnObject& self) {
        return "<shardwise.columns.Column " + in_quotes(self.column.name()) + " of " +
               std::string(to_string(self.column.maker()->dtype())) + ">";
      });

  module.def("column_of_kind", &column_of_kind, "kind"_a, "fields"_a, "missing"_a.none());
  module.def("metadata_column", &metadata_column, "kind"_a, "column"_a, "missing"_a.none());
  module.def(
      "tokens_column",
      [](const NameArgument& fields, const std::string& dtype) {
        return plain(columns::tokens(fields.bytes, parse_dtype(dtype)));
      },
      "fields"_a, "dtype"_a);
  module.def(
      "array_column",
      [](const NameArgument& fields, const std::string& dtype, std::vector<std::int64_t> shape) {
        return plain(columns::array(fields.bytes, parse_dtype(dtype), std::move(shape)));
      },
      "fields"_a, "dtype"_a, "shape"_a);
  module.def(
      "npz_column",
      [](const NameArgument& fields, const NameArgument& array, const std::string& dtype,
         std::vector<std::int64_t> shape) {
        return plain(columns::npz(fields.bytes, array.bytes, parse_dtype(dtype), std::move(shape)));
      },
      "fields"_a, "array"_a, "dtype"_a, "shape"_a);
  module.def(
      "image_column",
      [](const NameArgument& fields, nb::handle transform, nb::handle decoding) {
        return plain(
            columns::image(fields.bytes, image_transform(transform), image_decoding(decoding)));
      },
      "fields"_a, "transform"_a, "decoding"_a);
  module.def("function_column", &function_column, "name"_a, "dtype"_a, "shape"_a.none(),
             "function"_a);
  module.def("decoded_column", &decoded_column, "fields"_a, "dtype"_a, "shape"_a.none(),
             "function"_a);
}

}  // namespace shardwise::python
