#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "base/rank_environment.h"
#include "batch_plan.h"
#include "errors.h"
#include "objects.h"
#include "options.h"
#include "order/sampler_access.h"
#include "orders.h"
#include "sample_numbers.h"
#include "samplers.h"
#include "shardwise/base/error.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// The contents of an iterator over a sampler, or over its batches if it has a `rule`.
struct IteratorObject {
  SamplerPointer sampler;
  std::optional<BatchRule> rule = std::nullopt;
  BatchPlan plan{};
  /// How the consumer groups the samples into batches. All ranks must have the same number of
  /// batches.
  std::optional<BatchRule> cut = std::nullopt;
};

IteratorObject batch_iterator(const Sampler& sampler, const BatchRule& rule) {
  return {.sampler = sampler.clone(), .rule = rule, .plan = BatchPlan(sampler, rule)};
}

PyObject* next_sample(IteratorObject& it) {
  const auto sample = it.sampler->next();
  return sample ? PyLong_FromUnsignedLongLong(*sample) : nullptr;
}

PyObject* next_batch(IteratorObject& it) {
  std::vector<std::uint64_t> numbers(it.plan.size_at(it.sampler->position()));
  if (numbers.empty()) return nullptr;
  numbers.resize(it.sampler->next_batch(numbers));
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  if (list == nullptr) return nullptr;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    PyObject* number = PyLong_FromUnsignedLongLong(numbers[i]);
    if (number == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SetItem(list, static_cast<Py_ssize_t>(i), number);
  }
  return list;
}

PyObject* iterator_next(PyObject* self) noexcept {
  return guarded(
      [&]() -> PyObject* {
        IteratorObject& it = held_in<IteratorObject>(self);
        return it.rule ? next_batch(it) : next_sample(it);
      },
      static_cast<PyObject*>(nullptr));
}

PyType_Slot iterator_slots[] = {
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(iterator_next)},
    {0, nullptr},
};

/// Returns a token for the samples so far, assuming that every rank has taken the same number.
ResumeToken token_of(const IteratorObject& it) {
  if (!it.rule) return it.sampler->token();
  if (it.plan.size_at(it.sampler->position()) == 0) return BatchPlan::token_at_end(*it.sampler);
  return it.plan.token_after(*it.sampler, it.plan.batches_before(it.sampler->position()));
}

/// Returns token_of() as text, or None if there is no token: within a step of balanced bytes.
nb::object token_if_any(const IteratorObject& it) {
  try {
    return nb::cast(token_of(it).to_text());
  } catch (const InvalidArgument&) {
    return nb::none();
  }
}

nb::dict state_of(const IteratorObject& it) {
  const Sampler& sampler = *it.sampler;
  nb::dict state;
  state["epoch"] = sampler.epoch();
  state["position"] = sampler.position();
  state["rank"] = sampler.rank();
  state["world_size"] = sampler.world_size();
  state["replicas"] = sampler.replicas();
  state["start"] = sampler.token_after(0).to_text();
  state["token"] = token_if_any(it);
  return state;
}

template <class T>
T entry(const nb::dict& state, const char* name) {
  const auto refuse = [](const std::string& why) {
    throw InvalidArgument("the dict is not a state of a sampler's iterator", why,
                          "give the complete state_dict() of the iterator");
  };
  if (!state.contains(name)) refuse("no entry " + std::string(name));
  T value{};
  const nb::object given = state[name];
  if (!nb::try_cast(given, value)) refuse("entry " + std::string(name) + " is " + shown(given));
  return value;
}

/// Rank `other` delivered `position` samples. Returns the position of `it` after the same number of
/// steps or batches.
std::uint64_t same_step(const IteratorObject& it, std::uint64_t other, std::uint64_t position) {
  const Sampler& sampler = *it.sampler;
  if (other == sampler.rank()) return std::min(position, sampler.size());
  const SamplerPointer there = sampler.for_rank(other);
  if (it.rule) {
    const BatchPlan plan(*there, *it.rule);
    if (!plan.has_border_at(position)) return std::min(position, sampler.size());
    return BatchPlan(sampler, *it.rule).position_after(plan.batches_before(position));
  }
  if (position >= there->size()) return sampler.size();
  const std::uint64_t step = there->step_of(position);
  return there->first_of_step(step) == position ? sampler.first_of_step(step)
                                                : std::min(position, sampler.size());
}

