// Cases in which ranks load, evaluate and save.

#include <torch/torch.h>

#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/counted.h"
#include "base/error_types.h"
#include "rank_case.h"
#include "shardwise/libtorch/advanced.h"

namespace shardwise::test {
namespace {

namespace sl = shardwise::libtorch;

/// evaluate-bits OUT INDEX: rank 0 writes all bits of the results of a model with near ties.
void evaluate_bits(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[2]);
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                              torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(8 * 4 * 4, 13));
  {  // the classes' scores differ only in the last bits
    const torch::NoGradGuard no_grad;
    auto last = model->ptr<torch::nn::LinearImpl>(3);
    last->weight.mul_(1e-6).add_(last->weight[0].clone().div_(1e-6));
    last->bias.zero_();
  }
  const auto scores = [&](const torch::Tensor& images) {
    REQUIRE(images.size(0) > 0 && images.dtype() == torch::kUInt8);
    return model->forward(images.to(torch::kFloat).div(255));
  };
  const auto found = sl::evaluate(sl::Predict(scores), data, group,
                                  {.batch_size = 4, .threads = 1, .top_k = {1, 5}});
  const auto means = sl::exact_means(
      [&](const torch::Tensor& images, const torch::Tensor&) { return scores(images); }, data,
      group, {.batch_size = 4, .threads = 1});
  REQUIRE(found.num_samples == static_cast<std::int64_t>(data.size()));
  // The model reads the class from the pixels. Every fifth sample has another label.
  const auto accuracy = sl::exact_accuracy(
      sl::Predict([&](const torch::Tensor& images) {
        const auto classes = images.select(1, 0).select(1, 0).select(1, 0).to(torch::kInt64) / 20;
        return torch::one_hot(classes.to(torch::kInt64), 13).to(torch::kFloat);
      }),
      data, group, {.batch_size = 4, .threads = 1});
  REQUIRE(accuracy.count == found.num_samples);
  REQUIRE(accuracy.sum == static_cast<double>(data.size() - data.size() / 5));
  if (!group.is_first()) return;
  std::ofstream out(arguments[1]);
  out << std::hexfloat << found.top[0].sum << ' ' << found.top[1].sum << ' ' << found.loss.sum
      << '\n'
      << found.confusion << '\n';
  for (const sl::Mean& mean : means) out << mean.sum << '\n';
}

/// checkpoint PATH: all ranks save, load and fail together.
void checkpoint(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  sl::CheckpointFile file(arguments[1], group);
  REQUIRE(!file.read());
  torch::manual_seed(static_cast<std::uint64_t>(group.rank()));
  torch::rand({3});
  sl::Checkpoint saved;
  saved.put("rank", std::int64_t{group.rank()});
  saved.put_random_state(group);
  const auto next = torch::rand({3});
  file.write(saved);
  const auto read = file.read();
  REQUIRE(read && read->integer("rank") == 0);  // rank 0 has written it
  read->load_random_state(group);
  REQUIRE(torch::rand({3}).equal(next));
  if (group.is_first()) std::ofstream(arguments[1]) << "damaged";
  group.barrier();
  REQUIRE(text_of(ErrorCode::kInvalidArgument, [&] {
            file.read();
          }).find("not a complete checkpoint") != std::string::npos);
  REQUIRE(text_of(std::nullopt, [&] {
            sl::CheckpointFile(arguments[1] + "/no", group);
          }).find(arguments[1]) != std::string::npos);

  const std::string path = arguments[1] + ".refused";
  sl::CheckpointFile refused(path, group, {.on_refused = [](const std::string&) { throw 7; }});
  for (int i = 0; i < 2; ++i) refused.write(saved);
  if (group.is_first()) std::ofstream(path) << "damaged";
  group.barrier();
  REQUIRE(text_of(ErrorCode::kIo, [&] { refused.read(); }).find("other than std::exception") !=
          std::string::npos);
  group.barrier();
}

