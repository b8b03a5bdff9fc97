#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise::detail {

[[noreturn]] SHARDWISE_EXPORT void throw_epoch_ended(std::uint64_t epoch);
[[noreturn]] SHARDWISE_EXPORT void throw_loader_moved_on(std::uint64_t epoch);

/// Returns the loader that counts epochs and steps: the inner Loader of an ImageLoader, or else
/// `loader`.
template <class Loader>
[[nodiscard]] decltype(auto) state_of(Loader& loader) noexcept {
  if constexpr (requires { loader.loader(); }) {
    return loader.loader();
  } else {
    return (loader);
  }
}

/// One epoch of a loader: a range of batches, and the proof at its end. It refers to the loader,
/// and is valid while the loader lives and is in this epoch.
template <class Loader>
class EpochRange {
 public:
  using Batch = typename Loader::Batch;

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;
    [[nodiscard]] Batch& operator*() const noexcept { return *batch_; }
    [[nodiscard]] Batch* operator->() const noexcept { return batch_.get(); }
    Iterator& operator++() {
      batch_.reset();  // the loader can then reuse its memory for the next batch
      if (auto next = loader_->next()) batch_ = std::make_shared<Batch>(*std::move(next));
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept {
      return it.batch_ == nullptr;
    }

   private:
    friend class EpochRange;
    explicit Iterator(Loader& loader) : loader_(&loader) { ++*this; }

    Loader* loader_ = nullptr;
    std::shared_ptr<Batch> batch_;
  };

  EpochRange(Loader& loader, std::uint64_t number) : loader_(&loader), number_(number) {}

  /// Starts or continues the epoch.
  /// Errors: those of the loader's next(). InvalidArgument if the end of the epoch was reached;
  ///   call the loader's set_epoch() or epochs() to continue. NotExact if the loader is in another
  ///   epoch.
  [[nodiscard]] Iterator begin() const {
    if (state_of(*loader_).epoch_number() != number_) throw_loader_moved_on(number_);
    if (state_of(*loader_).has_ended()) throw_epoch_ended(number_);
    return Iterator(*loader_);
  }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// The number of steps of this epoch from its beginning, or from the point of resumption. It is
  /// equal on all ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept { return state_of(*loader_).steps(); }

  /// Calls the loader's prove(). Errors: also NotExact if the loader is in another epoch.
  std::string prove() const {
    if (state_of(*loader_).epoch_number() != number_) throw_loader_moved_on(number_);
    return state_of(*loader_).prove();
  }

 private:
  Loader* loader_;
  std::uint64_t number_;
};

/// The result of a loader's epochs(). Incrementing the iterator moves the loader to the next epoch.
template <class Loader>
class EpochsRange {
 public:
  class Iterator {
   public:
    using value_type = EpochRange<Loader>;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    [[nodiscard]] value_type operator*() const { return loader_->epoch(); }
    Iterator& operator++() {
      ++number_;
      if (number_ < end_) state_of(*loader_).set_epoch(number_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept {
      return it.number_ >= it.end_;
    }

   private:
    friend class EpochsRange;
    Iterator(Loader& loader, std::uint64_t number, std::uint64_t end)
        : loader_(&loader), number_(number), end_(end) {}

    Loader* loader_;
    std::uint64_t number_;
    std::uint64_t end_;
  };

  EpochsRange(Loader& loader, std::uint64_t end) : loader_(&loader), end_(end) {}

  /// Continues the current epoch. If the current epoch has ended, begins the next one.
  [[nodiscard]] Iterator begin() const {
    const bool has_ended = state_of(*loader_).has_ended();
    const std::uint64_t next = state_of(*loader_).epoch_number() + (has_ended ? 1 : 0);
    if (has_ended && next < end_) state_of(*loader_).set_epoch(next);
    return {*loader_, next, end_};
  }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Loader* loader_;
  std::uint64_t end_;
};

}  // namespace shardwise::detail
