#include "shardwise/loader/loader.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "blocking.h"
#include "columns.h"
#include "errors.h"
#include "field_names.h"
#include "gil.h"
#include "loader/explain_batches.h"
#include "loader/fields.h"
#include "loader/loader_access.h"
#include "loader/trace_text.h"
#include "loading.h"
#include "objects.h"
#include "options.h"
#include "orders.h"
#include "raised.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

constexpr std::chrono::milliseconds kSignalInterval{20};

/// Loaders whose last reference was dropped in one of the loader's threads, by a column's function
/// or by the garbage collector. A thread cannot join itself, so separate threads destroy these
/// loaders.
class DroppedLoaders {
 public:
  static DroppedLoaders& get() {
    static auto* const all = new DroppedLoaders;
    return *all;
  }

  /// @param kept  Python objects that the loader uses. REQUIRES: the GIL.
  void add(std::unique_ptr<Loader> loader, Kept kept) {
    loader->stop();
    {
      const std::lock_guard lock(mutex_);
      ++count_;
    }
    std::thread([this, dropped = std::move(loader), kept = std::move(kept)]() mutable {
      dropped.reset();
      kept.reset();
      const std::lock_guard lock(mutex_);
      --count_;
      none_left_.notify_all();
    }).detach();
  }
  /// Waits until all these loaders are destroyed. REQUIRES: the GIL is not held.
  void wait() {
    std::unique_lock lock(mutex_);
    none_left_.wait(lock, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_left_;
  std::size_t count_ = 0;
};

/// The contents of a `shardwise._core.Loader`. The loader's threads may need the GIL for a column's
/// function, so this class releases the GIL before it waits for them.
class LoaderObject {
 public:
  /// @param kept  Python objects that the loader uses but does not own.
  LoaderObject(const MixedDataset& data, const Loader::Options& options,
               std::shared_ptr<Reducer> ranks, bool gives_torch, nb::object kept)
      : has_threads_(options.threads > 0),
        gives_torch_(gives_torch),
        asked_(options.order.skip),
        kept_(std::move(kept)) {
    without_gil([&](const CancelToken&) {
      loader_ = std::make_unique<Loader>(data, options, std::move(ranks));
    });
  }
  ~LoaderObject() { close(); }
  LoaderObject(const LoaderObject&) = delete;
  LoaderObject& operator=(const LoaderObject&) = delete;

  /// Ends the threads. Returns false if a call of another thread is running.
  bool close() noexcept {
    if (in_use_.exchange(true)) return false;
    std::unique_ptr<Loader> dropped = std::move(loader_);
    if (dropped && is_foreign_thread()) {
      DroppedLoaders::get().add(std::move(dropped), keep(kept_));
    } else if (dropped) {
      const GilReleased released;
      dropped.reset();
    }
    in_use_ = false;
    return true;
  }
  [[nodiscard]] bool is_closed() const noexcept { return loader_ == nullptr; }
  /// Returns the loader, for calls that are safe from any thread. Errors: InvalidArgument if it is
  /// closed.
  [[nodiscard]] Loader& loader() const {
    if (loader_) return *loader_;
    throw InvalidArgument("the loader is closed", "", "make another loader");
  }
  [[nodiscard]] bool has_threads() const noexcept { return has_threads_; }
  /// Whether the values of its batches are torch tensors.
  [[nodiscard]] bool gives_torch() const noexcept { return gives_torch_; }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(kept_.ptr());
    return 0;
  }
  /// Sets the bad samples of a restored token: those that it leaves out, except samples that the
  /// loader's own order skips.
  void set_bad_before(const SkipList& left_out) {
    bad_before_ = {};
    for (const auto& [sample, entry] : left_out.samples()) {
      if (!asked_.samples().contains(sample)) bad_before_.add_sample(sample, entry.reason);
    }
  }
  [[nodiscard]] SkipList bad_samples() const {
    SkipList all = bad_before_;
    all.merge(loader().bad_samples());
    return all;
  }
  /// REQUIRES: the loader is closed.
  void clear() noexcept { kept_ = nb::object(); }

  std::chrono::steady_clock::time_point traced_since{};

 private:
  friend class Use;

  const bool has_threads_;
  const bool gives_torch_;
  const SkipList asked_;  // samples that the order skips
  SkipList bad_before_;   // bad samples of the token restored last
  nb::object kept_;
  std::unique_ptr<Loader> loader_;
  std::atomic<bool> in_use_{false};
};

/// Claims an object's loader for the calling thread.
/// Errors: Unsupported if another call is running, or if called in a column's function;
/// InvalidArgument if the loader is closed.
class [[nodiscard]] Use {
 public:
  explicit Use(LoaderObject& object) : object_(object) {
    if (is_foreign_thread()) {
      throw Error(ErrorCode::kUnsupported, "a loader cannot be used from the function of a column",
                  "",
                  "read a Dataset in the function instead; stop(), stats() and summary() of a "
                  "loader may be called");
    }
    if (object.in_use_.exchange(true)) {
      throw Error(ErrorCode::kUnsupported, "the loader is already in use",
                  "another call is not finished",
                  "use the loader from one thread, and not from functions of columns or signal "
                  "handlers; call only stop(), stats() and summary() elsewhere");
    }
    if (object.is_closed()) {
      object.in_use_ = false;
      (void)object.loader();  // the loader is closed: this throws
    }
  }
  ~Use() { object_.in_use_ = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  [[nodiscard]] Loader& loader() const { return object_.loader(); }

 private:
  LoaderObject& object_;
};

/// Calls `work(loader)` in this thread, without the GIL.
template <class Work>
auto used(LoaderObject& object, const Work& work) {
  const Use use(object);
  const GilReleased released;
  return work(use.loader());
}

LoaderObject& held_by(PyObject* self) { return held_in<LoaderObject>(self); }

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? held_by(self).traverse(visit, arg) : 0;
}

/// Python calls this for all objects of a cycle before it clears any of them. Afterwards no thread
/// of the loader calls a Python function.
void finalize(PyObject* self) {
  if (nb::inst_ready(self)) held_by(self).close();
}

int clear(PyObject* self) {
  if (nb::inst_ready(self) && held_by(self).is_closed()) held_by(self).clear();
  return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
    {0, nullptr},
};

/// Calls visit(field) for each option that is an integer.
template <class Visit>
void visit_numbers(const Visit& visit) {
  detail::visit_fields<Loader::Options>(
      [&]<class Value>(const detail::Field<Loader::Options, Value>& field) {
        if constexpr (std::is_integral_v<Value>) visit(field);
      });
}

/// Returns the names of the options that are integers, each with its default and the maximum of its
/// type.
nb::dict numbers() {
  nb::dict all;
  visit_numbers([&]<class Value>(const detail::Field<Loader::Options, Value>& field) {
    all[std::string(field.name).c_str()] =
        nb::make_tuple(Loader::Options{}.*field.member, std::numeric_limits<Value>::max());
  });
  return all;
}

/// @param numbers  all options that are integers, by name.
void make(LoaderObject* self, nb::handle data, const nb::list& columns, const Order& order,
          nb::handle length_rule, nb::handle group_rule, nb::handle mix, nb::handle memory,
          nb::handle ranks, bool gives_torch, const nb::kwargs& numbers) {
  const nb::tuple parts = parts_of(data);
  const Parts all = parts_over(parts);
  Loader::Options options;
  options.columns = columns_over(columns, all);
  options.order = order_over(data, order);
  if (!length_rule.is_none()) options.by_length = by_length(length_rule);
  if (!group_rule.is_none()) options.by_group = by_group(group_rule);
  if (!mix.is_none()) options.mix = image_mix(mix);
  visit_numbers([&]<class Value>(const detail::Field<Loader::Options, Value>& field) {
    options.*field.member = nb::cast<Value>(numbers[std::string(field.name).c_str()]);
  });
  if (!memory.is_none()) options.memory = python_memory(memory);
  std::shared_ptr<Reducer> reducer = ranks.is_none() ? single_process() : python_reducer(ranks);
  const nb::object kept =
      nb::make_tuple(parts, nb::tuple(columns), nb::borrow(memory), nb::borrow(ranks));
  new (self) LoaderObject(all.data, options, std::move(reducer), gives_torch, kept);
}

/// Waits until the next batch is ready, and leaves it in the loader. If a signal's handler raises,
/// the batch is thus not lost.
void wait_for_batch(const LoaderObject& object, Loader& loader) {
  for (bool is_there = false; !is_there;) {
    if (object.has_threads()) {
      const GilReleased released;
      is_there = detail::LoaderAccess::wait(loader, kSignalInterval);
    } else {
      run_without_gil(
          [&](const CancelToken&) { is_there = detail::LoaderAccess::wait(loader, {}); },
          [&] { loader.stop(); });
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
}

nb::object next_batch(LoaderObject& self) {
  const Use use(self);
  wait_for_batch(self, use.loader());
  std::optional<Batch> batch;
  {
    const GilReleased released;
    batch = use.loader().next();
  }
  return batch ? nb::cast(BatchObject{*std::move(batch), self.gives_torch()}) : nb::none();
}

nb::dict bad_samples(LoaderObject& self) {
  const Use use(self);
  nb::dict all;
  const SkipList bad = self.bad_samples();
  for (const auto& [sample, entry] : bad.samples()) {
    all[nb::int_(sample)] = name_object(entry.reason);
  }
  return all;
}

/// Converts a statistic to a Python object. Times become seconds.
template <class Value>
nb::object shown_in_python(const Value& value) {
  if constexpr (std::is_same_v<Value, std::chrono::nanoseconds>) {
    return nb::float_(std::chrono::duration<double>(value).count());
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return name_object(value);
  } else if constexpr (requires { value.begin(); }) {
    nb::list all;
    for (const auto& one : value) all.append(shown_in_python(one));
    return all;
  } else if constexpr (std::is_same_v<Value, Loader::Stats::Forgiven>) {
    return nb::make_tuple(name_object(value.kind), value.images, name_object(value.first_sample));
  } else {
    return nb::cast(value);
  }
}

nb::dict stats(const LoaderObject& self) {
  const Loader::Stats stats = self.loader().stats();
  nb::dict all;
  detail::visit_fields<Loader::Stats>([&](const auto& field) {
    all[std::string(field.name).c_str()] = shown_in_python(stats.*field.member);
  });
  return all;
}

/// Returns (rank, samples, group) of each rank in a step of batches by group or length.
nb::list explain(LoaderObject& self, std::uint64_t step) {
  const auto ranks = used(self, [&](Loader& loader) {
    return detail::explain_batches(detail::LoaderAccess::plan(loader), step);
  });
  nb::list all;
  for (const detail::RankBatch& rank : ranks) {
    all.append(
        nb::make_tuple(rank.step.rank, nb::cast(rank.step.samples), name_object(rank.group)));
  }
  return all;
}

/// Returns (rank, step, place, position) of each delivery of a sample, with batches by group or
/// length.
nb::list when(LoaderObject& self, std::uint64_t sample) {
  const auto times = used(self, [&](Loader& loader) {
    return detail::when_in_batches(detail::LoaderAccess::plan(loader), sample);
  });
  nb::list all;
  for (const Sampler::SampleTime& time : times) {
    all.append(nb::make_tuple(time.rank, time.step, time.place, time.position));
  }
  return all;
}

/// Restores a token. Returns true if the loader is then within an epoch.
bool restore(LoaderObject& self, const std::string& text, bool allow_changes) {
  return used(self, [&](Loader& loader) {
    const ResumeToken token = ResumeToken::from_text(text);
    loader.restore(
        token, allow_changes ? Sampler::Changes::kAllowAtEpochBorder : Sampler::Changes::kRefuse);
    self.set_bad_before(token.skip);
    return loader.epoch_number() == token.epoch && (token.position > 0 || token.batches);
  });
}

}  // namespace

void add_loaders(nb::module_& module) {
  nb::class_<LoaderObject>(module, "Loader", nb::type_slots(slots), nb::is_weak_referenceable(),
                           nb::is_final(), "Implements shardwise.Loader.")
      .def("__init__", &make, "data"_a, nb::kw_only(), "columns"_a, "order"_a, "by_length"_a.none(),
           "by_group"_a.none(), "mix"_a.none(), "memory"_a.none(), "ranks"_a.none(),
           "gives_torch"_a, "numbers"_a,
           nb::sig("def __init__(self, data: typing.Any, **options: typing.Any) -> None"))
      .def_static("numbers", &numbers, nb::sig("def numbers() -> dict[str, tuple[int, int]]"))
      .def("next", &next_batch, nb::sig("def next(self) -> Batch | None"))
      .def("start", [](LoaderObject& self) { used(self, [](Loader& loader) { loader.start(); }); })
      .def("stop",
           [](const LoaderObject& self) {
             if (!self.is_closed()) self.loader().stop();
           })
      .def("close", &LoaderObject::close)
      .def_prop_ro("is_closed", &LoaderObject::is_closed)
      .def(
          "set_epoch",
          [](LoaderObject& self, std::uint64_t epoch) {
            used(self, [&](Loader& loader) { loader.set_epoch(epoch); });
          },
          "epoch"_a)
      .def("prove",
           [](LoaderObject& self) {
             return used(self, [](Loader& loader) { return loader.prove(); });
           })
      .def("state",
           [](LoaderObject& self) {
             return used(self, [](Loader& loader) { return loader.state().to_text(); });
           })
      .def("restore", &restore, "token"_a, "allow_changes"_a)
      .def("explain", &explain, "step"_a,
           nb::sig("def explain(self, step: int) -> list[tuple[int, list[int], str]]"))
      .def("when", &when, "sample"_a,
           nb::sig("def when(self, sample: int) -> list[tuple[int, int, int, int]]"))
      .def("bad_samples", &bad_samples, nb::sig("def bad_samples(self) -> dict[int, str]"))
      .def_prop_ro("epoch", [](LoaderObject& self) { return Use(self).loader().epoch_number(); })
      .def_prop_ro("steps", [](LoaderObject& self) { return Use(self).loader().steps(); })
      .def_prop_ro("steps_left", [](LoaderObject& self) { return Use(self).loader().steps_left(); })
      .def_prop_ro(
          "steps_done",
          [](LoaderObject& self) { return detail::LoaderAccess::steps_done(Use(self).loader()); })
      .def_prop_ro("has_ended", [](LoaderObject& self) { return Use(self).loader().has_ended(); })
      .def("cache_warning",
           [](LoaderObject& self) {
             return used(self, [](Loader& loader) { return loader.cache_warning(); });
           })
      .def("stream_warning",
           [](LoaderObject& self) {
             return used(self, [](Loader& loader) { return loader.stream_warning(); });
           })
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def(
          "keep_events",
          [](LoaderObject& self, std::size_t max_events) {
            const Use use(self);
            detail::LoaderAccess::keep_events(use.loader(), max_events);
            self.traced_since = std::chrono::steady_clock::now();
          },
          "max_events"_a)
      .def("trace_text",
           [](const LoaderObject& self) {
             return detail::trace_text(detail::LoaderAccess::events(self.loader()),
                                       self.traced_since);
           })
      .def_static("wait_for_dropped",
                  [] {
                    const GilReleased released;
                    DroppedLoaders::get().wait();
                  })
      .def("summary", [](const LoaderObject& self) { return self.loader().stats().summary(); });
}

}  // namespace shardwise::python
