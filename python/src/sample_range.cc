#include <nanobind/nanobind.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "blocking.h"
#include "errors.h"
#include "gil.h"
#include "objects.h"
#include "sample_numbers.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

/// The result of `Dataset.samples()`: an iterator over samples, which prefetches their records and
/// bytes.
class SampleIterator {
 public:
  SampleIterator(nb::object dataset, std::vector<std::uint64_t> numbers)
      : dataset_(std::move(dataset)),
        numbers_(std::move(numbers)),
        range_(dataset_of(dataset_).samples(numbers_)) {
    dataset_object_of(dataset_).watch.asked(numbers_.size());
  }

  /// Returns a new reference; null at the end.
  PyObject* next() {
    if (is_used_.exchange(true, std::memory_order_acquire)) {
      throw InvalidArgument("two threads use one iterator of samples", "",
                            "give each thread another ds.samples(numbers)");
    }
    const Use use{is_used_};
    step();
    if (*at_ == std::default_sentinel) return nullptr;
    return new_sample(Sample(**at_), dataset_.ptr());
  }

 private:
  struct Use {
    std::atomic<bool>& flag;
    ~Use() { flag.store(false, std::memory_order_release); }
  };

  void advance() {
    if (at_) {
      ++*at_;
    } else {
      at_.emplace(range_.begin());
    }
  }

  /// Moves to the next sample. Releases the GIL if this may open a shard.
  void step() {
    const std::size_t turn = turn_++;
    if (range_.has_next_at_hand()) return advance();
    const Dataset& data = dataset_of(dataset_);
    const bool may_fetch =
        may_wait_long(data) && turn < numbers_.size() && !data.try_get(numbers_[turn]);
    if (may_fetch) {
      without_gil([&](const CancelToken&) { advance(); });
      return dataset_object_of(dataset_).watch.missed(data);
    }
    const GilReleased released;
    advance();
  }

  const nb::object dataset_;
  const std::vector<std::uint64_t> numbers_;
  detail::SampleRange range_;
  std::optional<detail::SampleRange::Iterator> at_;
  std::size_t turn_ = 0;  // position of the next sample in numbers_
  std::atomic<bool> is_used_{false};
};

PyObject* iterator_next(PyObject* self) noexcept {
  return guarded([&] { return held_in<SampleIterator>(self).next(); },
                 static_cast<PyObject*>(nullptr));
}

PyType_Slot slots[] = {
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(iterator_next)},
    {0, nullptr},
};

}  // namespace

nb::object samples_of(nb::handle dataset, nb::handle numbers) {
  return nb::cast(
      new SampleIterator(nb::borrow(dataset), sample_numbers(numbers, dataset_of(dataset))),
      nb::rv_policy::take_ownership);
}

void add_sample_ranges(nb::module_& module) {
  nb::class_<SampleIterator>(module, "SampleIterator", nb::type_slots(slots), nb::is_final(),
                             "The iterator of Dataset.samples(). Threads: one.");
}

}  // namespace shardwise::python