/// elastic OUT INDEX CHECKPOINT STEPS: continues from the checkpoint for STEPS steps, or to the end
/// of three epochs. Appends lines "step sample" to OUT.<rank>, and proofs to OUT.proofs.
void elastic(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[2]);
  sl::ImageLoader loader(data, group,
                         {.order = {.seed = 5, .kind = Chunked{.chunk_size = 7, .window = 2}},
                          .global_batch_size = 5,
                          .threads = 1});
  sl::CheckpointFile file(arguments[3], group);
  std::int64_t step = 0;
  if (const auto last = file.read()) {
    loader.loader().restore(last->token());
    step = last->integer("step");
  }
  const std::int64_t end = step + std::stoi(arguments[4]);
  std::ofstream out(arguments[1] + "." + std::to_string(group.rank()), std::ios::app);
  for (auto epoch : loader.epochs(3)) {
    for (auto& batch : epoch) {
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        out << step << ' ' << batch.samples[i].item<std::int64_t>() << '\n';
      }
      if (++step == end) break;
    }
    if (loader.loader().has_ended()) {
      const std::string proof = epoch.prove();
      if (group.is_first()) {
        std::ofstream(arguments[1] + ".proofs", std::ios::app) << proof << '\n';
      }
    }
    if (step == end) break;
  }
  sl::Checkpoint now(loader.loader().state());
  now.put("step", step);
  file.write(now);
}

/// The life of a run over several epochs, in pieces. In a piece, either the ranks load together, or
/// each rank loads everything by itself. Pieces differ in batch size, threads and skip list. All
/// ranks draw the same random numbers.
class Chain {
 public:
  Chain(const Dataset& data, const sl::ProcessGroup& group, std::uint64_t seed)
      : data_(data), group_(group), random_(seed), seed_(seed) {
    order_.seed = random_();
    switch (random_() % 5) {
      case 0:
        order_.kind = Sequential{};
        break;
      case 1:
        order_.kind = Sharded{.window = 1 + random_() % 3};
        break;
      case 2:
        order_.kind = Resampled{};
        break;
      default:
        order_.kind = Chunked{.chunk_size = 1 + random_() % 9, .window = 1 + random_() % 4};
    }
    order_.tail = static_cast<Order::Tail>(random_() % 3);
    order_.balance_bytes = random_() % 3 == 0;
  }

  void live() {
    constexpr std::uint64_t kEpochs = 2;
    while (!token_ || token_->epoch < kEpochs) live_piece();
  }

 private:
  bool may_skip() const { return !std::holds_alternative<Resampled>(order_.kind); }

  void live_piece() {
    const bool together = random_() % 3 != 0;
    if (may_skip() && random_() % 3 == 0) order_.skip.add_sample(random_() % data_.size());
    if (may_skip() && random_() % 4 == 0) {
      const std::uint64_t begin = random_() % data_.size();
      order_.skip.add_positions(random_() % 2, begin, begin + random_() % 5);
    }
    sl::ImageLoader::Options options;
    options.order = order_;
    options.batch_size = static_cast<std::int64_t>(1 + random_() % 6);
    options.replicas = together && random_() % 3 == 0 ? 3 : 1;
    options.threads = static_cast<unsigned>(random_() % 3);
    options.max_bad = 10;
    const std::uint64_t most = random_() % 12;
    sl::ImageLoader loader(data_, together ? group_ : sl::ProcessGroup(), options);
    if (token_) loader.loader().restore(*token_);
    const std::uint64_t epoch = loader.epoch().number();
    for (std::uint64_t step = 0; step < most; ++step) {
      const auto batch = loader.next();
      if (!batch) break;
      // If several ranks get the same batches, count those of one rank.
      const bool counts = options.replicas == 1 ? together || group_.is_first() : group_.is_first();
      for (std::int64_t i = 0; counts && i < batch->size(); ++i) {
        delivered_.push_back(batch->samples[i].item<std::int64_t>());
      }
    }
    token_ = ResumeToken::from_text(loader.loader().state().to_text());
    if (token_->epoch == epoch) return;
    check_epoch(loader.epoch().prove(), options.replicas == 3 || !together ? 1 : 3);
    delivered_.clear();
  }