/// Returns the token `name` of a state: "start", where the iterator began, or "token", the position
/// of all ranks. Errors: Mismatch if the state has no such token, because it is within a step.
ResumeToken token_in(const nb::dict& state, const char* name) {
  const auto text = entry<std::optional<std::string>>(state, name);
  if (text) return ResumeToken::from_text(*text);
  throw Mismatch(
      "the state is within a step", "epoch " + std::to_string(entry<std::uint64_t>(state, "epoch")),
      "resume with the same number of ranks and batch size, or take the state between steps");
}

/// True if batches must be even, but rank `other` has no batch that begins at `position`. The batch
/// size has then changed.
bool has_other_batches(const IteratorObject& it, std::uint64_t other, std::uint64_t position) {
  return it.rule && it.rule->even &&
         !BatchPlan(*it.sampler->for_rank(other), *it.rule).has_border_at(position);
}

/// Moves to the position that state_of() saved. With the same number of ranks, this is the rank's
/// own position. Otherwise, and for even batches of another size, it is the token's position, to
/// which all ranks had advanced together.
void move_to_state(const IteratorObject& it, const nb::dict& state) {
  Sampler& sampler = *it.sampler;
  const auto epoch = entry<std::uint64_t>(state, "epoch");
  const auto position = entry<std::uint64_t>(state, "position");
  const auto rank = entry<std::uint64_t>(state, "rank");
  bool goes_by_own = entry<std::uint64_t>(state, "world_size") == sampler.world_size() &&
                     entry<std::uint64_t>(state, "replicas") == sampler.replicas();
  ResumeToken token = token_in(state, goes_by_own ? "start" : "token");
  sampler.resume(token);
  if (goes_by_own && token.epoch == epoch && has_other_batches(it, rank, position)) {
    goes_by_own = false;
    token = token_in(state, "token");
    sampler.resume(token);
  }
  if (token.epoch != epoch) {  // the token of the end of an epoch is the beginning of the next
    sampler.set_epoch(epoch);
    sampler.seek(sampler.size());
  } else if (goes_by_own) {
    sampler.seek(same_step(it, rank, position));
  }
}

void load_state(IteratorObject& it, const nb::dict& state) {
  IteratorObject moved{.sampler = it.sampler->clone(), .rule = it.rule, .cut = it.cut};
  move_to_state(moved, state);
  const std::uint64_t place = moved.sampler->position();
  if (it.cut && place < moved.sampler->size()) require_same_count(*moved.sampler, *it.cut, place);
  if (it.rule) {
    moved.plan = BatchPlan(*moved.sampler, *it.rule);
    if (!moved.plan.has_border_at(place)) {
      moved.plan = BatchPlan(*moved.sampler, *it.rule, place);
    }
  }
  it = std::move(moved);
}

/// Returns this process's rank and the number of ranks, as the launcher has set them.
std::pair<int, int> ranks_of_launcher() {
  const RankEnvironment found = rank_environment();
  return {found.rank, found.world_size};
}

/// If torch is imported, refuses a DataLoader that would lose or repeat samples.
/// Errors: InvalidArgument.
void refuse_readers(nb::handle sampler) {
  const nb::dict modules = nb::module_::import_("sys").attr("modules");
  if (!modules.contains("torch.utils.data")) return;
  nb::module_::import_("shardwise.torch.callers").attr("refuse_readers")(sampler);
}

/// Returns the ranks that share this machine's cache. Returns nothing if another of these ranks
/// warns for all.
std::optional<RankOptions::Range> node_of(const Sampler& sampler) {
  try {
    const RankEnvironment found = rank_environment();
    const bool is_launchers = static_cast<std::uint64_t>(found.rank) == sampler.rank() &&
                              static_cast<std::uint64_t>(found.world_size) == sampler.world_size();
    if (is_launchers && found.local_rank > 0) return std::nullopt;
    if (is_launchers) {
      return RankOptions::Range{.first = sampler.rank(),
                                .count = static_cast<std::uint64_t>(found.local_world_size)};
    }
  } catch (const Error&) {  // this call must not fail if a launcher's variables are wrong
  }
  return RankOptions::Range{.first = sampler.rank(), .count = 1};
}

std::optional<std::string> cache_warning(const SamplerObject& self, DatasetObject& dataset) {
  const auto node = node_of(*self.sampler);
  auto warning = node ? small_cache_warning(dataset.data, *self.sampler, *node) : std::nullopt;
  if (warning) dataset.watch.silence();
  return warning;
}

