#include "shardwise/libtorch/data_loader.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <cstring>

#include "base/assert.h"
#include "libtorch/token_tensor.h"

namespace shardwise::libtorch {
namespace detail {

void rethrow_for(const Sample& sample) {
  SHARDWISE_ASSERT(std::current_exception() != nullptr);
  const auto wrapped = [&](const std::string& reason) {
    return BadField("cannot decode a sample (" + reason + ")", sample.describe(),
                    "repair the sample, or leave the sample out");
  };
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& e) {
    throw wrapped(e.what_without_backtrace());
  } catch (const std::exception& e) {
    throw wrapped(e.what());
  } catch (...) {
    throw wrapped("an exception other than std::exception was thrown");
  }
}

Sample sample_at(const Dataset& data, std::size_t index) { return data[index]; }

torch::Tensor token_to_tensor(const ResumeToken& token) {
  const std::string text = token.to_text();
  auto tensor = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::memcpy(tensor.data_ptr(), text.data(), text.size());
  return tensor;
}

ResumeToken token_from_tensor(const torch::Tensor& tensor) {
  if (tensor.dim() != 1 || tensor.dtype() != torch::kUInt8) {
    throw InvalidArgument("the tensor is not a resume token", "the tensor is not one row of bytes",
                          "give the tensor that TorchSampler::save or the trainer wrote");
  }
  const auto plain = tensor.cpu().contiguous();
  return ResumeToken::from_text({reinterpret_cast<const char*>(plain.data_ptr<std::uint8_t>()),
                                 static_cast<std::size_t>(plain.numel())});
}

}  // namespace detail

struct TorchSampler::State {
  std::unique_ptr<shardwise::Sampler> sampler;
  std::uint64_t next_epoch = 0;
  bool keeps_place = true;  // the next reset() keeps the position, set by the constructor or load()
};

TorchSampler::TorchSampler(const shardwise::Sampler& sampler) : state_(std::make_shared<State>()) {
  state_->sampler = sampler.clone();
  state_->next_epoch = sampler.epoch();
}

void TorchSampler::reset(torch::optional<std::size_t> new_size) {
  State& state = *state_;
  if (new_size && *new_size != state.sampler->num_samples()) {
    throw InvalidArgument("the sampler's size cannot be changed", std::to_string(*new_size),
                          "make another sampler, or reset without a size");
  }
  if (state.next_epoch != state.sampler->epoch()) {
    state.sampler->set_epoch(state.next_epoch);
  } else if (!state.keeps_place) {
    state.sampler->reset();
  }
  state.keeps_place = false;
}

torch::optional<std::vector<std::size_t>> TorchSampler::next(std::size_t batch_size) {
  RECORD_USER_SCOPE("shardwise::TorchSampler::next");  // shown by PyTorch's profiler
  static_assert(std::is_same_v<std::size_t, std::uint64_t>);
  std::vector<std::size_t> batch(batch_size);
  batch.resize(state_->sampler->next_batch(batch));
  if (batch.empty()) return torch::nullopt;
  return batch;
}

void TorchSampler::set_epoch(std::uint64_t epoch) {
  if (epoch != state_->sampler->epoch()) state_->keeps_place = false;
  state_->next_epoch = epoch;
}

std::uint64_t TorchSampler::epoch() const noexcept { return state_->sampler->epoch(); }
std::uint64_t TorchSampler::position() const noexcept { return state_->sampler->position(); }
std::uint64_t TorchSampler::size() const noexcept { return state_->sampler->size(); }

void TorchSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("shardwise_token", detail::token_to_tensor(state_->sampler->token()),
                /*is_buffer=*/true);
}

void TorchSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor tensor;
  archive.read("shardwise_token", tensor, /*is_buffer=*/true);
  state_->sampler->resume(detail::token_from_tensor(tensor));
  state_->next_epoch = state_->sampler->epoch();
  state_->keeps_place = true;
}

}  // namespace shardwise::libtorch
