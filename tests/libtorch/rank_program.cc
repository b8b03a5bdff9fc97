// One rank of a test: rank_program CASE OUT [ARGUMENTS]. Ends with 0 if the case held, else says on
// stderr what did not. What a rank has to tell the test goes to files that begin with OUT.

#include <torch/torch.h>

#include <cstdlib>
#include <exception>
#include <iostream>

#include "rank_case.h"
#include "shardwise/libtorch/advanced.h"

namespace {

using namespace shardwise;  // NOLINT(google-build-using-namespace): a program
namespace sl = shardwise::libtorch;

using test::Arguments;

void reduce(const Arguments&) {
  const auto group = sl::init_process_group({.connect_timeout = std::chrono::milliseconds(60'000),
                                             .timeout = std::chrono::milliseconds(60'000)});
  const int rank = group.rank();
  const int world = group.world_size();
  REQUIRE(world > 1 && group.local_rank() == rank && group.local_world_size() == world);
  const std::int64_t sum_of_ranks = world * (world - 1) / 2;

  REQUIRE(group.all_reduce(std::int64_t{rank}) == sum_of_ranks);
  REQUIRE(group.all_reduce(std::int64_t{rank}, sl::ProcessGroup::ReduceOp::kMax) == world - 1);
  REQUIRE(group.all_reduce(rank + 0.5, sl::ProcessGroup::ReduceOp::kMin) == 0.5);
  REQUIRE(group.any(rank == world - 1));
  REQUIRE(!group.any(false));

  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kInt32, torch::kInt64, torch::kUInt8}) {
    const auto tensor = torch::full({3, 5}, rank, type);
    group.all_reduce(tensor);
    REQUIRE(tensor.eq(sum_of_ranks).all().item<bool>());
  }
  // Strided: every second column of a matrix; the others stay.
  auto matrix = torch::full({4, 6}, rank, torch::kFloat);
  auto columns = matrix.slice(1, 0, 6, 2);
  group.all_reduce(columns);
  REQUIRE(columns.eq(static_cast<double>(sum_of_ranks)).all().item<bool>());
  REQUIRE(matrix.slice(1, 1, 6, 2).eq(rank).all().item<bool>());
  group.all_reduce(torch::empty({0}, torch::kFloat));

  for (int root = 0; root < world; ++root) {
    const auto tensor = torch::full({7}, rank, torch::kInt64);
    group.broadcast(tensor, root);
    REQUIRE(tensor.eq(root).all().item<bool>());
  }
  bool refused = false;
  try {
    group.broadcast(torch::zeros({1}), world);
  } catch (const OutOfRange&) {
    refused = true;
  }
  REQUIRE(refused);
  group.barrier();
}

/// Sums and extremes of every type, small ones (which go along with the announcement) and large,
/// are those that one process computes; the same for what comes from a rank.
void reduce_types(const Arguments&) {
  using Op = sl::ProcessGroup::ReduceOp;
  const auto group = sl::init_process_group();
  const int world = group.world_size();
  // Whole numbers, so that every order of additions gives the same.
  const auto of_rank = [](int rank, torch::ScalarType type, std::int64_t size) {
    torch::manual_seed(static_cast<std::uint64_t>(rank));
    const auto values = torch::randint(-50, 50, {size, 3}, torch::kFloat64);
    if (type == torch::kBool) return values.gt(25);
    if (c10::isComplexType(type)) return torch::complex(values, values.flip(0)).to(type);
    return (type == torch::kUInt8 ? values + 50 : values).to(type);
  };
  const auto combined = [&](Op op, torch::ScalarType type, std::int64_t size) {
    const bool is_complex = c10::isComplexType(type);
    const auto exact = is_complex                  ? torch::kComplexDouble
                       : c10::isFloatingType(type) ? torch::kFloat64
                                                   : torch::kInt64;
    auto all = of_rank(0, type, size).to(exact);
    for (int rank = 1; rank < world; ++rank) {
      const auto other = of_rank(rank, type, size).to(exact);
      if (op == Op::kSum) all = all + other;
      if (op == Op::kMin) all = torch::minimum(all, other);
      if (op == Op::kMax) all = torch::maximum(all, other);
    }
    return type == torch::kBool ? all.ne(0) : all.to(type);
  };
  for (const auto type : {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
                          torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64,
                          torch::kBool, torch::kComplexFloat, torch::kComplexDouble}) {
    for (const std::int64_t size : {1, 4, 1000}) {
      for (const Op op : {Op::kSum, Op::kMin, Op::kMax}) {
        if (c10::isComplexType(type) && op != Op::kSum) continue;
        const auto tensor = of_rank(group.rank(), type, size);
        group.all_reduce(tensor, op);
        REQUIRE(tensor.scalar_type() == type && tensor.equal(combined(op, type, size)));
        // Strided.
        auto columns = of_rank(group.rank(), type, size).t();
        group.all_reduce(columns, op);
        REQUIRE(columns.equal(combined(op, type, size).t()));
      }
      const auto given = of_rank(group.rank(), type, size);
      group.broadcast(given, world - 1);
      REQUIRE(given.equal(of_rank(world - 1, type, size)));
    }
  }
  // Added one by one in 16 bits, the ones are lost: 256 + 1 is 256 in bfloat16, 2048 + 1 2048 in
  // float16.
  for (const std::int64_t size : {1, 1000}) {
    const auto bfloat =
        torch::full({size}, group.rank() == 0 ? 256 : 1, torch::TensorOptions(torch::kBFloat16));
    group.all_reduce(bfloat);
    REQUIRE(bfloat.eq(world == 3 ? 258 : 256).all().item<bool>());
    const auto half =
        torch::full({size}, group.rank() == 0 ? 2048 : 1, torch::TensorOptions(torch::kHalf));
    group.all_reduce(half);
    REQUIRE(half.eq(world == 3 ? 2050 : 2048).all().item<bool>());
    // A NaN of any rank, and the extremes of the others.
    for (const Op op : {Op::kMin, Op::kMax}) {
      auto values = torch::full({size + 1}, group.rank(), torch::kFloat);
      if (group.rank() == world - 1) values[0] = std::nan("");
      values[size] = op == Op::kMin ? -INFINITY : INFINITY;
      group.all_reduce(values, op);
      REQUIRE(values[0].isnan().item<bool>());
      REQUIRE(values[size].eq(op == Op::kMin ? -INFINITY : INFINITY).item<bool>());
      const auto extreme = op == Op::kMin ? 0 : world - 1;
      REQUIRE(values.slice(0, 1, size).eq(extreme).all().item<bool>());
    }
  }
  // A conjugate is a view of bytes that are none.
  auto plain = torch::complex(torch::full({1000}, 2.0), torch::full({1000}, 3.0));
  auto conjugate = plain.conj();
  group.all_reduce(conjugate);
  REQUIRE(torch::imag(plain).eq(3.0 * world).all().item<bool>());
  REQUIRE(torch::imag(conjugate).eq(-3.0 * world).all().item<bool>());
  // What cannot be is refused before any other rank hears of it.
  const auto refused = [&](const torch::Tensor& tensor, Op op) {
    try {
      group.all_reduce(tensor, op);
    } catch (const Error& e) {
      REQUIRE(e.code() == ErrorCode::kUnsupported);
      return std::string(e.what());
    }
    throw std::runtime_error("it was not refused");
  };
  REQUIRE(refused(plain, Op::kMax) ==
          "a tensor of this kind has no minimum or maximum over the ranks: ComplexFloat, Strided; "
          "give a dense one of real numbers");
  REQUIRE(refused(torch::eye(3).to_sparse(), Op::kSum) ==
          "a tensor of this kind is not summed over the ranks: Float, Sparse; give a dense one of "
          "real numbers");
  group.barrier();
}

/// Gradients of one linear layer over samples shared unequally equal those of one process.
void gradients(const Arguments&) {
  const auto group = sl::init_process_group();
  const int world = group.world_size();
  const auto inputs = torch::arange(40, torch::kFloat).view({10, 4}).div(40);
  const auto targets = torch::arange(10, torch::kFloat).view({10, 1});
  const auto gradient = [&](torch::nn::Linear& layer, std::int64_t from, std::int64_t to) {
    torch::mse_loss(layer->forward(inputs.slice(0, from, to)), targets.slice(0, from, to),
                    torch::Reduction::Sum)
        .backward();
  };
  torch::manual_seed(group.rank());
  torch::nn::Linear layer(4, 1);
  sl::broadcast_parameters(*layer, group);
  torch::manual_seed(0);
  torch::nn::Linear alone(4, 1);
  REQUIRE(layer->weight.equal(alone->weight) && layer->bias.equal(alone->bias));
  gradient(alone, 0, 10);

  // Rank 0 takes 7, the next the rest, and every other none.
  sl::GradientAverager averager(layer->parameters());
  const std::int64_t from = group.rank() == 0 ? 0 : 7;
  const std::int64_t to = group.rank() == 0 ? 7 : (group.rank() == 1 ? 10 : 7);
  if (to > from) gradient(layer, from, to);
  REQUIRE(averager.average(to - from, group) == 10);
  REQUIRE(torch::allclose(layer->weight.grad(), alone->weight.grad() / 10, 1e-5, 1e-6));
  REQUIRE(torch::allclose(layer->bias.grad(), alone->bias.grad() / 10, 1e-5, 1e-6));
  // A step without any sample gives no gradients, whatever was there.
  REQUIRE(averager.average(0, group) == 0);
  REQUIRE(!layer->weight.grad().defined() && !layer->bias.grad().defined());
  REQUIRE(world > 1);
}

/// Parameters that get no gradient keep their value, on all ranks, whatever the weight decay.
void frozen(const Arguments&) {
  const auto group = sl::init_process_group();
  torch::manual_seed(0);
  torch::nn::Linear used(2, 2);
  torch::nn::Linear by_one(2, 2);  // its gradients are those of rank 1
  torch::nn::Linear by_none(2, 2);
  torch::nn::Linear fixed(2, 2);
  torch::nn::Sequential model(used, by_one, by_none, fixed);
  for (auto& parameter : fixed->parameters()) parameter.set_requires_grad(false);
  const auto copy_of = [](torch::nn::Linear& layer) { return layer->weight.detach().clone(); };
  const auto used_before = copy_of(used), by_one_before = copy_of(by_one),
             by_none_before = copy_of(by_none), fixed_before = copy_of(fixed);
  fixed->weight.mutable_grad() = torch::ones({2, 2});  // the program's own

  sl::GradientAverager averager(model->parameters());
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(0.1).weight_decay(0.5));
  const auto input = torch::ones({1, 2});
  auto output = used->forward(input);
  if (group.rank() == 1) output = by_one->forward(output);
  output.sum().backward();
  REQUIRE(averager.average(1, group) == group.world_size());
  REQUIRE(used->weight.grad().defined() && by_one->weight.grad().defined());
  REQUIRE(!by_none->weight.grad().defined() && !fixed->bias.grad().defined());
  REQUIRE(fixed->weight.grad().equal(torch::ones({2, 2})));
  fixed->weight.mutable_grad().reset();
  optimizer.step();
  REQUIRE(!used->weight.equal(used_before) && !by_one->weight.equal(by_one_before));
  REQUIRE(by_none->weight.equal(by_none_before) && fixed->weight.equal(fixed_before));
  sl::require_same_replicas(*model, group);
}

/// replicas OUT: what differs between the ranks' models is named.
void replicas(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const bool odd = group.rank() == 2;
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  sl::require_same_replicas(*model, group);
  std::ofstream out(arguments[1] + "." + std::to_string(group.rank()));
  const auto note = [&] {
    try {
      sl::require_same_replicas(*model, group);
    } catch (const Mismatch& e) {
      out << e.what() << std::endl;
      return;
    }
    throw std::runtime_error("no mismatch was found");
  };
  const torch::NoGradGuard no_grad;
  // One bit, of one number: 0 and -0.
  auto bias = model->ptr<torch::nn::LinearImpl>(0)->bias;
  bias.zero_();
  if (odd) bias[1].neg_();
  note();
  bias.zero_();
  sl::require_same_replicas(*model, group);
  // A batch that only this rank has seen: made the same by the average.
  model->train();
  model->forward(torch::full({4, 3}, group.rank(), torch::kFloat) * torch::arange(12).view({4, 3}));
  note();
  sl::average_buffers(*model, group);
  sl::require_same_replicas(*model, group);
  // Another shape.
  if (odd) model->push_back(torch::nn::Linear(1, 1));
  note();
}

/// The buffers of all ranks, added in float64 and rounded once.
void buffers(const Arguments&) {
  const auto group = sl::init_process_group();
  const int rank = group.rank();
  const int world = group.world_size();
  struct Holder : torch::nn::Module {};
  Holder module;
  const auto of_rank = [](int r) {
    torch::manual_seed(static_cast<std::uint64_t>(r));
    return torch::rand({5, 3}, torch::kFloat64) * 1e3;
  };
  module.register_buffer("a", of_rank(rank).to(torch::kFloat32));
  module.register_buffer("b", of_rank(rank).to(torch::kBFloat16).t());
  module.register_buffer("c", torch::full({2}, rank, torch::kInt64));
  module.register_buffer("d", torch::tensor({rank == 1, false}));
  module.register_buffer("e", torch::full({1}, 0.1F));
  module.register_buffer("f", of_rank(rank));
  sl::average_buffers(module, group);
  auto mean = torch::zeros({5, 3}, torch::kFloat64);
  auto coarse = torch::zeros({5, 3}, torch::kFloat64);
  for (int r = 0; r < world; ++r) {
    mean += of_rank(r).to(torch::kFloat32).to(torch::kFloat64);
    coarse += of_rank(r).to(torch::kBFloat16).to(torch::kFloat64);
  }
  const auto buffers = module.named_buffers();
  REQUIRE(buffers["a"].equal((mean / world).to(torch::kFloat32)));
  REQUIRE(buffers["b"].equal((coarse / world).to(torch::kBFloat16).t()));
  REQUIRE(buffers["c"].eq(world - 1).all().item<bool>());
  REQUIRE(buffers["d"].equal(torch::tensor({world > 1, false})));
  REQUIRE(buffers["e"].equal(torch::full({1}, 0.1F)));  // what was the same stays so
  sl::require_same_replicas(module, group);

  module.register_buffer("z", torch::zeros({1}, torch::kComplexFloat));
  std::string refused;
  try {
    sl::average_buffers(module, group);
  } catch (const Error& e) {
    REQUIRE(e.code() == ErrorCode::kUnsupported);
    refused = e.what();
  }
  REQUIRE(refused ==
          "complex numbers are not averaged over the ranks: buffer 'z'; keep it as two tensors of "
          "real numbers");
  group.barrier();
}

/// Parameters and buffers of every type become those of rank 0, large and small.
void types(const Arguments&) {
  const auto group = sl::init_process_group();
  struct Holder : torch::nn::Module {};
  const auto make = [](int rank) {
    torch::manual_seed(static_cast<std::uint64_t>(rank));
    auto module = std::make_shared<Holder>();
    for (const auto type :
         {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kFloat16,
          torch::kBFloat16, torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kBool}) {
      for (const std::int64_t size : {1, 37}) {
        const auto values = (torch::rand({size, 23}) * 100).round().to(type);
        const std::string name = std::string(c10::toString(type)) + std::to_string(size);
        module->register_buffer(name, values.t());
        if (values.is_floating_point()) module->register_parameter("p" + name, values);
      }
    }
    module->register_buffer("number", torch::full({}, rank, torch::kInt16));
    module->register_buffer("nothing", torch::empty({0}, torch::kBFloat16));
    return module;
  };
  const auto module = make(group.rank());
  sl::broadcast_parameters(*module, group);
  const auto first = make(0);
  for (const auto& item : first->named_parameters()) {
    REQUIRE(module->named_parameters()[item.key()].equal(item.value()));
  }
  for (const auto& item : first->named_buffers()) {
    REQUIRE(module->named_buffers()[item.key()].equal(item.value()));
  }
  sl::require_same_replicas(*module, group);
}

/// Gradients of several types, summed over several backward passes, are those of one process.
void accumulated(const Arguments&) {
  const auto group = sl::init_process_group();
  const auto inputs = torch::arange(40, torch::kFloat64).view({10, 4}).div(40);
  // How many samples each rank has in each of three passes: 10 in all.
  const std::vector<std::vector<std::int64_t>> shares = {{3, 1, 0}, {2, 0, 0}, {1, 1, 2}};
  REQUIRE(group.world_size() == 3);
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    torch::manual_seed(0);
    torch::nn::Linear layer(4, 3);
    layer->to(type);
    const auto gradients = [&](const torch::Tensor& part) {
      layer->forward(part.to(type)).to(torch::kFloat64).pow(2).sum().backward();
    };
    sl::GradientAverager averager(layer->parameters());
    std::int64_t at = 0;
    std::int64_t own = 0;
    for (const auto& pass : shares) {
      for (int rank = 0; rank < 3; ++rank) {
        const std::int64_t size = pass[static_cast<std::size_t>(rank)];
        if (rank == group.rank() && size > 0) gradients(inputs.slice(0, at, at + size));
        if (rank == group.rank()) own += size;
        at += size;
      }
    }
    REQUIRE(at == 10 && averager.average(own, group) == 10);
    const auto averaged = layer->weight.grad().clone();
    REQUIRE(averaged.scalar_type() == type);
    layer->zero_grad();
    gradients(inputs);
    const double tolerance =
        type == torch::kFloat64 ? 1e-14 : (type == torch::kFloat32 ? 1e-6 : 2e-2);
    REQUIRE(torch::allclose(averaged.to(torch::kFloat64),
                            layer->weight.grad().to(torch::kFloat64) / 10, tolerance, tolerance));
  }
  // Numbers that float32 and bfloat16 would round away.
  auto wide = torch::zeros({1}, torch::TensorOptions(torch::kFloat64).requires_grad(true));
  auto narrow = torch::zeros({1}, torch::TensorOptions(torch::kBFloat16).requires_grad(true));
  const std::int64_t rank = group.rank();
  wide.mutable_grad() = torch::full({1}, rank == 0 ? 1.0 : 1e-12, torch::kFloat64);
  narrow.mutable_grad() = torch::full({1}, rank == 0 ? 256 : 1, torch::kBFloat16);
  sl::GradientAverager({wide, narrow}).average(rank == 0 ? 1 : 0, group);
  REQUIRE(wide.grad().item<double>() == 1.0);
  wide.mutable_grad() = torch::full({1}, rank == 0 ? 1.0 : 1e-12, torch::kFloat64);
  narrow.mutable_grad() = torch::full({1}, rank == 0 ? 256 : 1, torch::kBFloat16);
  sl::GradientAverager({wide, narrow}).average(1, group);
  REQUIRE(wide.grad().item<double>() == (1.0 + 1e-12 + 1e-12) / 3);
  REQUIRE(narrow.grad().item<float>() == 86);  // 258 / 3; 257 is no bfloat16
  // Sparse ones become dense.
  auto table = torch::zeros({4, 2}, torch::requires_grad());
  table.mutable_grad() = torch::eye(4, 2).mul(rank).to_sparse();
  sl::GradientAverager({table}).average(1, group);
  REQUIRE(table.grad().equal(torch::eye(4, 2)));  // (0 + 1 + 2) / 3
}

/// evaluate INDEX RIGHT: a model that reads the class out of the pixels; RIGHT of them are labelled
/// so.
void evaluate(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  int calls = 0;
  const auto accuracy = sl::exact_accuracy(
      sl::Predict([&](const torch::Tensor& images) {
        ++calls;
        REQUIRE(images.size(0) > 0 && images.dtype() == torch::kUInt8);
        const auto classes = images.select(1, 0).select(1, 0).select(1, 0).to(torch::kInt64) / 20;
        return torch::one_hot(classes.to(torch::kInt64), 13).to(torch::kFloat);
      }),
      data, group, {.batch_size = 4, .threads = 1});
  REQUIRE(accuracy.count == static_cast<std::int64_t>(data.size()));
  REQUIRE(accuracy.sum == std::stod(arguments[2]));
  REQUIRE(calls > 0 || group.rank() >= static_cast<int>(data.size()));
}

/// evaluate-bits INDEX OUT: rank 0 writes every bit of what a model near ties makes of the samples.
void evaluate_bits(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                              torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(8 * 4 * 4, 13));
  {  // the classes differ in the last bits of their scores
    const torch::NoGradGuard no_grad;
    auto last = model->ptr<torch::nn::LinearImpl>(3);
    last->weight.mul_(1e-6).add_(last->weight[0].clone().div_(1e-6));
    last->bias.zero_();
  }
  const auto scores = [&](const torch::Tensor& images) {
    return model->forward(images.to(torch::kFloat).div(255));
  };
  const auto found = sl::evaluate(sl::Predict(scores), data, group,
                                  {.batch_size = 4, .threads = 1, .top_k = {1, 5}});
  const auto means = sl::exact_means(
      [&](const torch::Tensor& images, const torch::Tensor&) { return scores(images); }, data,
      group, {.batch_size = 4, .threads = 1});
  REQUIRE(found.num_samples == static_cast<std::int64_t>(data.size()));
  if (!group.is_first()) return;
  std::ofstream out(arguments[2]);
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
  REQUIRE(read && read->integer("rank") == 0);  // rank 0 wrote
  read->load_random_state(group);
  REQUIRE(torch::rand({3}).equal(next));
  if (group.is_first()) std::ofstream(arguments[1]) << "damaged";
  group.barrier();
  std::string refused;
  try {
    file.read();
  } catch (const Error& e) {
    REQUIRE(e.code() == ErrorCode::kInvalidArgument);
    refused = e.what();
  }
  REQUIRE(refused.find("the file is no whole checkpoint") != std::string::npos);
  std::string not_writable;
  try {
    sl::CheckpointFile(arguments[1] + "/no", group);
  } catch (const Error& e) {
    not_writable = e.what();
  }
  REQUIRE(not_writable.find(arguments[1]) != std::string::npos);
  group.barrier();
}

