#include "orders.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "errors.h"
#include "objects.h"
#include "order/fields.h"
#include "sample_numbers.h"
#include "shardwise/base/error.h"
#include "shardwise/order/resume.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// Returns the name of an option's Python type, for signatures.
template <class Value>
constexpr const char* python_type() {
  if (std::is_same_v<Value, bool>) return "bool";
  if (std::is_same_v<Value, std::uint64_t>) return "int";
  if (std::is_same_v<Value, std::string> || detail::Choice<Value>) return "str";
  return std::is_same_v<Value, SkipList> ? "collections.abc.Sequence[int]" : nullptr;
}
template <class Value>
concept HasPythonType = python_type<Value>()
!= nullptr;

/// Reads an option's value. Errors: TypeError for a wrong type; InvalidArgument.
template <class Value>
void take(std::string_view option, nb::handle value, Value& to) {
  const auto refuse = [&](const char* type) {
    const std::string given = std::string(option) + "=" + nb::cast<std::string>(nb::repr(value));
    throw nb::type_error(("not valid: " + given + "; give " + type).c_str());
  };
  if constexpr (detail::Choice<Value>) {
    std::string name;
    if (!nb::try_cast(value, name)) refuse("str");
    const auto choice = detail::find_choice<Value>(name);
    if (!choice) {
      throw InvalidArgument("not valid", std::string(option) + "=" + in_quotes(name),
                            "use " + detail::list_of_choices<Value>());
    }
    to = *choice;
  } else if constexpr (std::is_same_v<Value, SkipList>) {
    for (const std::uint64_t sample : plain_numbers(value)) to.add_sample(sample);
  } else if constexpr (!HasPythonType<
                           Value>) {  // no option: the kind, and fields that only mix() sets
  } else if (!nb::try_cast(value, to)) {
    refuse(std::is_same_v<Value, std::uint64_t> ? "a whole number from 0 to 2^64 - 1"
                                                : python_type<Value>());
  }
}

/// Takes the options that are fields of `owner` out of `options`, and sets these fields.
template <detail::HasFields Owner>
void take_fields(nb::dict& options, Owner& owner) {
  detail::visit_fields<Owner>([&](const auto& field) {
    const nb::str name(field.name.data(), field.name.size());
    if (!options.contains(name)) return;
    take(field.name, options[name], owner.*field.member);
    nb::del(options[name]);
  });
}

/// @param given  options by name; None means the default, for options that only some kinds have.
Order make_order(const std::string& kind, const nb::kwargs& given) {
  Order order{.kind = parse_order_kind(kind)};
  nb::dict options;
  for (const auto& [name, value] : given) options[name] = value;
  take_fields(options, order);
  for (const detail::KindOption& option : detail::kind_options()) {
    const nb::str name(option.name.data(), option.name.size());
    if (options.contains(name) && options[name].is_none()) nb::del(options[name]);
  }
  std::visit([&](auto& made) { take_fields(options, made); }, order.kind);
  for (const auto& [name, value] : options) {
    const auto option = nb::cast<std::string>(name);
    if (std::ranges::count(detail::kind_options(), option, &detail::KindOption::name) == 0) {
      nb::dict unknown;
      unknown[name] = value;
      refuse_unknown(nb::type<Order>(), unknown);
    }
    throw InvalidArgument("the kind of order " + in_quotes(kind) + " has no option",
                          in_quotes(option), "leave out " + option + ", or choose another kind");
  }
  return order;
}

/// Converts a value to Python.
template <class Value>
nb::object given_to_python(const Value& value) {
  if constexpr (detail::Choice<Value>) {
    return nb::cast(std::string(detail::choice_name(value)));
  } else if constexpr (std::is_same_v<Value, SkipList>) {
    nb::list skip;
    for (const auto& [sample, entry] : value.samples()) skip.append(sample);
    return skip;
  } else {
    return nb::cast(value);
  }
}

template <detail::HasFields Owner>
void add_fields(nb::dict& all, const Owner& owner) {
  detail::visit_fields<Owner>([&]<class Value>(const detail::Field<Owner, Value>& field) {
    if constexpr (HasPythonType<Value>) {
      all[nb::str(field.name.data(), field.name.size())] = given_to_python(owner.*field.member);
    }
  });
}

