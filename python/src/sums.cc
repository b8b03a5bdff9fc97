#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>

#include <cstddef>

#include "base/exact_sum.h"
#include "objects.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

void add_sums(nb::module_& module) {
  using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  nb::class_<ExactSum>(module, "ExactSum",
                       "A sum of floats that is rounded once, at its end, so that order and "
                       "partition of the values do not matter. At most 2^62 values. One thread.")
      .def(nb::init<>())
      .def("add", &ExactSum::add, "value"_a)
      .def(
          "add_all",
          [](ExactSum& self, const Doubles& values) {
            for (std::size_t i = 0; i < values.size(); ++i) self.add(values.data()[i]);
          },
          "values"_a, nb::sig("def add_all(self, values: typing.Any) -> None"),
          "Adds the elements of a float64 array [N].")
      .def("words", &ExactSum::words, nb::sig("def words(self) -> list[int]"),
           "Whole numbers. Their sums over several ExactSums, number by number, are those of the "
           "sum of all.")
      .def("set_words", &ExactSum::set_words, "words"_a,
           nb::sig("def set_words(self, words: collections.abc.Sequence[int]) -> None"),
           "Takes such sums, of fewer than 2^30 ExactSums.")
      .def_prop_ro("value", &ExactSum::value,
                   "The sum, rounded to the nearest float; NaN if a value was, or if infinities of "
                   "both signs were added.");
}

}  // namespace shardwise::python