  /// Checks by counting, in addition to the proof, that no sample was lost or repeated.
  void check_epoch(const std::string& proof, std::uint64_t shares) {
    const auto counts = torch::zeros({static_cast<std::int64_t>(data_.size())}, torch::kInt64);
    for (const std::int64_t sample : delivered_) counts[sample] += 1;
    group_.all_reduce(counts);
    const std::string where = " in chain " + std::to_string(seed_) + ": " + proof;
    if (!may_skip()) {
      if (proof.find("as ordered") == std::string::npos) throw std::runtime_error("proof" + where);
      return;
    }
    const auto total = counts.sum().item<std::int64_t>();
    const auto different = counts.gt(0).sum().item<std::int64_t>();
    const bool pads = order_.tail == Order::Tail::kPad;
    if (!pads && total != different) throw std::runtime_error("repeated" + where);
    if (pads && total - different >= static_cast<std::int64_t>(shares)) {
      throw std::runtime_error("repeated too often" + where);
    }
    if (proof.find(counted(static_cast<std::uint64_t>(different), "sample") +
                   ", each exactly once") == std::string::npos) {
      throw std::runtime_error("lost or not counted" + where);
    }
    // A missing sample must be on the skip list, bad, or in the last row that a dropped tail omits.
    std::int64_t may_miss = static_cast<std::int64_t>(token_->skip.samples().size()) +
                            (order_.tail == Order::Tail::kDrop ? 8 : 0);
    for (const auto& [begin, end] : token_->skip.ranges()) {
      may_miss += static_cast<std::int64_t>(end - begin.second);
    }
    if (static_cast<std::int64_t>(data_.size()) - different > may_miss) {
      throw std::runtime_error("lost" + where);
    }
  }

  const Dataset& data_;
  const sl::ProcessGroup& group_;
  std::mt19937_64 random_;
  const std::uint64_t seed_;
  Order order_;
  std::optional<ResumeToken> token_;
  std::vector<std::int64_t> delivered_;  ///< samples that this rank got in this epoch
};

/// chains OUT INDEX COUNT: runs COUNT chains of resumes.
void chains(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[2]);
  const auto count = std::stoull(arguments[3]);
  for (std::uint64_t seed = 0; seed < count; ++seed) Chain(data, group, seed).live();
}

/// unproven OUT INDEX: a rank skips a batch; the proof must fail on every rank.
void unproven(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[2]);
  sl::ImageLoader loader(data, group, {.batch_size = 2, .threads = 1});
  auto epoch = loader.epoch();
  std::uint64_t steps = epoch.steps() - (group.rank() == 1 ? 1 : 0);
  while (steps-- > 0) loader.next();
  text_of(ErrorCode::kNotExact, [&] { epoch.prove(); });
}

void early_stop(const Arguments&) {
  const auto group = sl::init_process_group();
  sl::EarlyStop stop(group, {.patience = 2});
  // The ranks have different figures; those of rank 0 count.
  const std::vector<double> figures = {0.5, 0.6, 0.55, 0.6, 0.9};
  std::vector<bool> answers;
  for (const double figure : figures) {
    answers.push_back(stop.should_stop(group.rank() == 0 ? figure : 1.0 - figure));
  }
  REQUIRE((answers == std::vector<bool>{false, false, false, true, false}));
}

}  // namespace

const Cases& loading_cases() {
  static const Cases cases = {{"evaluate-bits", evaluate_bits},
                              {"checkpoint", checkpoint},
                              {"elastic", elastic},
                              {"chains", chains},
                              {"unproven", unproven},
                              {"early-stop", early_stop}};
  return cases;
}

}  // namespace shardwise::test
