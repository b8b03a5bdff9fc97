#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "errors.h"
#include "objects.h"
#include "order/wids_walk.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// One epoch of a wids sampler.
struct WidsOrder {
  detail::WidsWalk walk;
  std::size_t next_sample = 0;  ///< position in the current range of samples
};

PyObject* next(PyObject* self) noexcept {
  return guarded(
      [&]() -> PyObject* {
        WidsOrder& order = held_in<WidsOrder>(self);
        while (order.next_sample == order.walk.samples.size()) {
          if (!order.walk.advance()) return nullptr;
          order.next_sample = 0;
        }
        return PyLong_FromLongLong(
            static_cast<std::int64_t>(order.walk.samples[order.next_sample++]));
      },
      static_cast<PyObject*>(nullptr));
}

PyType_Slot slots[] = {
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next)},
    {0, nullptr},
};

void make(WidsOrder* self, nb::iterable ranges, const std::vector<std::uint32_t>& state,
          bool shuffles_ranges, bool shuffles_samples) {
  std::vector<detail::WidsWalk::Range> all;
  for (const nb::handle range : ranges) {
    const auto begin = nb::cast<std::int64_t>(range[0]);
    const auto end = std::max(begin, nb::cast<std::int64_t>(range[1]));
    all.push_back({static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)});
  }
  new (self)
      WidsOrder{{detail::PythonRandom(state), std::move(all), shuffles_ranges, shuffles_samples}};
}

}  // namespace

void add_wids_orders(nb::module_& module) {
  nb::class_<WidsOrder>(
      module, "WidsOrder", nb::type_slots(slots), nb::is_final(),
      "The numbers of some ranges in the order of wids, bit for bit. Threads: one. Cost: about 15 "
      "ns per number; memory for the numbers of one range.")
      .def("__init__", &make, "ranges"_a, "state"_a, nb::kw_only(), "shuffles_ranges"_a,
           "shuffles_samples"_a,
           nb::sig("def __init__(self, ranges: typing.Iterable[typing.Sequence[int]], "
                   "state: typing.Sequence[int], *, shuffles_ranges: bool, shuffles_samples: "
                   "bool) -> None"),
           "ranges: pairs (first, one past the last). state: "
           "``random.Random(seed).getstate()[1]``.");
}

}  // namespace shardwise::python