std::string shown_in_python(const SamplerObject& self) {
  const Sampler& sampler = *self.sampler;
  return "<shardwise.Sampler: rank " + std::to_string(sampler.rank()) + " of " +
         std::to_string(sampler.world_size()) + ", epoch " + std::to_string(sampler.epoch()) +
         ", " + std::to_string(sampler.size()) + " of " + std::to_string(sampler.num_samples()) +
         " samples, " + nb::cast<std::string>(nb::repr(nb::cast(self.order))) + ">";
}

SamplerObject make(nb::handle data, const Order& order, std::uint64_t rank,
                   std::uint64_t world_size, std::uint64_t batch_size,
                   std::uint64_t global_batch_size, std::uint64_t replicas) {
  auto sampler = make_sampler(sample_set(data), order_over(data, order),
                              {.rank = rank,
                               .world_size = world_size,
                               .batch_size = batch_size,
                               .global_batch_size = global_batch_size,
                               .replicas = replicas});
  // For data of other types, keep only the length.
  const bool is_own = is_mixed(data) || nb::isinstance<DatasetObject>(data);
  nb::object kept = is_own ? nb::borrow(data) : nb::object(nb::int_(sampler->num_samples()));
  return {std::move(sampler), std::move(kept), order, global_batch_size};
}

/// Returns a copy with another sampler for the same data.
SamplerObject with_sampler(const SamplerObject& self, SamplerPointer sampler) {
  return {std::move(sampler), self.data, self.order, self.global_batch_size};
}

nb::tuple sampler_state(const SamplerObject& self) {
  const Sampler& sampler = *self.sampler;
  return nb::make_tuple(self.data, self.order, sampler.rank(), sampler.world_size(),
                        self.global_batch_size == 0 ? sampler.batch_size() : 1,
                        self.global_batch_size, sampler.replicas(),
                        sampler.token_after(0).to_text(), sampler.epoch());
}

/// Errors: those of make(); Mismatch if the data has changed.
void set_sampler_state(SamplerObject& self, const nb::tuple& state) {
  const auto number = [&](std::size_t i) { return nb::cast<std::uint64_t>(state[i]); };
  SamplerObject made = make(state[0], nb::cast<Order>(state[1]), number(2), number(3), number(4),
                            number(5), number(6));
  detail::SamplerAccess::resume_at(*made.sampler,
                                   ResumeToken::from_text(nb::cast<std::string>(state[7])),
                                   Sampler::Changes::kRefuse, kMaxSamples);
  if (made.sampler->epoch() != number(8)) {  // the saved sampler was at the end of its epoch
    made.sampler->set_epoch(number(8));
    made.sampler->seek(made.sampler->size());
  }
  new (&self) SamplerObject(std::move(made));
}

SamplerObject& sampler_in(PyObject* self) { return held_in<SamplerObject>(self); }

int traverse_sampler(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(sampler_in(self).data.ptr());
  return 0;
}

int clear_sampler(PyObject* self) {
  if (nb::inst_ready(self)) sampler_in(self).data = nb::none();
  return 0;
}

PyType_Slot sampler_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_sampler)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_sampler)},
    {0, nullptr},
};

}  // namespace