/// epochs INDEX OUT THREADS BATCH: writes OUT.<rank>: "step sample label" lines of two epochs.
void epochs(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  sl::ImageLoader loader(data, group,
                         {.order = {.seed = 5, .kind = Chunked{.chunk_size = 7, .window = 2}},
                          .batch_size = std::stoi(arguments[4]),
                          .threads = static_cast<unsigned>(std::stoi(arguments[3]))});
  std::ofstream out(arguments[2] + "." + std::to_string(group.rank()));
  for (auto epoch : loader.epochs(2)) {
    std::uint64_t step = 0;
    for (auto& batch : epoch) {
      REQUIRE(batch.images.sizes().slice(1).equals({3, 4, 4}));
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        out << epoch.number() << ' ' << step << ' ' << batch.samples[i].item<std::int64_t>() << ' '
            << batch.positions[i].item<std::int64_t>() << '\n';
      }
      ++step;
      REQUIRE(group.all_reduce(std::int64_t(step), sl::ProcessGroup::ReduceOp::kMin) ==
              static_cast<std::int64_t>(step));
    }
    REQUIRE(step == epoch.steps());
    REQUIRE(epoch.prove() == "epoch " + std::to_string(epoch.number()) + ": " +
                                 std::to_string(data.size()) +
                                 " samples, each exactly once: proven");
  }
}

