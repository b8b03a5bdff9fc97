#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "shardwise/loader/reducer.h"

namespace shardwise::test {

/// Ranks in one process, each with a thread.
class ThreadRanks {
 public:
  explicit ThreadRanks(std::uint64_t world_size)
      : world_size_(world_size), barrier_(static_cast<std::ptrdiff_t>(world_size)) {}

  std::shared_ptr<Reducer> rank(std::uint64_t rank) { return std::make_shared<Rank>(*this, rank); }

 private:
  class Rank : public Reducer {
   public:
    Rank(ThreadRanks& all, std::uint64_t rank) : all_(all), rank_(rank) {}
    [[nodiscard]] std::uint64_t rank() const noexcept override { return rank_; }
    [[nodiscard]] std::uint64_t world_size() const noexcept override { return all_.world_size_; }
    [[nodiscard]] std::uint64_t local_rank() const noexcept override { return rank_; }
    [[nodiscard]] std::uint64_t local_world_size() const noexcept override {
      return all_.world_size_;
    }
    void add(std::span<std::int64_t> words) override {
      {
        const std::lock_guard lock(all_.mutex_);
        all_.sums_.resize(words.size());
        for (std::size_t i = 0; i < words.size(); ++i) {
          all_.sums_[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(all_.sums_[i]) +
                                                    static_cast<std::uint64_t>(words[i]));
        }
      }
      all_.barrier_.arrive_and_wait();
      std::copy(all_.sums_.begin(), all_.sums_.end(), words.begin());
      all_.barrier_.arrive_and_wait();
      if (rank_ == 0) all_.sums_.clear();
      all_.barrier_.arrive_and_wait();
    }

   private:
    ThreadRanks& all_;
    const std::uint64_t rank_;
  };

  const std::uint64_t world_size_;
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::vector<std::int64_t> sums_;
};

/// Runs `work(rank)` for each rank, on one thread each.
template <class Work>
void on_ranks(std::uint64_t world_size, const Work& work) {
  std::vector<std::thread> threads;
  for (std::uint64_t rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] { work(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace shardwise::test
