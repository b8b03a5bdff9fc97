// Cases of collective calls: sums, gradients, replicas, and settings that must be equal on all
// ranks.

#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error_types.h"
#include "rank_case.h"
#include "shardwise/libtorch/advanced.h"

namespace shardwise::test {
namespace {

namespace sl = shardwise::libtorch;

/// Compares sums and extremes of tensors of every type with those computed by one process, and
/// checks broadcasts. Small tensors are sent in the header, large ones are not.
void reduce_types(const Arguments&) {
  using Op = sl::ProcessGroup::ReduceOp;
  const auto group = sl::init_process_group();
  const int world = group.world_size();
  // Integer values, so that the result does not depend on the order of additions.
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
        // A tensor with strides.
        auto columns = of_rank(group.rank(), type, size).t();
        group.all_reduce(columns, op);
        REQUIRE(columns.equal(combined(op, type, size).t()));
      }
      const auto given = of_rank(group.rank(), type, size);
      group.broadcast(given, world - 1);
      REQUIRE(given.equal(of_rank(world - 1, type, size)));
    }
  }
  // Sums must not be rounded to 16 bits after each addition: 256 + 1 is 256 in bfloat16, and 2048 +
  // 1 is 2048 in float16.
  for (const std::int64_t size : {1, 1000}) {
    const auto bfloat =
        torch::full({size}, group.rank() == 0 ? 256 : 1, torch::TensorOptions(torch::kBFloat16));
    group.all_reduce(bfloat);
    REQUIRE(bfloat.eq(world == 3 ? 258 : 256).all().item<bool>());
    const auto half =
        torch::full({size}, group.rank() == 0 ? 2048 : 1, torch::TensorOptions(torch::kHalf));
    group.all_reduce(half);
    REQUIRE(half.eq(world == 3 ? 2050 : 2048).all().item<bool>());
    // The extremes if one rank has a NaN.
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
  // A conjugate is a view, whose bytes are those of the original.
  auto plain = torch::complex(torch::full({1000}, 2.0), torch::full({1000}, 3.0));
  auto conjugate = plain.conj();
  group.all_reduce(conjugate);
  REQUIRE(torch::imag(plain).eq(3.0 * world).all().item<bool>());
  REQUIRE(torch::imag(conjugate).eq(-3.0 * world).all().item<bool>());
  // Single numbers, and an empty tensor.
  REQUIRE(group.all_reduce(std::int64_t{group.rank()}) == world * (world - 1) / 2);
  REQUIRE(group.all_reduce(std::int64_t{group.rank()}, Op::kMax) == world - 1);
  REQUIRE(group.all_reduce(group.rank() + 0.5, Op::kMin) == 0.5);
  REQUIRE(group.any(group.rank() == world - 1) && !group.any(false));
  group.all_reduce(torch::empty({0}, torch::kFloat));
  REQUIRE(group.local_rank() == group.rank() && group.local_world_size() == world);
  // Unsupported tensors are refused before any communication.
  const auto refused = [&](const torch::Tensor& tensor, Op op) {
    return text_of(ErrorCode::kUnsupported, [&] { group.all_reduce(tensor, op); });
  };
  const std::string no_maximum = refused(plain, Op::kMax);
  REQUIRE(no_maximum.find("minimum or maximum") != std::string::npos);
  REQUIRE(no_maximum.find(": ComplexFloat, Strided; ") != std::string::npos);
  const std::string no_sum = refused(torch::eye(3).to_sparse(), Op::kSum);
  REQUIRE(no_sum.find("cannot be summed") != std::string::npos);
  REQUIRE(no_sum.find(": Float, Sparse; ") != std::string::npos);
  text_of(ErrorCode::kOutOfRange, [&] { group.broadcast(torch::zeros({1}), world); });
  group.barrier();
}

/// A parameter that gets no gradient on any rank keeps its value on all ranks, also with weight
/// decay.
void frozen(const Arguments&) {
  const auto group = sl::init_process_group();
  torch::manual_seed(0);
  torch::nn::Linear used(2, 2);
  torch::nn::Linear by_one(2, 2);  // only rank 1 has gradients for it
  torch::nn::Linear by_none(2, 2);
  torch::nn::Linear fixed(2, 2);
  torch::nn::Sequential model(used, by_one, by_none, fixed);
  for (auto& parameter : fixed->parameters()) parameter.set_requires_grad(false);
  const auto copy_of = [](torch::nn::Linear& layer) { return layer->weight.detach().clone(); };
  const auto used_before = copy_of(used), by_one_before = copy_of(by_one),
             by_none_before = copy_of(by_none), fixed_before = copy_of(fixed);
  fixed->weight.mutable_grad() = torch::ones({2, 2});  // a gradient set by the program

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

/// replicas OUT: the ranks' models differ, and each error must name the difference.
void replicas(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const bool odd = group.rank() == 2;
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  sl::require_same_replicas(*model, group);
  std::ofstream out(arguments[1] + "." + std::to_string(group.rank()));
  const auto note = [&] {
    out << text_of(ErrorCode::kMismatch, [&] { sl::require_same_replicas(*model, group); })
        << std::endl;
  };
  const torch::NoGradGuard no_grad;
  // A difference of one bit: 0 and -0.
  auto bias = model->ptr<torch::nn::LinearImpl>(0)->bias;
  bias.zero_();
  if (odd) bias[1].neg_();
  note();
  bias.zero_();
  sl::require_same_replicas(*model, group);
  // The buffers differ once each rank has seen another batch. Averaging makes them equal.
  model->train();
  model->forward(torch::full({4, 3}, group.rank(), torch::kFloat) * torch::arange(12).view({4, 3}));
  note();
  sl::average_buffers(*model, group);
  sl::require_same_replicas(*model, group);
  // A model with another shape.
  if (odd) model->push_back(torch::nn::Linear(1, 1));
  note();
}

/// Averages of buffers are summed in float64 and rounded once.
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
  REQUIRE(buffers["e"].equal(torch::full({1}, 0.1F)));  // equal values stay unchanged
  sl::require_same_replicas(module, group);

  module.register_buffer("z", torch::zeros({1}, torch::kComplexFloat));
  const std::string no_average =
      text_of(ErrorCode::kUnsupported, [&] { sl::average_buffers(module, group); });
  REQUIRE(no_average.find("complex numbers") != std::string::npos);
  REQUIRE(no_average.find(": buffer 'z'; ") != std::string::npos);
  group.barrier();
}