/// resume INDEX TOKEN STEPS OUT: goes on from the file TOKEN, if it is there, for at most STEPS
/// steps; appends the samples to OUT.<rank>, and leaves the token, or proves the epoch.
void resume(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  sl::ImageLoader loader(
      data, group,
      {.order = {.seed = 5, .kind = Chunked{.chunk_size = 7}}, .batch_size = 3, .threads = 1});
  if (std::ifstream in(arguments[2]); in) {
    std::string text;
    in >> text;
    loader.loader().restore(ResumeToken::from_text(text));
  }
  group.barrier();
  std::ofstream out(arguments[4] + "." + std::to_string(group.rank()), std::ios::app);
  int steps = std::stoi(arguments[3]);
  while (steps-- > 0) {
    const auto batch = loader.next();
    if (!batch) break;
    for (std::int64_t i = 0; i < batch->size(); ++i) {
      out << batch->samples[i].item<std::int64_t>() << '\n';
    }
  }
  const auto token = loader.loader().state();
  if (loader.loader().steps_left() == 0) {
    REQUIRE(loader.epoch().prove() ==
            "epoch 0: " + std::to_string(data.size()) + " samples, each exactly once: proven");
  }
  if (group.is_first()) std::ofstream(arguments[2]) << token.to_text();
}