/// Returns the arguments with which make_order() makes this order.
nb::dict arguments(const Order& order) {
  nb::dict all;
  all["kind"] = std::string(name_of(order.kind));
  add_fields(all, order);
  std::visit([&](const auto& kind) { add_fields(all, kind); }, order.kind);
  return all;
}

/// Returns the constructor's signature, with the options of all kinds by name.
std::string signature() {
  std::string text = "def __init__(self, kind: str = 'chunked', *";
  detail::visit_fields<Order>([&]<class Value>(const detail::Field<Order, Value>& field) {
    if constexpr (HasPythonType<Value>) {
      const nb::object value = given_to_python(Order{}.*field.member);
      const bool is_list = nb::isinstance<nb::list>(value);
      text += ", " + std::string(field.name) + ": " + python_type<Value>() + " = " +
              nb::cast<std::string>(nb::repr(is_list ? nb::object(nb::tuple(value)) : value));
    }
  });
  std::set<std::string_view> known;
  detail::visit_kinds([&]<class Kind>() {
    detail::visit_fields<Kind>([&]<class Value>(const detail::Field<Kind, Value>& field) {
      if constexpr (HasPythonType<Value>) {
        if (!known.insert(field.name).second) return;
        text += ", " + std::string(field.name) + ": " + python_type<Value>() + " | None = None";
      }
    });
  });
  return text + ") -> None";
}

/// Returns one line of help per option.
std::string words() {
  std::string text;
  detail::visit_fields<Order>([&](const auto& field) {
    if (field.text.words.empty()) return;
    text += std::string(field.name) + ": " + std::string(field.text.words) + ".\n";
  });
  for (const detail::KindOption& option : detail::kind_options()) {
    text += std::string(option.name) + ": " + option.words + ".\n";
  }
  return text;
}

/// Returns (name, option, description, Python type, choices) of each option that the command line
/// has.
nb::list command_line_options() {
  nb::list all;
  std::set<std::string_view> known;
  const auto add = [&]<class Owner, class Value>(const detail::Field<Owner, Value>& field,
                                                 std::string_view words) {
    if constexpr (HasPythonType<Value> && !std::is_same_v<Value, SkipList>) {
      if (field.text.option.empty() || !known.insert(field.name).second) return;
      nb::list names;
      if constexpr (detail::Choice<Value>) {
        for (const std::string_view name : choices(std::type_identity<Value>())) {
          names.append(std::string(name));
        }
      }
      all.append(nb::make_tuple(std::string(field.name), std::string(field.text.option),
                                std::string(words), python_type<Value>(), names));
    }
  };
  detail::visit_fields<Order>([&](const auto& field) { add(field, field.text.words); });
  const std::vector<detail::KindOption> of_kinds = detail::kind_options();
  detail::visit_kinds([&]<class Kind>() {
    detail::visit_fields<Kind>([&](const auto& field) {
      const auto found = std::ranges::find(of_kinds, field.name, &detail::KindOption::name);
      add(field, found == of_kinds.end() ? field.text.words : std::string_view(found->words));
    });
  });
  return all;
}

std::string shown_in_python(const Order& order) {
  std::string text = "shardwise.Order(";
  bool first = true;
  for (const auto& [name, value] : arguments(order)) {
    text += (first ? "" : ", ") + nb::cast<std::string>(name) + "=" +
            nb::cast<std::string>(nb::repr(value));
    first = false;
  }
  return text + ")";
}

/// Returns a mixture. Within each data set it uses the kind of `order`.
Mixture mixture(const MixedDataset& data, const std::vector<double>& weights,
                std::vector<Mixture::Change> schedule, const Order& order) {
  using Inner = std::variant<Chunked, Sharded, Sequential>;
  const auto inner = std::visit(
      [](const auto& kind) -> std::optional<Inner> {
        if constexpr (std::is_constructible_v<Inner, decltype(kind)>) {
          return Inner(kind);
        } else {
          return std::nullopt;
        }
      },
      order.kind);
  if (inner) return data.mixture(weights, *inner, std::move(schedule));
  throw InvalidArgument("data sets cannot be mixed in this kind of order",
                        in_quotes(std::string(name_of(order.kind))),
                        "choose chunked, sharded or sequential");
}

}  // namespace

bool is_mixed(nb::handle data) {
  return nb::isinstance(data, nb::module_::import_("shardwise.mixing").attr("MixedDataset"));
}

nb::tuple parts_of(nb::handle data) {
  return is_mixed(data) ? nb::tuple(data.attr("datasets")) : nb::make_tuple(nb::borrow(data));
}

