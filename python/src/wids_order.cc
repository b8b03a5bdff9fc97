#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "objects.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// random.shuffle() of CPython, going on from the state of a random.Random.
class PythonShuffle {
 public:
  /// @param state  the 624 words and the place in them, as getstate()[1] has them
  explicit PythonShuffle(const std::vector<std::uint32_t>& state) {
    if (state.size() != kNumWords + 1 || state.back() != kNumWords) {
      throw InvalidArgument("not the state of a random.Random that was just seeded", {},
                            "give random.Random(seed).getstate()[1]");
    }
    // The text form is the one way to set the state of a std::mt19937. With all words used, the
    // words are in the same order in both.
    std::stringstream text;
    for (const std::uint32_t word : state) text << word << ' ';
    text >> engine_;
  }

  void shuffle(std::vector<std::uint64_t>& values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
  }

 private:
  static constexpr std::size_t kNumWords = std::mt19937::state_size;

  std::uint64_t below(std::uint64_t n) {
    const auto num_bits = static_cast<unsigned>(std::bit_width(n));
    std::uint64_t value = bits(num_bits);
    while (value >= n) value = bits(num_bits);
    return value;
  }

  std::uint64_t bits(unsigned num_bits) {
    if (num_bits <= 32) return static_cast<std::uint64_t>(engine_()) >> (32 - num_bits);
    const std::uint64_t low = engine_();
    return low | (static_cast<std::uint64_t>(engine_()) >> (64 - num_bits)) << 32;
  }

  std::mt19937 engine_;
};

/// An epoch of a sampler of wids: ranges of numbers, shuffled, and each one shuffled in itself.
struct WidsOrder {
  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };

  PythonShuffle random;
  std::vector<Range> ranges;
  std::vector<std::uint64_t> places;
  bool shuffles_samples = true;
  std::size_t next_place = 0;
  std::vector<std::uint64_t> samples;  ///< of the range that is being given
  std::size_t next_sample = 0;
};

bool begin_next_range(WidsOrder& order) {
  if (order.next_place == order.places.size()) return false;
  const WidsOrder::Range range = order.ranges[order.places[order.next_place++]];
  order.samples.resize(range.end > range.begin ? static_cast<std::size_t>(range.end - range.begin)
                                               : 0);
  std::iota(order.samples.begin(), order.samples.end(), static_cast<std::uint64_t>(range.begin));
  if (order.shuffles_samples) order.random.shuffle(order.samples);
  order.next_sample = 0;
  return true;
}

PyObject* next(PyObject* self) noexcept {
  return guarded(
      [&]() -> PyObject* {
        WidsOrder& order = held_in<WidsOrder>(self);
        while (order.next_sample == order.samples.size()) {
          if (!begin_next_range(order)) return nullptr;
        }
        return PyLong_FromLongLong(static_cast<std::int64_t>(order.samples[order.next_sample++]));
      },
      static_cast<PyObject*>(nullptr));
}

PyObject* iterate(PyObject* self) noexcept {
  Py_INCREF(self);
  return self;
}

PyType_Slot slots[] = {
    {Py_tp_iter, reinterpret_cast<void*>(iterate)},
    {Py_tp_iternext, reinterpret_cast<void*>(next)},
    {0, nullptr},
};

void make(WidsOrder* self, nb::iterable ranges, const std::vector<std::uint32_t>& state,
          bool shuffles_ranges, bool shuffles_samples) {
  WidsOrder order{PythonShuffle(state), {}, {}, shuffles_samples, 0, {}, 0};
  for (const nb::handle range : ranges) {
    order.ranges.push_back({nb::cast<std::int64_t>(range[0]), nb::cast<std::int64_t>(range[1])});
  }
  order.places.resize(order.ranges.size());
  std::iota(order.places.begin(), order.places.end(), std::uint64_t{0});
  if (shuffles_ranges) order.random.shuffle(order.places);
  new (self) WidsOrder(std::move(order));
}

}  // namespace

void add_wids_orders(nb::module_& module) {
  nb::class_<WidsOrder>(module, "WidsOrder", nb::type_slots(slots), nb::is_final(),
                        "The numbers in some ranges in the order of wids, bit for bit. Of one "
                        "thread. About 15 ns a number; memory for the numbers of one range.")
      .def("__init__", &make, "ranges"_a, "state"_a, nb::kw_only(), "shuffles_ranges"_a,
           "shuffles_samples"_a,
           nb::sig("def __init__(self, ranges: typing.Iterable[typing.Sequence[int]], "
                   "state: typing.Sequence[int], *, shuffles_ranges: bool, "
                   "shuffles_samples: bool) -> None"),
           "ranges: pairs of the first number, and the one after the last. state: "
           "``random.Random(seed).getstate()[1]``.");
}

}  // namespace shardwise::python