/// elastic INDEX CHECKPOINT STEPS OUT: goes on from the checkpoint for STEPS steps, or to the end
/// of three epochs. Appends "step sample" lines to OUT.<rank>, and proofs to OUT.proofs.
void elastic(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  sl::ImageLoader loader(data, group,
                         {.order = {.seed = 5, .kind = Chunked{.chunk_size = 7, .window = 2}},
                          .global_batch_size = 5,
                          .threads = 1});
  sl::CheckpointFile file(arguments[2], group);
  std::int64_t step = 0;
  if (const auto last = file.read()) {
    loader.loader().restore(last->token());
    step = last->integer("step");
  }
  const std::int64_t end = step + std::stoi(arguments[3]);
  std::ofstream out(arguments[4] + "." + std::to_string(group.rank()), std::ios::app);
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
        std::ofstream(arguments[4] + ".proofs", std::ios::app) << proof << '\n';
      }
    }
    if (step == end) break;
  }
  sl::Checkpoint now(loader.loader().state());
  now.put("step", step);
  file.write(now);
}

/// One life of a run over several epochs, in pieces: all ranks together, or each for itself, with
/// other batch sizes, threads and skip lists. All ranks draw the same random numbers.
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
      // Of ranks that get the same, one counts.
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

  /// No sample was lost and none came twice: counted, beside the proof.
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
    if (proof.find(std::to_string(different) + " samples, each exactly once") ==
        std::string::npos) {
      throw std::runtime_error("lost or not counted" + where);
    }
    // What is missing is left out by the list, bad, or the last row of a dropped tail.
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
  std::vector<std::int64_t> delivered_;  ///< in this epoch, by this rank
};

