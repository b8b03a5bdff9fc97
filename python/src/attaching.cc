#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "blocking.h"
#include "field_names.h"
#include "ingest/side_table_writer.h"
#include "objects.h"
#include "shardwise/base/error.h"
#include "shardwise/ingest/attach.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

nb::object report_of(const SideTable& table, const SideTable::Match& match) {
  nb::list columns;
  for (const std::string& column : table.columns) columns.append(name_object(column));
  return nb::module_::import_("shardwise.records")
      .attr("SideTable")(match.name, columns, match.num_rows, match.num_rows_without_sample,
                         match.num_samples, match.num_samples_without_row,
                         name_object(match.first_row_without_sample),
                         name_object(match.first_sample_without_row));
}

SideTable::Options options_of(const std::string& on, const std::string& name,
                              const std::vector<std::string>& columns, const std::string& sql_table,
                              bool replace) {
  return {.key = on, .name = name, .columns = columns, .sql_table = sql_table, .replace = replace};
}

nb::object attach_file(const std::string& index, const std::string& file, const std::string& on,
                       const std::string& name, const std::vector<std::string>& columns,
                       const std::string& sql_table, bool replace) {
  SideTable::Options options = options_of(on, name, columns, sql_table, replace);
  SideTable table;
  const SideTable::Match match = without_gil([&](const CancelToken& cancel) {
    options.cancel = cancel;
    SideTable::Match attached = attach_table(index, file, options);
    for (const SideTable& each : Index::open(index)->side_tables()) {
      if (each.name == attached.name) table = each;
    }
    return attached;
  });
  return report_of(table, match);
}

nb::list side_tables(const std::string& path) {
  std::vector<SideTable> tables;
  std::vector<SideTable::Match> matches;
  without_gil([&](const CancelToken& cancel) {
    const auto index = Index::open(path);
    tables = index->side_tables();
    for (const SideTable& table : tables) {
      matches.push_back(match_side_table(*index, table.name, cancel));
    }
  });
  nb::list reports;
  for (std::size_t i = 0; i < tables.size(); ++i) reports.append(report_of(tables[i], matches[i]));
  return reports;
}

/// Converts values of a Python table.
class Values {
 public:
  /// Returns the value of an object: None, a bool, a number, a str or bytes.
  /// Lifetime: valid while the object lives, but only until clear().
  /// Errors: InvalidArgument.
  MetadataValue of(PyObject* object, const std::string& column) {
    MetadataValue value;
    if (object == Py_None) return value;
    if (PyFloat_Check(object)) {
      value.type = Query::Value::Type::kReal;
      value.real = PyFloat_AsDouble(object);
    } else if (PyLong_Check(object)) {
      int overflow = 0;
      value.type = Query::Value::Type::kInteger;
      value.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (overflow != 0) {
        value.type = Query::Value::Type::kText;
        value.bytes = texts_.emplace_back(nb::cast<std::string>(nb::str(nb::handle(object))));
      }
    } else if (PyUnicode_Check(object)) {
      Py_ssize_t size = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
      value.type = Query::Value::Type::kText;
      if (text != nullptr) {
        value.bytes = {text, static_cast<std::size_t>(size)};
      } else {  // a name that is not UTF-8, see new_name()
        PyErr_Clear();
        const NameBytes bytes(object);
        if (!bytes.is_valid()) refuse(object, column);
        value.bytes = texts_.emplace_back(bytes.view());
      }
    } else if (PyBytes_Check(object)) {
      value.type = Query::Value::Type::kBlob;
      value.bytes = {PyBytes_AsString(object), static_cast<std::size_t>(PyBytes_Size(object))};
    } else {
      refuse(object, column);
    }
    return value;
  }
  void clear() { texts_.clear(); }

