#include "shardwise/loader/reducer.h"

#include <nanobind/stl/string.h>

#include <bit>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "loading.h"
#include "raised.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

/// Returns an int of any size modulo 2^64.
std::int64_t word_of(nb::handle number) {
  if (PyIndex_Check(number.ptr()) == 0) {
    throw nb::type_error(
        "all_reduce_sum() did not return a list of whole numbers; return the "
        "sums as a list of int");
  }
  const nb::object whole = nb::steal(PyNumber_Index(number.ptr()));
  if (!whole.is_valid()) nb::raise_python_error();
  const auto word = PyLong_AsUnsignedLongLongMask(whole.ptr());
  if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  return std::bit_cast<std::int64_t>(static_cast<std::uint64_t>(word));
}

class PythonReducer final : public Reducer {
 public:
  explicit PythonReducer(nb::handle ranks)
      : ranks_(ranks),
        rank_(number(ranks, "rank")),
        world_size_(number(ranks, "world_size")),
        local_rank_(number(ranks, "local_rank")),
        local_world_size_(number(ranks, "local_world_size")) {
    if (rank_ < world_size_ && local_rank_ < local_world_size_ && local_rank_ <= rank_ &&
        local_world_size_ <= world_size_) {
      return;
    }
    throw InvalidArgument("the ranks of the Reducer are not valid",
                          "rank " + std::to_string(rank_) + " of " + std::to_string(world_size_) +
                              ", local rank " + std::to_string(local_rank_) + " of " +
                              std::to_string(local_world_size_),
                          "number the ranks from 0, and the ranks of each node consecutively");
  }

  [[nodiscard]] std::uint64_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint64_t world_size() const noexcept override { return world_size_; }
  [[nodiscard]] std::uint64_t local_rank() const noexcept override { return local_rank_; }
  [[nodiscard]] std::uint64_t local_world_size() const noexcept override {
    return local_world_size_;
  }

  void add(std::span<std::int64_t> words) override {
    in_python([&] {
      nb::list own;
      for (const std::int64_t word : words) own.append(word);
      const nb::object sums = ranks_.attr("all_reduce_sum")(own);
      const std::size_t size = nb::len(sums);
      if (size != words.size()) {
        throw Error(ErrorCode::kDistributed, "all_reduce_sum() returned a list of another length",
                    std::to_string(size) + " numbers instead of " + std::to_string(words.size()),
                    "make all_reduce_sum() return one sum per number, and call it on every rank");
      }
      for (std::size_t i = 0; i < size; ++i) words[i] = word_of(sums[i]);
    });
  }

 private:
  static std::uint64_t number(nb::handle ranks, const char* name) {
    return nb::cast<std::uint64_t>(ranks.attr(name));
  }

  const nb::handle ranks_;
  const std::uint64_t rank_;
  const std::uint64_t world_size_;
  const std::uint64_t local_rank_;
  const std::uint64_t local_world_size_;
};

/// Checks size and device of objects that report them, e.g. tensors. Errors: InvalidArgument.
void require_room(nb::handle made, std::size_t size) {
  const auto given = nb::getattr(made, "nbytes", nb::int_(size));
  std::size_t num_bytes = 0;
  if (!nb::try_cast(given, num_bytes) || num_bytes < size) {
    throw InvalidArgument("the memory for a batch is too small",
                          std::to_string(num_bytes) + " bytes instead of " + std::to_string(size),
                          "make memory= return at least as many bytes as it is asked for");
  }
  const nb::object device = nb::getattr(made, "device", nb::str("cpu"));  // a str in NumPy
  const auto kind = nb::cast<std::string>(nb::str(nb::getattr(device, "type", device)));
  if (kind == "cpu") return;
  throw InvalidArgument("the memory for a batch is on the device " + kind, "",
                        "make memory= return CPU memory, pinned for copies to a GPU");
}

class PythonMemory final : public std::pmr::memory_resource {
 public:
  explicit PythonMemory(nb::handle allocate) : allocate_(allocate) {}

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    void* memory = nullptr;
    Kept block;
    in_python([&] {
      nb::object made = allocate_(size);
      require_room(made, size);
      memory = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(made.attr("data_ptr")()));
      block = keep(std::move(made));
    });
    if (memory == nullptr) {
      throw InvalidArgument("the memory for a batch has no address", "",
                            "make memory= return CPU memory, e.g. of torch.empty()");
    }
    if (reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) {
      throw InvalidArgument("the memory for a batch is not aligned", "",
                            "make memory= return addresses that are multiples of " +
                                std::to_string(alignment) + " bytes, e.g. of torch.empty()");
    }
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(memory, std::move(block));
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override {
    Kept block;  // declared before the lock, which must be released first: freeing waits for the
                 // GIL
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    block = std::move(found->second);
    blocks_.erase(found);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  const nb::handle allocate_;
  std::mutex mutex_;
  std::unordered_map<void*, Kept> blocks_;
};

}  // namespace

std::shared_ptr<Reducer> python_reducer(nb::handle ranks) {
  return std::make_shared<PythonReducer>(ranks);
}

std::shared_ptr<std::pmr::memory_resource> python_memory(nb::handle allocate) {
  return std::make_shared<PythonMemory>(allocate);
}

}  // namespace shardwise::python
