#include "orders.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "objects.h"
#include "sample_numbers.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// Options that belong to some kinds of order only.
struct KindOptions {
  std::optional<std::uint64_t> chunk_size;
  std::optional<std::uint64_t> window;
  std::optional<bool> phase;
  std::optional<std::string> unit;
  std::optional<std::string> weights;
  std::optional<bool> shuffle;
  std::optional<bool> shufflefirst;
};

template <class T>
void take(std::optional<T>& option, T& to) {
  if (option) to = *std::exchange(option, std::nullopt);
}

void take(KindOptions& options, Chunked& kind) {
  take(options.chunk_size, kind.chunk_size);
  take(options.window, kind.window);
  take(options.phase, kind.phase);
}
void take(KindOptions& options, Sharded& kind) { take(options.window, kind.window); }
void take(KindOptions& /*options*/, Sequential& /*kind*/) {}
void take(KindOptions& options, Resampled& kind) {
  take(options.weights, kind.weights);
  if (!options.unit) return;
  const std::string unit = *std::exchange(options.unit, std::nullopt);
  if (unit != "sample" && unit != "shard") {
    throw InvalidArgument("unknown unit of a resampled order", in_quotes(unit),
                          "choose sample or shard");
  }
  kind.unit = unit == "shard" ? Resampled::Unit::kShard : Resampled::Unit::kSample;
}
void take(KindOptions& options, Wids& kind) {
  take(options.chunk_size, kind.chunk_size);
  take(options.shuffle, kind.shuffle);
  take(options.shufflefirst, kind.shufflefirst);
}
void take(KindOptions& /*options*/, Mixture& /*kind*/) {}

void require_none_left(const KindOptions& options, std::string_view kind) {
  const std::pair<bool, const char*> left[] = {{options.chunk_size.has_value(), "chunk_size"},
                                               {options.window.has_value(), "window"},
                                               {options.phase.has_value(), "phase"},
                                               {options.unit.has_value(), "unit"},
                                               {options.weights.has_value(), "weights"},
                                               {options.shuffle.has_value(), "shuffle"},
                                               {options.shufflefirst.has_value(), "shufflefirst"}};
  for (const auto& [is_left, option] : left) {
    if (is_left) {
      throw InvalidArgument("the order has no such option", option,
                            "the kind of order is " + in_quotes(kind));
    }
  }
}

Order make_order(const std::string& kind, std::uint64_t seed, std::uint64_t streams,
                 const std::string& tail, bool balance_bytes, std::uint64_t epoch_size,
                 nb::handle skip, std::optional<std::uint64_t> chunk_size,
                 std::optional<std::uint64_t> window, std::optional<bool> phase,
                 std::optional<std::string> unit, std::optional<std::string> weights,
                 std::optional<bool> shuffle, std::optional<bool> shufflefirst) {
  Order order{.seed = seed,
              .kind = parse_order_kind(kind),
              .streams = streams,
              .tail = parse_tail(tail),
              .balance_bytes = balance_bytes,
              .epoch_size = epoch_size};
  KindOptions options{chunk_size,         window,  phase,       std::move(unit),
                      std::move(weights), shuffle, shufflefirst};
  std::visit([&](auto& made) { take(options, made); }, order.kind);
  require_none_left(options, kind);
  for (const std::uint64_t sample : plain_numbers(skip)) order.skip.add_sample(sample);
  return order;
}