/// chains INDEX COUNT: lives through so many chains of resumes.
void chains(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  const auto count = std::stoull(arguments[2]);
  for (std::uint64_t seed = 0; seed < count; ++seed) Chain(data, group, seed).live();
}

/// A rank skips a batch: every rank must hear of it.
void unproven(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const auto data = Dataset::open(arguments[1]);
  sl::ImageLoader loader(data, group, {.batch_size = 2, .threads = 1});
  auto epoch = loader.epoch();
  std::uint64_t steps = epoch.steps() - (group.rank() == 1 ? 1 : 0);
  while (steps-- > 0) loader.next();
  try {
    epoch.prove();
  } catch (const NotExact&) {
    return;
  }
  throw std::runtime_error("the proof did not fail");
}

/// lost OUT RANK CALLS: the rank is killed after so many calls; the others must hear who it was.
void lost(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);  // the launcher ends ranks whose peer failed: not so fast
  const auto group = sl::init_process_group();
  const auto tensor = torch::ones({1000});
  for (int i = 0; i < std::stoi(arguments[3]); ++i) group.all_reduce(tensor);
  if (group.rank() == std::stoi(arguments[2])) std::raise(SIGKILL);
  std::string text;
  for (int i = 0; i < 2; ++i) {
    try {
      group.all_reduce(tensor);
    } catch (const Error& e) {
      REQUIRE(e.code() == ErrorCode::kDistributed);
      text += std::string(e.what()) + "\n";
    }
  }
  std::ofstream(arguments[1] + "." + std::to_string(group.rank())) << text;
}