void add_samplers(nb::module_& module) {
  nb::class_<IteratorObject>(module, "SamplerIterator", nb::type_slots(iterator_slots),
                             nb::is_final(),
                             "An iterator over the rest of a sampler's epoch. Threads: one.")
      .def_prop_ro(
          "position", [](const IteratorObject& self) { return self.sampler->position(); },
          "Samples given since the sampler's beginning. Not a checkpoint: a DataLoader with "
          "workers takes samples long before it delivers them.")
      .def_prop_ro(
          "at_end",
          [](const IteratorObject& self) {
            const std::uint64_t position = self.sampler->position();
            return self.rule ? self.plan.size_at(position) == 0 : position == self.sampler->size();
          },
          "Whether the epoch is at its end.")
      .def(
          "token", [](const IteratorObject& self) { return token_of(self).to_text(); },
          "A resume token after the given samples, valid if all ranks took the same number. It "
          "counts samples that a DataLoader took ahead without delivering them: see "
          "Sampler.token().")
      .def("state_dict", &state_of, nb::sig("def state_dict(self) -> dict[str, typing.Any]"),
           "Its place, for load_state_dict().\n\n"
           ">>> sampler = shardwise.Sampler(10, shardwise.Order(\"sequential\"), rank=1, "
           "world_size=4)\n"
           ">>> it = iter(sampler)\n"
           ">>> next(it)\n"
           "1\n"
           ">>> again = iter(sampler)\n"
           ">>> again.load_state_dict(it.state_dict())\n"
           ">>> next(again)\n"
           "5")
      .def("load_state_dict", &load_state, "state_dict"_a,
           nb::sig("def load_state_dict(self, state_dict: dict[str, typing.Any]) -> None"),
           "Continues at the place of state_dict(). With the same number of ranks this is exact "
           "for each rank; with another number it is the place of all ranks, if each had taken the "
           "same number. Raises Mismatch for other data or another order.")
      .def(
          "restart",
          [](IteratorObject& self, const SamplerObject& sampler) {
            if (self.rule) {
              self = batch_iterator(*sampler.sampler, *self.rule);
            } else {
              self = {.sampler = sampler.sampler->clone(), .cut = self.cut};
            }
          },
          "sampler"_a, "Moves to the beginning of a sampler.")
      .def(
          "require_even",
          [](IteratorObject& self, std::uint64_t size, bool drop_last) {
            self.cut = BatchRule{.size = size, .drop_last = drop_last};
            require_same_count(*self.sampler, *self.cut, self.sampler->position());
          },
          "size"_a, "drop_last"_a,
          "Raises InvalidArgument if the ranks would have different numbers of such batches, now "
          "or after load_state_dict().");

  nb::class_<SamplerObject>(
      module, "Sampler", nb::type_slots(sampler_slots), nb::is_weak_referenceable(),
      "The sample numbers that one rank reads in an epoch, in order.\n\n"
      "data: a Dataset, a mix() of several, an object with a length, or that length.\n"
      "order: an Order; for a mix() with weights, the order within each data set.\n"
      "rank, world_size: the rank whose samples these are, and the number of ranks.\n"
      "batch_size: samples per step on each rank.\n"
      "global_batch_size: samples per step on all ranks together, instead of batch_size.\n"
      "replicas: neighbouring ranks that get the same samples.\n\n"
      "Each ``for i in sampler`` starts at the sampler's beginning. ``sampler[k]`` is sample k.\n\n"
      "Cost: about 20 ns per sample; constant memory.\nThreads: one at a time.\n"
      "Pickling: with its beginning, and its data as a reference.\n\n"
      ">>> sampler = shardwise.Sampler(10, shardwise.Order(\"sequential\"), rank=1, "
      "world_size=4)\n"
      ">>> list(sampler), sampler[-1], sampler.steps\n"
      "([1, 5, 9], 9, 3)")
      .def(
          "__init__",
          [](SamplerObject* self, nb::handle data, const Order& order, std::uint64_t rank,
             std::uint64_t world_size, std::uint64_t batch_size, std::uint64_t global_batch_size,
             std::uint64_t replicas, const nb::kwargs& unknown) {
            refuse_unknown(nb::type<SamplerObject>(), unknown);
            new (self) SamplerObject(
                make(data, order, rank, world_size, batch_size, global_batch_size, replicas));
          },
          "data"_a, "order"_a = Order{}, nb::kw_only(), "rank"_a = 0, "world_size"_a = 1,
          "batch_size"_a = 1, "global_batch_size"_a = 0, "replicas"_a = 1, "unknown"_a,
          nb::sig("def __init__(self, data: typing.Any, order: Order = ..., *, rank: int = 0, "
                  "world_size: int = 1, batch_size: int = 1, global_batch_size: int = 0, "
                  "replicas: int = 1) -> None"))
      .def(
          "__len__", [](const SamplerObject& self) { return self.sampler->size(); },
          "Number of samples of this rank, from the sampler's beginning to the end of the epoch.")
      .def(
          "__iter__",
          [](nb::handle_t<SamplerObject> self) {
            IteratorObject made{nb::cast<const SamplerObject&>(self).sampler->clone()};
            refuse_readers(self);
            return made;
          },
          nb::sig("def __iter__(self) -> SamplerIterator"), "An iterator from the beginning.")
      .def(
          "batches",
          [](nb::handle_t<SamplerObject> self, std::uint64_t size, bool drop_last, bool even) {
            const auto& sampler = *nb::cast<const SamplerObject&>(self).sampler;
            IteratorObject made = batch_iterator(sampler, {size, drop_last, even});
            refuse_readers(self);
            return made;
          },
          "size"_a, "drop_last"_a = false, "even"_a = false,
          "An iterator over lists of ``size`` numbers. drop_last: leave out a shorter last list. "
          "even: make the same number of lists on all ranks: a rank with a list less gives its "
          "last sample in a separate list. Raises InvalidArgument if that is impossible.\n\n"
          ">>> list(sampler.batches(2))\n"
          "[[1, 5], [9]]")
      .def(
          "num_batches",
          [](const SamplerObject& self, std::uint64_t size, bool drop_last, bool even) {
            return BatchPlan(*self.sampler, {size, drop_last, even}).count();
          },
          "size"_a, "drop_last"_a = false, "even"_a = false, "Number of lists of batches().")
      .def(
          "token_after_batches",
          [](const SamplerObject& self, std::uint64_t num_batches, std::uint64_t size,
             bool drop_last, bool even) {
            const BatchPlan plan(*self.sampler, {size, drop_last, even});
            return plan.token_after(*self.sampler, num_batches).to_text();
          },
          "num_batches"_a, "size"_a, "drop_last"_a = false, "even"_a = false,
          "A resume token after this many lists of batches() on every rank.")
      .def(
          "__getitem__",
          [](const SamplerObject& self, nb::handle index) {
            const Py_ssize_t asked = index_of(index);
            return self.sampler->at(static_cast<std::uint64_t>(asked) +
                                    (asked < 0 ? self.sampler->size() : 0));
          },
          "index"_a, nb::sig("def __getitem__(self, index: int) -> int"),
          "The sample of this rank at this place. Raises OutOfRange.")
      .def(
          "set_epoch",
          [](SamplerObject& self, std::uint64_t epoch) { self.sampler->set_epoch(epoch); },
          "epoch"_a,
          "Moves to the beginning of an epoch. In the current epoch, moves to the sampler's "
          "beginning, which resume() may have set.")
      .def(
          "reset", [](SamplerObject& self) { self.sampler->reset(); },
          "Moves to the beginning of its epoch, also after resume().")
      .def_prop_ro(
          "epoch", [](const SamplerObject& self) { return self.sampler->epoch(); },
          "Number of the epoch.")
      .def_prop_ro(
          "rank", [](const SamplerObject& self) { return self.sampler->rank(); },
          "The rank whose samples these are.")
      .def_prop_ro(
          "world_size", [](const SamplerObject& self) { return self.sampler->world_size(); },
          "Number of ranks.")
      .def_prop_ro(
          "replicas", [](const SamplerObject& self) { return self.sampler->replicas(); },
          "Neighbouring ranks that get the same samples.")
      .def_prop_ro(
          "batch_size", [](const SamplerObject& self) { return self.sampler->batch_size(); },
          "Maximum samples per step on this rank.")
      .def_prop_ro(
          "steps", [](const SamplerObject& self) { return self.sampler->steps(); },
          "Steps to the end of the epoch, the same number on all ranks.")
      .def_prop_ro(
          "num_samples", [](const SamplerObject& self) { return self.sampler->num_samples(); },
          "Number of samples of the data set.")
      .def_prop_ro(
          "order", [](const SamplerObject& self) { return self.sampler->order(); }, "The order.")
      .def_prop_ro(
          "is_exact", [](const SamplerObject& self) { return self.sampler->is_exact(); },
          "Whether an epoch has each sample exactly once, apart from tail and skip.")
      .def_prop_ro(
          "fingerprint",
          [](const SamplerObject& self) { return to_string(self.sampler->fingerprint()); },
          "Fingerprint of the data set.")
      .def(
          "token",
          [](const SamplerObject& self, std::uint64_t steps) {
            return self.sampler->token_after(steps).to_text();
          },
          "steps"_a,
          "A resume token after ``steps`` steps of all ranks since the sampler's beginning: one "
          "line of text for a checkpoint. Count the batches that were trained on, not those that a "
          "DataLoader took from the sampler: with workers it takes many ahead.")
      .def(
          "resume",
          [](SamplerObject& self, const std::string& token, bool allow_changes) {
            self.sampler->resume(
                ResumeToken::from_text(token),
                allow_changes ? Sampler::Changes::kAllowAtEpochBorder : Sampler::Changes::kRefuse);
          },
          "token"_a, "allow_changes"_a = false,
          "Continues at a token, with any number of ranks and batch size. allow_changes: accept "
          "other weights of a mix() from here on; at the beginning of an epoch, also other data or "
          "another order. Raises Mismatch for other data or another order; VersionMismatch.\n\n"
          ">>> token = sampler.token(1)\n"
          ">>> alone = shardwise.Sampler(10, shardwise.Order(\"sequential\"))\n"
          ">>> alone.resume(token)\n"
          ">>> list(alone)\n"
          "[4, 5, 6, 7, 8, 9]")
      .def(
          "for_rank",
          [](const SamplerObject& self, std::uint64_t rank) {
            return with_sampler(self, self.sampler->for_rank(rank));
          },
          "rank"_a,
          "A sampler for another rank, with the same order and beginning.\n\n"
          ">>> [list(sampler.for_rank(rank)) for rank in range(4)]\n"
          "[[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]")
      .def("cache_warning", &cache_warning, "dataset"_a,
           "A warning for the user if the order uses more shards at one time than the dataset's "
           "cache can hold. None if it does not, or if another rank of the node gives the warning. "
           "Cost: some ms for a large index.")
      .def(
          "__copy__",
          [](const SamplerObject& self) { return with_sampler(self, self.sampler->clone()); },
          nb::sig("def __copy__(self) -> Sampler"))
      .def("__repr__", &shown_in_python)
      .def("__getstate__", &sampler_state,
           nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", &set_sampler_state, "state"_a,
           nb::sig("def __setstate__(self, state: tuple[typing.Any, ...]) -> None"));

  nb::class_<EpochAudit>(
      module, "Audit",
      "Counts the samples that were delivered in an epoch, and proves at its end that they were "
      "exactly the due ones. Each rank has an Audit; the sums of their words over all ranks prove "
      "the epoch of all ranks.\n\n"
      ">>> sampler = shardwise.Sampler(400, world_size=2)\n"
      ">>> audits = [shardwise.Audit(sampler), shardwise.Audit(sampler)]\n"
      ">>> for rank, audit in enumerate(audits):\n"
      "...     audit.add(sampler.for_rank(rank))\n"
      ">>> words = [a + b for a, b in zip(audits[0].words(), audits[1].words())]  # all-reduce\n"
      ">>> audits[0].prove(sampler, words)\n"
      "'epoch 0: 400 samples, each exactly once: proven'")
      .def(
          "__init__",
          [](EpochAudit* self, const SamplerObject& sampler) {
            new (self) EpochAudit(sampler.sampler->fingerprint());
          },
          "sampler"_a)
      .def(
          "add",
          [](EpochAudit& self, nb::handle numbers) {
            const bool is_one = is_number(numbers);
            self.add(
                plain_numbers(is_one ? nb::object(nb::make_tuple(numbers)) : nb::borrow(numbers)));
          },
          "numbers"_a, nb::sig("def add(self, numbers: typing.Any) -> None"),
          "Adds delivered samples: a number, or several numbers.")
      .def("reset", &EpochAudit::reset, "Begins the next epoch.")
      .def(
          "words", [](const EpochAudit& self) { return self.sum().to_words(); },
          nb::sig("def words(self) -> list[int]"),
          "Ten integers below 2^32, to be summed over the ranks.")
      .def(
          "prove",
          [](EpochAudit& self, const SamplerObject& sampler,
             const std::optional<std::array<std::int64_t, EpochAudit::Sum::kNumWords>>& words) {
            EpochAudit all(sampler.sampler->fingerprint());
            all.set_sum(words ? EpochAudit::Sum::from_words(*words) : self.sum());
            SamplerPointer whole = sampler.sampler->clone();
            whole->reset();
            const EpochAudit::Expectation expectation = whole->expectation();
            all.prove(expectation, whole->epoch());
            return nb::module_::import_("shardwise.records")
                .attr("Proof")(all.verdict(expectation).text(whole->epoch()));
          },
          "sampler"_a, "words"_a = nb::none(),
          nb::sig("def prove(self, sampler: Sampler, words: collections.abc.Sequence[int] | None "
                  "= None) -> str"),
          "Proves the sampler's whole epoch: \"epoch 3: 20,000 samples, each exactly once: "
          "proven\". words: sums of words() over all ranks; by default those of this Audit. "
          "Raises NotExact, which names missing and repeated samples.")
      .def("__repr__", [](const EpochAudit& self) {
        return "<shardwise.Audit of " + std::to_string(self.sum().count) + " delivered samples>";
      });

  module.def("ranks_of_launcher", &ranks_of_launcher,
             nb::sig("def ranks_of_launcher() -> tuple[int, int]"),
             "This process's rank and the number of ranks, from the environment of torchrun "
             "(RANK, WORLD_SIZE), Open MPI, Slurm or PMI; (0, 1) without a launcher. Raises "
             "Distributed, naming the variable, if variables contradict each other.");
}

}  // namespace shardwise::python