 private:
  [[noreturn]] static void refuse(PyObject* object, const std::string& column) {
    PyErr_Clear();
    throw InvalidArgument("a column has a value of an unsupported type",
                          "column " + in_quotes(column) + ", " +
                              nb::cast<std::string>(nb::repr(nb::handle(object).type())),
                          "convert the column to numbers, texts or bytes, or choose other columns");
  }

  std::deque<std::string> texts_;
};

/// Writes a side table from lists of Python objects.
struct SideTableWriterObject {
  detail::SideTableWriter writer;
  std::vector<std::string> names;  // of the columns, the key first

  /// @param columns  lists of the same length: the keys, then each of the columns.
  void add(const nb::list& columns) {
    std::vector<PyObject*> lists;
    for (const nb::handle list : columns) {
      if (!PyList_Check(list.ptr()) || PyList_Size(list.ptr()) != PyList_Size(columns[0].ptr())) {
        throw InvalidArgument("the columns have different lengths", in_quotes(names[lists.size()]),
                              "give each column one value for each row");
      }
      lists.push_back(list.ptr());
    }
    Values values;
    std::vector<MetadataValue> row(lists.size());
    const Py_ssize_t num_rows = PyList_Size(lists.at(0));
    for (Py_ssize_t i = 0; i < num_rows; ++i) {
      for (std::size_t column = 0; column < row.size(); ++column) {
        row[column] = values.of(PyList_GetItem(lists[column], i), names[column]);
      }
      writer.add(row[0], std::span(row).subspan(1));
      values.clear();
    }
  }
};

}  // namespace

void add_attaching(nb::module_& module) {
  module.def("attach_file", &attach_file, "index"_a, "file"_a, nb::kw_only(), "on"_a, "name"_a,
             "columns"_a, "sql_table"_a, "replace"_a,
             nb::sig("def attach_file(index: str, file: str, **options: typing.Any) -> "
                     "shardwise.records.SideTable"),
             "Implements shardwise.attach() for files.");
  module.def(
      "detach",
      [](const std::string& index, const std::string& name) {
        without_gil([&](const CancelToken& cancel) { detach_table(index, name, cancel); });
      },
      "index"_a, "name"_a, nb::sig("def detach(index: str, name: str) -> None"),
      "Implements shardwise.detach().");
  module.def("side_tables", &side_tables, "index"_a,
             nb::sig("def side_tables(index: str) -> list[shardwise.records.SideTable]"),
             "Implements shardwise.side_tables().");
  nb::class_<SideTableWriterObject>(module, "SideTableWriter", nb::is_final(),
                                    "Writes a side table; used by shardwise.attach().")
      .def(
          "__init__",
          [](SideTableWriterObject* self, const std::string& index,
             const std::vector<std::string>& available, const std::string& source,
             const std::string& on, const std::string& name,
             const std::vector<std::string>& columns, bool replace) {
            new (self) SideTableWriterObject{
                .writer = detail::SideTableWriter(index, available, source,
                                                  options_of(on, name, columns, "", replace)),
                .names = {}};
            self->names = {available[self->writer.key_place()]};
            for (const std::size_t place : self->writer.places()) {
              self->names.push_back(available[place]);
            }
          },
          "index"_a, "available"_a, "source"_a, nb::kw_only(), "on"_a, "name"_a, "columns"_a,
          "replace"_a)
      .def_prop_ro(
          "names", [](const SideTableWriterObject& self) { return self.names; },
          "Names of the columns to give, the key first.")
      .def("add", &SideTableWriterObject::add, "columns"_a,
           nb::sig("def add(self, columns: list[list[typing.Any]]) -> None"),
           "Adds rows: one list for each of `names`.")
      .def(
          "finish",
          [](SideTableWriterObject& self) {
            const SideTable::Match match =
                without_gil([&](const CancelToken& cancel) { return self.writer.finish(cancel); });
            return report_of(self.writer.table(), match);
          },
          nb::sig("def finish(self) -> shardwise.records.SideTable"), "Attaches the table.");
}

}  // namespace shardwise::python