/// hang OUT: rank 1 is stopped; the others' calls must end at their timeout, and say who it was.
void hang(const Arguments& arguments) {
  const auto group = sl::init_process_group({.timeout = std::chrono::milliseconds(5000)});
  const bool hangs = group.rank() == 1;
  const auto process = group.all_reduce(hangs ? std::int64_t{::getpid()} : std::int64_t{0});
  if (hangs) {
    std::raise(SIGSTOP);
    return;
  }
  std::string text;
  try {
    group.barrier();
  } catch (const Error& e) {
    text = e.what();
  }
  std::ofstream(arguments[1] + "." + std::to_string(group.rank())) << text;
  if (group.rank() != 2) return;
  // The launcher waits for it. Rank 0 has its letters by now, or waits for none.
  ::kill(static_cast<pid_t>(process), SIGKILL);
}

/// Says in OUT.ready.RANK that it makes calls, and in OUT.RANK what ended them.
void call_until_lost(const sl::ProcessGroup& group, const std::string& out) {
  group.barrier();
  const std::string rank = std::to_string(group.rank());
  std::ofstream(out + ".ready." + rank) << rank;
  std::string text;
  while (text.empty()) {
    try {
      group.barrier();
    } catch (const Error& e) {
      text = e.what();
    }
  }
  std::ofstream(out + "." + rank) << text;
}

/// unplugged OUT
void unplugged(const Arguments& arguments) {
  call_until_lost(sl::init_process_group({.timeout = std::chrono::milliseconds(5000)}),
                  arguments[1]);
}

#ifdef SHARDWISE_HAVE_GLOO
/// unplugged-adopted OUT: with a group that was made of addresses, by a file.
void unplugged_adopted(const Arguments& arguments) {
  const int rank = std::stoi(std::getenv("RANK"));
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = std::chrono::milliseconds(5000);
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(rank == 2 ? "10.77.15.2" : "10.77.15.1"));
  call_until_lost(
      sl::adopt_process_group(c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::FileStore>(arguments[1] + ".meeting", 3), rank, 3, options)),
      arguments[1]);
}
#endif

