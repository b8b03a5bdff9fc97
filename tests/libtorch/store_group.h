#pragma once

#include <torch/torch.h>
#include <torch/version.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace shardwise::libtorch {

#if TORCH_VERSION_MAJOR >= 2
using GroupBase = c10d::Backend;
#else
using GroupBase = c10d::ProcessGroup;
#endif

struct DoneWork final : c10d::Work {
  bool wait(std::chrono::milliseconds) override { return true; }
};

/// A backend that c10d does not know, whose ranks exchange tensors through a store.
/// @param name  with "nccl", the library must pass only tensors on the GPU.
class StoreGroup final : public GroupBase {
 public:
  StoreGroup(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string name = "store")
      : GroupBase(rank, size), store_(std::move(store)), name_(std::move(name)) {}

  const std::string getBackendName() const override { return name_; }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<torch::Tensor>>& outputs,
                                           std::vector<torch::Tensor>& inputs,
                                           const c10d::AllgatherOptions&) override {
    outputs[0] = exchange(inputs[0]);
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<torch::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const auto all = torch::stack(exchange(tensors[0]));
    if (options.reduceOp == c10d::ReduceOp::SUM) tensors[0].copy_(all.sum(0));
    if (options.reduceOp == c10d::ReduceOp::MIN) tensors[0].copy_(all.amin(0));
    if (options.reduceOp == c10d::ReduceOp::MAX) tensors[0].copy_(all.amax(0));
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<torch::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    tensors[0].copy_(exchange(tensors[0])[static_cast<std::size_t>(options.rootRank)]);
    return c10::make_intrusive<DoneWork>();
  }

 private:
  std::vector<torch::Tensor> exchange(const torch::Tensor& own) {
    EXPECT_EQ(own.is_cuda(), name_ == "nccl");
    const torch::Tensor here = own.cpu();
    const auto* const bytes = static_cast<const std::uint8_t*>(here.data_ptr());
    const std::string number = std::to_string(num_calls_++) + "/";
    store_->set(number + std::to_string(getRank()),
                std::vector<std::uint8_t>(bytes, bytes + here.nbytes()));
    std::vector<torch::Tensor> all;
    for (int rank = 0; rank < getSize(); ++rank) {
      const auto theirs = store_->get(number + std::to_string(rank));
      torch::Tensor copy = torch::empty_like(here);
      std::memcpy(copy.data_ptr(), theirs.data(), theirs.size());
      all.push_back(copy.to(own.device()));
    }
    return all;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string name_;
  std::uint64_t num_calls_ = 0;
};

using Store = c10::intrusive_ptr<c10d::Store>;
/// Runs `body` on one thread per rank. Rethrows the error of the lowest rank that failed.
inline void on_threads(int size, const std::function<void(const Store& store, int rank)>& body) {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        body(store, rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace shardwise::libtorch