MixedDataset mixed_dataset(const nb::tuple& parts) {
  std::vector<Dataset> datasets;
  for (const nb::handle part : parts) datasets.push_back(dataset_of(part));
  return MixedDataset(std::move(datasets));
}

Order order_over(nb::handle data, Order order) {
  if (!is_mixed(data) || data.attr("weights").is_none()) return order;
  const auto weights = nb::cast<std::vector<double>>(data.attr("weights"));
  std::vector<Mixture::Change> schedule;
  for (const auto& [position, later] : nb::cast<nb::dict>(data.attr("schedule"))) {
    schedule.push_back({nb::cast<std::uint64_t>(position), nb::cast<std::vector<double>>(later)});
  }
  order.kind = mixture(mixed_dataset(parts_of(data)), weights, std::move(schedule), order);
  return order;
}

SampleSet sample_set(nb::handle data) {
  if (nb::isinstance<Order>(data))
    throw nb::type_error(
        "an Order was given as the data; give a Dataset, or its number of samples");
  if (is_mixed(data)) return {mixed_dataset(parts_of(data))};
  if (PyIndex_Check(data.ptr()) != 0) {
    const Py_ssize_t size = PyNumber_AsSsize_t(data.ptr(), PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred() != nullptr) nb::raise_python_error();
    return {size};
  }
  try {
    return {dataset_of(data)};
  } catch (const nb::cast_error&) {
  }
  return {nb::len(data)};
}

void add_orders(nb::module_& module) {
  // static, since nanobind keeps the pointers
  static const std::string init_signature = signature();
  static const std::string doc =
      "The order of the samples in an epoch, independent of the ranks that read them. Immutable, "
      "and equal on every rank.\n\n"
      "kind: \"chunked\" shuffles chunks of chunk_size samples, and mixes window of them. "
      "\"sharded\" does so with whole shards. \"sequential\" does not shuffle. \"resampled\" draws "
      "with replacement. \"wids\" is the order of Python wids, "
      "bit for bit.\n" +
      words() +
      "\nRaises InvalidArgument for an option that the kind lacks.\n\n"
      ">>> order = shardwise.Order(\"chunked\", seed=17, chunk_size=100, window=2)\n"
      ">>> order.options[\"tail\"]\n"
      "'exact'";
  nb::class_<Order>(module, "Order", doc.c_str())
      .def(
          "__init__",
          [](Order* self, const std::string& kind, const nb::kwargs& options) {
            new (self) Order(make_order(kind, options));
          },
          "kind"_a = "chunked", "options"_a, nb::sig(init_signature.c_str()))
      .def_prop_ro(
          "kind", [](const Order& self) { return std::string(name_of(self.kind)); },
          "Kind of the order.")
      .def_prop_ro(
          "seed", [](const Order& self) { return self.seed; }, "Shuffle seed.")
      .def_prop_ro("options", &arguments, nb::sig("def options(self) -> dict[str, typing.Any]"),
                   "All options by name, as the constructor takes them.")
      .def(
          "__eq__",
          [](const Order& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<Order>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(self == nb::cast<const Order&>(other));
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Order& self) { return nb::hash(nb::cast(shown_in_python(self))); })
      .def("__repr__", &shown_in_python)
      .def("__getstate__", &arguments, nb::sig("def __getstate__(self) -> dict[str, typing.Any]"))
      .def(
          "__setstate__",
          [](Order& self, const nb::dict& state) {
            const nb::object made = nb::type<Order>()(**state);
            new (&self) Order(nb::cast<const Order&>(made));
          },
          nb::sig("def __setstate__(self, state: dict[str, typing.Any], /) -> None"));
  module.def(
      "order_options", &command_line_options,
      nb::sig("def order_options() -> list[tuple[str, str, str, str, list[str]]]"),
      "The options of an order on the command line: name, option, description, type, choices.");
  module.def(
      "progress_of",
      [](const std::string& token) {
        nb::list all;
        for (const ResumeToken::Progress& data : ResumeToken::from_text(token).progress()) {
          all.append(nb::make_tuple(data.num_samples, data.samples, data.passes, data.remainder));
        }
        return all;
      },
      "token"_a, nb::sig("def progress_of(token: str) -> list[tuple[int, int, int, int]]"));
}

}  // namespace shardwise::python