/// absent OUT: one rank waits for two more that never come.
void absent(const Arguments& arguments) {
  ::setenv("WORLD_SIZE", "3", 1);
  ::setenv("LOCAL_WORLD_SIZE", "3", 1);
  try {
    sl::init_process_group({.connect_timeout = std::chrono::milliseconds(10'000)});
  } catch (const Error& e) {
    REQUIRE(e.code() == ErrorCode::kDistributed);
    std::ofstream(arguments[1]) << e.what();
  }
}

/// twice OUT: both processes say they are rank 0.
void twice(const Arguments& arguments) {
  const std::string own = std::getenv("RANK");
  ::setenv("RANK", "0", 1);
  try {
    sl::init_process_group({.connect_timeout = std::chrono::milliseconds(10'000)});
  } catch (const Error& e) {
    std::ofstream(arguments[1] + "." + own) << e.what();
  }
}

/// by-hand PORT: no launcher: rank 0 listens at the port, and may leave first. Nobody says who
/// shares the machine. Groups may be made one after the other, and beside each other.
void by_hand(const Arguments& arguments) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    ::unsetenv(name);
  }
  ::setenv("MASTER_PORT", arguments[1].c_str(), 1);
  const int rank = std::stoi(std::getenv("RANK"));
  const auto group = sl::init_process_group({.connect_timeout = std::chrono::milliseconds(60'000)});
  REQUIRE(group.rank() == rank);
  REQUIRE(group.local_rank() == rank && group.local_world_size() == group.world_size());
  {
    const auto second = sl::init_process_group();
    REQUIRE(second.all_reduce(std::int64_t{1}) == second.world_size());
    REQUIRE(group.all_reduce(std::int64_t{2}) == 2 * group.world_size());
  }
  const auto third = sl::init_process_group();
  REQUIRE(third.all_reduce(std::int64_t{1}) == third.world_size());
  if (rank == 0) return;  // the others go on without it
  REQUIRE(group.local_rank() == rank);
}

/// out-of-step OUT: the ranks make other calls; every rank must hear which.
void out_of_step(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);
  using Call = std::function<void(const sl::ProcessGroup&)>;
  const std::vector<std::pair<Call, Call>> cases = {
      {[](const auto& group) { group.barrier(); },
       [](const auto& group) { group.all_reduce(std::int64_t{1}); }},
      // An int64 is no double, one size no other, a sum no maximum.
      {[](const auto& group) { group.all_reduce(1.5); },
       [](const auto& group) { group.all_reduce(std::int64_t{1}); }},
      {[](const auto& group) { group.all_reduce(torch::ones({100})); },
       [](const auto& group) { group.all_reduce(torch::ones({101})); }},
      {[](const auto& group) { group.all_reduce(torch::ones({10})); },
       [](const auto& group) { group.all_reduce(torch::ones({100'000})); }},
      {[](const auto& group) { group.all_reduce(torch::ones({1000})); },
       [](const auto& group) {
         group.all_reduce(torch::ones({1000}), sl::ProcessGroup::ReduceOp::kMax);
       }},
      {[](const auto& group) { group.broadcast(torch::ones({1000}), 0); },
       [](const auto& group) { group.broadcast(torch::ones({1000}), 1); }},
      {[](const auto& group) {
         group.require_same({{"a", "b"}});
       },
       [](const auto& group) { group.all_reduce(torch::ones({1000})); }},
  };
  std::ofstream out(arguments[1] + "." + std::getenv("RANK"));
  for (const auto& [most, odd] : cases) {
    const auto group = sl::init_process_group();
    group.all_reduce(std::int64_t{1});
    std::string text;
    try {
      (group.rank() == 2 ? odd : most)(group);
    } catch (const Error& e) {
      REQUIRE(e.code() == ErrorCode::kDistributed);
      text = e.what();
    }
    REQUIRE(!text.empty());
    out << text << '\n';
    bool is_broken = false;
    try {
      group.barrier();
    } catch (const Error&) {
      is_broken = true;
    }
    REQUIRE(is_broken);
  }
}

/// contract INDEX OTHER OUT: what must be the same on all ranks is not.
void contract(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const bool odd = group.rank() == 2;
  std::ofstream out(arguments[3] + "." + std::to_string(group.rank()));
  const auto note = [&](const std::function<void()>& call) {
    try {
      call();
    } catch (const Mismatch& e) {
      out << e.what() << std::endl;
      return;
    }
    throw std::runtime_error("no mismatch was found");
  };
  group.require_same({{"batch size", "32"}});
  group.require_same({});
  note([&] { group.require_same({{"batch size", odd ? "64" : "32"}, {"seed", "1"}}); });
  note([&] { group.require_same({{"notes", std::string(odd ? 5000 : 3, 'x')}}); });
  // The loaders' own: data, order, batch.
  const auto data = Dataset::open(arguments[odd ? 2 : 1]);
  const auto same = Dataset::open(arguments[1]);
  note([&] { sl::ImageLoader(data, group, {.batch_size = 2}); });
  note([&] { sl::ImageLoader(same, group, {.batch_size = odd ? 3 : 2}); });
  note([&] { sl::ImageLoader(same, group, {.order = {.seed = odd ? 9u : 8u}, .batch_size = 2}); });
  note([&] { sl::ImageLoader(same, group, {.batch_size = 2, .resize = {odd ? 4 : 8, 4}}); });
  // Threads are a rank's own affair.
  sl::ImageLoader(same, group, {.batch_size = 2, .threads = odd ? 2u : 1u});
  // A model's shapes.
  note([&] { sl::broadcast_parameters(*torch::nn::Linear(4, odd ? 3 : 2), group); });
  // The group is usable after all that.
  REQUIRE(group.all_reduce(std::int64_t{1}) == group.world_size());
}

/// report OUT: three ranks that did other things in their epoch.
void report(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  using std::chrono::milliseconds;
  Loader::Stats before;
  before.elapsed = milliseconds(5000);
  before.waited = milliseconds(1000);
  before.bytes_read = 1'000'000;
  before.bad_samples = 7;
  Loader::Stats now = before;
  // Each takes 10 s. Rank 1 waits for data, so the others wait for it.
  now.elapsed += milliseconds(10'000);
  now.waited += milliseconds(group.rank() == 1 ? 6000 : 500);
  now.decoding += milliseconds(1250 * (group.rank() + 1));
  now.bytes_read += 2'500'000;
  now.bad_samples += static_cast<std::uint64_t>(group.rank());
  const auto exchanged = milliseconds(group.rank() == 1 ? 1000 : 6500);
  const std::string text = sl::epoch_report(now, before, exchanged, group);
  std::ofstream(arguments[1] + "." + std::to_string(group.rank())) << text;
}

/// launched OUT JOB: a rank of a real launcher. Ranks of another job would have another name.
void launched(const Arguments& arguments) {
  const auto group =
      sl::init_process_group({.connect_timeout = std::chrono::milliseconds(120'000)});
  group.require_same({{"job", arguments[2]}});
  const int world = group.world_size();
  REQUIRE(group.all_reduce(std::int64_t{group.rank()}) == world * (world - 1) / 2);
  std::ofstream(arguments[1] + "." + arguments[2] + "." + std::to_string(group.rank()))
      << "world " << world << ", local " << group.local_rank() << " of "
      << group.local_world_size();
}

/// misled OUT NAME: the ranks do not meet. What they are told goes to a file.
void misled(const Arguments& arguments) {
  std::ofstream told(arguments[1] + "." + arguments[2] + "." + std::getenv("RANK"));
  try {
    sl::init_process_group({.connect_timeout = std::chrono::seconds(7),
                            .notice = [&](const std::string& text) { told << text << '\n'; }});
  } catch (const Error& e) {
    REQUIRE(e.code() == ErrorCode::kDistributed);
    return;
  }
  REQUIRE(false);
}

/// interrupted OUT: rank 1 gets a Ctrl-C while it waits for rank 2, which never comes.
void interrupted(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);
  static std::atomic<bool> flag{false};
  std::signal(SIGINT, [](int) { flag = true; });
  const int rank = std::stoi(std::getenv("RANK"));
  ::setenv("WORLD_SIZE", "3", 1);
  ::setenv("LOCAL_WORLD_SIZE", "3", 1);
  try {
    sl::init_process_group({.cancel = &flag, .notice = [&](const std::string& text) {
                              REQUIRE(text.find("waiting for rank") == 0);
                              if (rank == 1) ::kill(::getpid(), SIGINT);
                            }});
  } catch (const Error& e) {
    REQUIRE(e.code() == (rank == 1 ? ErrorCode::kCancelled : ErrorCode::kDistributed));
    std::ofstream(arguments[1] + "." + std::to_string(rank)) << e.what();
  }
}

/// connecting OUT int|kill: on both ranks Gloo's connecting never ends, and rank 1 gets a Ctrl-C
/// meanwhile, or is killed.
void connecting(const Arguments& arguments) {
  static std::atomic<bool> interrupted{false};
  static std::atomic<bool> is_connecting{false};
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, [](int) { interrupted = true; });
  const std::string rank = std::getenv("RANK");
  const std::string other = arguments[1] + ".connects." + (rank == "0" ? "1" : "0");
  static std::string own;
  own = arguments[1] + ".connects." + rank;
  set_fault_handler([](const char* name) {
    if (std::string(name) != "process_group.connect") return;
    std::ofstream(own) << "1";
    is_connecting = true;
    for (;;) ::pause();
  });
  std::thread killer;
  if (rank == "1") {
    killer = std::thread([&] {
      // Both are at it.
      while (!is_connecting || !std::ifstream(other)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ::kill(::getpid(), arguments[2] == "kill" ? SIGKILL : SIGINT);
    });
  }
  try {
    sl::init_process_group({.cancel = &interrupted});
  } catch (const Error& e) {
    REQUIRE(e.code() == (rank == "1" ? ErrorCode::kCancelled : ErrorCode::kDistributed));
    std::ofstream(arguments[1] + "." + rank) << e.what();
  }
  if (killer.joinable()) killer.join();
}

/// timeouts: that of a call, however short, is none of connecting.
void timeouts(const Arguments&) {
  using std::chrono::milliseconds;
  for (int i = 0; i < 5; ++i) {
    const auto group = sl::init_process_group({.timeout = milliseconds(1)});
    REQUIRE(group.world_size() == 3);
  }
}

void early_stop(const Arguments&) {
  const auto group = sl::init_process_group();
  sl::EarlyStop stop(group, {.patience = 2});
  // The ranks see other figures; rank 0's count.
  const std::vector<double> figures = {0.5, 0.6, 0.55, 0.6, 0.9};
  std::vector<bool> answers;
  for (const double figure : figures) {
    answers.push_back(stop.should_stop(group.rank() == 0 ? figure : 1.0 - figure));
  }
  REQUIRE((answers == std::vector<bool>{false, false, false, true, false}));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace shardwise::test;  // NOLINT(google-build-using-namespace): a program
  torch::set_num_threads(1);
  const Arguments arguments(argv + 1, argv + argc);
  try {
    for (const Cases* cases : {&call_cases(), &loading_cases(), &peer_cases(), &stop_cases()}) {
      for (const auto& [name, run] : *cases) {
        if (arguments.size() < 2 || arguments[0] != name) continue;
        run(arguments);
        return 0;
      }
    }
    throw std::runtime_error("no such case");
  } catch (const std::exception& e) {
    const char* rank = std::getenv("RANK");
    std::cerr << "rank " << (rank != nullptr ? rank : "?") << ": " << e.what() << std::endl;
    return 1;
  }
}