/// What make_order() takes: of the kind's own options those that it has.
nb::dict arguments(const Order& order) {
  nb::dict all;
  all["kind"] = std::string(name_of(order.kind));
  all["seed"] = order.seed;
  all["streams"] = order.streams;
  all["tail"] = std::string(tail_name(order.tail));
  all["balance_bytes"] = order.balance_bytes;
  all["epoch_size"] = order.epoch_size;
  nb::list skip;
  for (const auto& [sample, entry] : order.skip.samples()) skip.append(sample);
  all["skip"] = skip;
  if (const auto* chunked = std::get_if<Chunked>(&order.kind)) {
    all["chunk_size"] = chunked->chunk_size;
    all["window"] = chunked->window;
    all["phase"] = chunked->phase;
  } else if (const auto* sharded = std::get_if<Sharded>(&order.kind)) {
    all["window"] = sharded->window;
  } else if (const auto* resampled = std::get_if<Resampled>(&order.kind)) {
    all["unit"] = resampled->unit == Resampled::Unit::kShard ? "shard" : "sample";
    all["weights"] = resampled->weights;
  } else if (const auto* wids = std::get_if<Wids>(&order.kind)) {
    all["chunk_size"] = wids->chunk_size;
    all["shuffle"] = wids->shuffle;
    all["shufflefirst"] = wids->shufflefirst;
  }
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

/// The kind of an order over a mixture: the order's own kind in each of the data sets.
Mixture mixture(const MixedDataset& data, const std::vector<double>& weights, const Order& order) {
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
  if (inner) return data.mixture(weights, *inner);
  throw InvalidArgument("data sets cannot be mixed in this order", std::string(name_of(order.kind)),
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
  order.kind = mixture(mixed_dataset(parts_of(data)), weights, order);
  return order;
}

SampleSet sample_set(nb::handle data) {
  if (nb::isinstance<Order>(data)) throw nb::type_error("an Order is no data set");
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
  nb::class_<Order>(
      module, "Order",
      "Which sample comes when, whichever rank reads it: a value, the same on every rank.\n\n"
      "kind: \"chunked\" (chunks of chunk_size samples in a random order, window of them mixed "
      "together), \"sharded\" (the same with whole shards), \"sequential\", \"resampled\" (draws "
      "with replacement, by unit \"sample\" or \"shard\", weights a metadata column), or \"wids\" "
      "(the order of Python wids, bit for bit).\n"
      "seed: of all that is random. streams: parts of the order that ranks read side by side.\n"
      "tail: \"exact\" (each sample once; ranks differ by one at most), \"drop\" or \"pad\".\n"
      "balance_bytes: deal out each step so that ranks get near-equal bytes.\n"
      "epoch_size: samples in an epoch of all ranks; 0: one pass.\n"
      "skip: numbers of samples that are left out.\n\n"
      "An option that the kind has not is InvalidArgument.\n\n"
      ">>> order = shardwise.Order(\"chunked\", seed=17, chunk_size=100, window=2)\n"
      ">>> order.options[\"tail\"]\n"
      "'exact'")
      .def(
          "__init__",
          [](Order* self, const std::string& kind, std::uint64_t seed, std::uint64_t streams,
             const std::string& tail, bool balance_bytes, std::uint64_t epoch_size, nb::handle skip,
             std::optional<std::uint64_t> chunk_size, std::optional<std::uint64_t> window,
             std::optional<bool> phase, std::optional<std::string> unit,
             std::optional<std::string> weights, std::optional<bool> shuffle,
             std::optional<bool> shufflefirst) {
            new (self) Order(make_order(kind, seed, streams, tail, balance_bytes, epoch_size, skip,
                                        chunk_size, window, phase, std::move(unit),
                                        std::move(weights), shuffle, shufflefirst));
          },
          "kind"_a = "chunked", nb::kw_only(), "seed"_a = 0, "streams"_a = 1, "tail"_a = "exact",
          "balance_bytes"_a = false, "epoch_size"_a = 0, "skip"_a = nb::tuple(),
          "chunk_size"_a = nb::none(), "window"_a = nb::none(), "phase"_a = nb::none(),
          "unit"_a = nb::none(), "weights"_a = nb::none(), "shuffle"_a = nb::none(),
          "shufflefirst"_a = nb::none(),
          nb::sig("def __init__(self, kind: str = 'chunked', *, seed: int = 0, streams: int = 1, "
                  "tail: str = 'exact', balance_bytes: bool = False, epoch_size: int = 0, "
                  "skip: collections.abc.Sequence[int] = (), chunk_size: int | None = None, "
                  "window: int | None = None, phase: bool | None = None, "
                  "unit: str | None = None, weights: str | None = None, "
                  "shuffle: bool | None = None, shufflefirst: bool | None = None) -> None"))
      .def_prop_ro("kind", [](const Order& self) { return std::string(name_of(self.kind)); })
      .def_prop_ro("seed", [](const Order& self) { return self.seed; })
      .def_prop_ro("options", &arguments, nb::sig("def options(self) -> dict[str, typing.Any]"),
                   "All its options by name, as the constructor takes them.")
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
}

}  // namespace shardwise::python