/// Broadcasts make parameters and buffers of every type, large and small, equal to rank 0's.
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

/// Gradients of several types, summed over several backward passes, equal those of one process.
void accumulated(const Arguments&) {
  const auto group = sl::init_process_group();
  const auto inputs = torch::arange(40, torch::kFloat64).view({10, 4}).div(40);
  // Number of samples per rank in each of three passes: 10 in total.
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
    // After a step without any sample there are no gradients, even if there were some before.
    REQUIRE(averager.average(0, group) == 0);
    REQUIRE(!layer->weight.grad().defined() && !layer->bias.grad().defined());
  }
  // Gradients whose sum float32 or bfloat16 would round to the largest of them.
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
  REQUIRE(narrow.grad().item<float>() == 86);  // 258 / 3; bfloat16 cannot represent 257
  // Sparse gradients become dense.
  auto table = torch::zeros({4, 2}, torch::requires_grad());
  table.mutable_grad() = torch::eye(4, 2).mul(rank).to_sparse();
  sl::GradientAverager({table}).average(1, group);
  REQUIRE(table.grad().equal(torch::eye(4, 2)));  // (0 + 1 + 2) / 3
}

/// out-of-step OUT: the ranks make different calls; every rank's error lists them.
void out_of_step(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);
  using Call = std::function<void(const sl::ProcessGroup&)>;
  const std::vector<std::pair<Call, Call>> cases = {
      {[](const auto& group) { group.barrier(); },
       [](const auto& group) { group.all_reduce(std::int64_t{1}); }},
      // Differences in type (int64, double), in size, and in the operation (sum, maximum).
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
    out << text_of(ErrorCode::kDistributed, [&] { (group.rank() == 2 ? odd : most)(group); })
        << '\n';
    text_of(ErrorCode::kDistributed, [&] { group.barrier(); });  // the group is broken
  }
}

/// contract OUT INDEX OTHER: one rank has another value of a setting that must be equal on all
/// ranks.
void contract(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  const bool odd = group.rank() == 2;
  std::ofstream out(arguments[1] + "." + std::to_string(group.rank()));
  const auto note = [&](const std::function<void()>& call) {
    out << text_of(ErrorCode::kMismatch, call) << std::endl;
  };
  group.require_same({{"batch size", "32"}});
  group.require_same({});
  note([&] { group.require_same({{"batch size", odd ? "64" : "32"}, {"seed", "1"}}); });
  note([&] { group.require_same({{"notes", std::string(odd ? 5000 : 3, 'x')}}); });
  // Settings of loaders: data, order, batch size.
  const auto data = Dataset::open(arguments[odd ? 3 : 2]);
  const auto same = Dataset::open(arguments[2]);
  note([&] { sl::ImageLoader(data, group, {.batch_size = 2}); });
  note([&] { sl::ImageLoader(same, group, {.batch_size = odd ? 3 : 2}); });
  note([&] { sl::ImageLoader(same, group, {.order = {.seed = odd ? 9u : 8u}, .batch_size = 2}); });
  note([&] { sl::ImageLoader(same, group, {.batch_size = 2, .resize = {odd ? 4 : 8, 4}}); });
  // The number of threads may differ between ranks.
  sl::ImageLoader(same, group, {.batch_size = 2, .threads = odd ? 2u : 1u});
  // Models whose parameters have different shapes.
  note([&] { sl::broadcast_parameters(*torch::nn::Linear(4, odd ? 3 : 2), group); });
  // After these errors the group is still usable.
  REQUIRE(group.all_reduce(std::int64_t{1}) == group.world_size());
}

/// report OUT: three ranks report an epoch, in which each spent its time in another way.
void report(const Arguments& arguments) {
  const auto group = sl::init_process_group();
  using std::chrono::milliseconds;
  Loader::Stats before;
  before.elapsed = milliseconds(5000);
  before.waited = milliseconds(1000);
  before.bytes_read = 1'000'000;
  before.bad_samples = 7;
  Loader::Stats now = before;
  // Each rank takes 10 s. Rank 1 waits for data, and the others wait for rank 1.
  now.elapsed += milliseconds(10'000);
  now.waited += milliseconds(group.rank() == 1 ? 6000 : 500);
  now.decoding += milliseconds(1250 * (group.rank() + 1));
  now.bytes_read += 2'500'000;
  now.bad_samples += static_cast<std::uint64_t>(group.rank());
  const auto exchanged = milliseconds(group.rank() == 1 ? 1000 : 6500);
  const std::string text = sl::epoch_report(now, before, exchanged, group);
  std::ofstream(arguments[1] + "." + std::to_string(group.rank())) << text;
}

}  // namespace

const Cases& call_cases() {
  static const Cases cases = {
      {"reduce-types", reduce_types}, {"frozen", frozen},     {"replicas", replicas},
      {"buffers", buffers},           {"types", types},       {"accumulated", accumulated},
      {"out-of-step", out_of_step},   {"contract", contract}, {"report", report}};
  return cases;
}

}  // namespace shardwise::test
