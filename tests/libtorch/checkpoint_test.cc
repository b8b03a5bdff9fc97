#include "shardwise/libtorch/checkpoint.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <random>

#include "base/error_types.h"
#include "shardwise/libtorch/stop_guard.h"
#include "shardwise/order/sampler.h"
#include "support/support.h"

namespace shardwise::libtorch {
namespace {

namespace fs = std::filesystem;
using test::error_text;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ResumeToken token_at(std::uint64_t steps) {
  return make_sampler(std::uint64_t{1000}, {.seed = 5}, {})->token_after(steps);
}

/// Two layers, a buffer, and a frozen parameter.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 4)
      : first(register_module("first", torch::nn::Linear(3, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        last(register_module("last", torch::nn::Linear(width, 1))) {
    last->bias.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(norm(first(x))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

template <class Optimizer, class Options>
MakeOptimizer maker(Options options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

std::vector<MakeOptimizer> all_optimizers() {
  using namespace torch::optim;
  return {maker<Adam>(AdamOptions(0.1).amsgrad(true)),
          maker<AdamW>(AdamWOptions(0.1)),
          maker<SGD>(SGDOptions(0.001)),
          maker<SGD>(SGDOptions(0.001).momentum(0.9)),
          maker<RMSprop>(RMSpropOptions(0.1).momentum(0.9).centered(true)),
          maker<Adagrad>(AdagradOptions(0.1))};
}

void take_steps(Net& net, torch::optim::Optimizer& optimizer, int first, int end) {
  for (int step = first; step < end; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    optimizer.zero_grad();
    net->forward(torch::randn({8, 3})).square().sum().backward();
    optimizer.step();
    auto& options = optimizer.param_groups()[0].options();
    options.set_lr(options.get_lr() * 0.9);
  }
}

bool same(const torch::nn::Module& a, const torch::nn::Module& b) {
  for (const auto& item : a.named_parameters()) {
    if (!item.value().equal(b.named_parameters()[item.key()])) return false;
  }
  for (const auto& item : a.named_buffers()) {
    if (!item.value().equal(b.named_buffers()[item.key()])) return false;
  }
  return true;
}

TEST(CheckpointTest, ARunGoesOnBitForBitWithEachOptimizer) {
  const test::TempDir dir;
  int number = 0;
  for (const MakeOptimizer& make : all_optimizers()) {
    SCOPED_TRACE(number);
    torch::manual_seed(1);
    Net whole;
    const auto whole_optimizer = make(whole->parameters());
    take_steps(whole, *whole_optimizer, 0, 5);
    CheckpointFile file(dir / ("run" + std::to_string(number++)), ProcessGroup());
    Checkpoint saved(token_at(5));
    saved.put("model", *whole);
    saved.put("optimizer", *whole_optimizer, *whole);
    file.write(saved);
    take_steps(whole, *whole_optimizer, 5, 9);

    torch::manual_seed(2);
    Net again;
    const auto optimizer = make(again->parameters());
    take_steps(again, *optimizer, 20, 22);  // loading must replace this state
    const auto read = file.read();
    ASSERT_TRUE(read);
    EXPECT_EQ(read->token(), token_at(5));
    read->load("model", *again);
    read->load("optimizer", *optimizer, *again);
    take_steps(again, *optimizer, 5, 9);
    EXPECT_TRUE(torch::isfinite(whole->first->weight).all().item<bool>());
    EXPECT_TRUE(same(*whole, *again));
  }
}

TEST(CheckpointTest, ValuesOfEachKindComeBack) {
  const test::TempDir dir;
  CheckpointFile file(dir / "run.pt", ProcessGroup());
  EXPECT_FALSE(file.read());
  Checkpoint saved(token_at(1));
  const auto types = {torch::kUInt8,   torch::kInt8,    torch::kInt16,    torch::kInt32,
                      torch::kInt64,   torch::kFloat16, torch::kBFloat16, torch::kFloat32,
                      torch::kFloat64, torch::kBool};
  for (const auto type : types) {
    saved.put(c10::toString(type), torch::arange(6).view({2, 3}).to(type));
  }
  saved.put("strided", torch::arange(12).view({3, 4}).t());
  saved.put("empty", torch::empty({0, 3}));
  saved.put("step", std::int64_t{-7});
  saved.put("loss", 0.1);
  saved.put("note", std::string("two\nlines\0", 10));
  saved.put("loss", 0.25);  // replaces the earlier value
  file.write(saved);
  const auto read = file.read();
  ASSERT_TRUE(read);
  for (const auto type : types) {
    EXPECT_TRUE(read->tensor(c10::toString(type)).equal(torch::arange(6).view({2, 3}).to(type)));
  }
  EXPECT_TRUE(read->tensor("strided").equal(torch::arange(12).view({3, 4}).t()));
  EXPECT_EQ(read->tensor("empty").sizes(), torch::IntArrayRef({0, 3}));
  EXPECT_EQ(read->integer("step"), -7);
  EXPECT_EQ(read->number("loss"), 0.25);
  EXPECT_EQ(read->text("note"), std::string("two\nlines\0", 10));
  EXPECT_EQ(read->names(), saved.names());
  EXPECT_EQ(read->path(), dir / "run.pt");
  EXPECT_THAT(read->writer(), AllOf(HasSubstr("shardwise "), HasSubstr("LibTorch ")));
  EXPECT_THAT(error_text([&] { read->tensor("gone"); }),
              HasSubstr("no value of this name: 'gone' in '" + dir / "run.pt"));
  EXPECT_THROW(read->tensor("note"), Mismatch);
  EXPECT_THROW(read->text("step"), Mismatch);
  EXPECT_THROW(read->integer("loss"), Mismatch);
  EXPECT_THROW(read->number("step"), Mismatch);
  EXPECT_THROW(saved.put("a b", 1.0), InvalidArgument);
  EXPECT_THAT(error_text([&] { saved.put("c", torch::zeros({1}, torch::kComplexFloat)); }),
              HasSubstr("'c', ComplexFloat"));
}

/// The test reads files written with LibTorch 1.13 and 2.13. They contain a Net and an Adam after
/// three steps, a text, two numbers, and a tensor 0, 1, 0, ... of each type.
TEST(CheckpointTest, WhatAnotherVersionOfLibTorchWroteIsRead) {
  const test::TempDir dir;
  for (const std::string version : {"1.13.0", "2.13.0"}) {
    const std::string path = dir / (version + ".pt");
    test::write_file(path, test::read_file(test::source_dir() +
                                           "/tests/libtorch/checkpoint_of_libtorch_" + version));
    const auto file = CheckpointFile(path, ProcessGroup()).read();
    ASSERT_TRUE(file);
    EXPECT_THAT(file->writer(), testing::EndsWith("LibTorch " + version));
    EXPECT_EQ(file->token().to_text(), token_at(3).to_text());
    EXPECT_EQ(file->text("text"), "a text");
    EXPECT_EQ(file->integer("integer"), -7);
    EXPECT_EQ(file->number("number"), 0.1);
    // Values that are loaded from the file and put into another checkpoint must stay the same.
    Net net;
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.5).amsgrad(true));
    file->load("model", *net);
    file->load("optimizer", optimizer, *net);
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.1);
    Checkpoint again(file->token());
    again.put("model", *net);
    again.put("optimizer", optimizer, *net);
    std::size_t num_types = 0;
    for (const std::string& name : file->names()) {
      if (name.starts_with("type/")) {
        const auto bits = torch::arange(6).remainder(2).view({2, 3});
        EXPECT_TRUE(file->tensor(name).to(torch::kInt64).equal(bits)) << name;
        EXPECT_EQ("type/" + std::string(c10::toString(file->tensor(name).scalar_type())), name);
        ++num_types;
      } else if (name == "optimizer/kind") {
        EXPECT_EQ(again.text(name), file->text(name));
      } else if (name.starts_with("model/") || name.starts_with("optimizer/")) {
        EXPECT_TRUE(again.tensor(name).equal(file->tensor(name))) << name;
      }
    }
    EXPECT_EQ(num_types, 10u);
    EXPECT_EQ(file->names().size(), again.names().size() + num_types + 3);
    take_steps(net, optimizer, 3, 4);
  }
}

TEST(CheckpointTest, ATensorThatIsReadIsTheCallersOwn) {
  const test::TempDir dir;
  CheckpointFile file(dir / "run.pt", ProcessGroup());
  Checkpoint saved(token_at(1));
  saved.put("x", torch::ones({3}));
  file.write(saved);
  const auto read = file.read();
  read->tensor("x").zero_();
  EXPECT_TRUE(read->tensor("x").equal(torch::ones({3})));
}

TEST(CheckpointTest, AnotherModelIsNamedAndLeftAsItWas) {
  Checkpoint saved;
  Net wide(6);
  saved.put("model", *wide);
  Net net;
  const auto before = net->first->weight.clone();
  EXPECT_THAT(error_text([&] { saved.load("model", *net); }),
              AllOf(HasSubstr("of another model"), HasSubstr("'first.weight'"),
                    HasSubstr("float32[6, 3] in the checkpoint"), HasSubstr("float32[4, 3] here"),
                    HasSubstr("and 2 more")));
  EXPECT_TRUE(net->first->weight.equal(before));
  Checkpoint less;
  less.put("model/first.weight", before);
  EXPECT_THAT(error_text([&] { less.load("model", *net); }),
              AllOf(HasSubstr("'first.bias'"), HasSubstr("missing in the checkpoint")));
  Checkpoint more;
  more.put("model", *net);
  more.put("model/head.weight", before);
  EXPECT_THAT(error_text([&] { more.load("model", *net); }),
              AllOf(HasSubstr("'head.weight'"), HasSubstr("missing in the model")));
  Checkpoint half;
  half.put("model", *net);
  half.put("model/first.weight", before.to(torch::kFloat16));
  EXPECT_THAT(error_text([&] { half.load("model", *net); }),
              AllOf(HasSubstr("'first.weight'"), HasSubstr("float16[4, 3] in the checkpoint"),
                    HasSubstr("float32[4, 3] here")));
}

TEST(CheckpointTest, AnotherOptimizerIsNamed) {
  Net net;
  torch::optim::Adam adam(net->parameters());
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Checkpoint saved;
  saved.put("optimizer", adam, *net);
  EXPECT_THAT(error_text([&] { saved.load("optimizer", sgd, *net); }),
              AllOf(HasSubstr("Adam in the checkpoint"), HasSubstr("SGD here")));
  torch::optim::Adam two(std::vector<torch::optim::OptimizerParamGroup>{{net->first->parameters()},
                                                                        {net->last->parameters()}},
                         torch::optim::AdamOptions());
  EXPECT_THAT(error_text([&] { saved.load("optimizer", two, *net); }),
              AllOf(HasSubstr("1 groups in the checkpoint"), HasSubstr("2 here")));
  Net other;
  EXPECT_THAT(error_text([&] { saved.put("optimizer", adam, *other); }),
              HasSubstr("lacks a parameter"));
  torch::optim::LBFGS lbfgs(net->parameters());
  EXPECT_THAT(error_text([&] { saved.put("optimizer", lbfgs, *net); }),
              HasSubstr("this optimizer"));
}

TEST(CheckpointTest, RandomNumbersGoOn) {
  const ProcessGroup group;
  Checkpoint saved;
  torch::manual_seed(3);
  torch::rand({5});
  saved.put_random_state(group);
  const auto next = torch::rand({5});
  torch::manual_seed(4);
  saved.load_random_state(group);
  EXPECT_TRUE(torch::rand({5}).equal(next));
  Checkpoint none;
  EXPECT_THROW(none.load_random_state(group), NotFound);
  Checkpoint foreign;
  foreign.put("random_state/cpu", torch::zeros({1, 7}, torch::kUInt8));
  EXPECT_THAT(error_text([&] { foreign.load_random_state(group); }), HasSubstr("random state"));
}

TEST(CheckpointTest, StateOfAnotherTypeIsNamed) {
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  model->forward(torch::ones({1, 2})).sum().backward();
  optimizer.step();
  Checkpoint saved;
  saved.put("optimizer", optimizer, *model);
  model->to(torch::kFloat64);
  torch::optim::SGD other(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_THAT(error_text([&] { saved.load("optimizer", other, *model); }),
              AllOf(HasSubstr("float32[2, 2] in the checkpoint"), HasSubstr("float64[2, 2] here")));
  saved.put("epoch", 3);
  EXPECT_EQ(saved.integer("epoch"), 3);
}

/// A checkpoint file, and the text of the error if its last read was refused.
struct Kept {
  explicit Kept(const std::string& path, int keep = 2)
      : file(path, ProcessGroup(), {.keep = keep, .on_refused = [this](const std::string& why) {
                                      refused.push_back(why);
                                    }}) {}
  void write(std::int64_t step) {
    Checkpoint saved(token_at(static_cast<std::uint64_t>(step)));
    saved.put("step", step);
    saved.put("values", torch::full({100}, step));
    file.write(saved);
  }
  std::int64_t step() { return file.read().value().integer("step"); }

  std::vector<std::string> refused;
  CheckpointFile file;
};

TEST(CheckpointFileTest, KeepsTheLastOnes) {
  const test::TempDir dir;
  Kept kept(dir / "run.pt", 3);
  for (int step = 1; step <= 5; ++step) kept.write(step);
  EXPECT_THAT(dir.list(), ElementsAre("run.pt", "run.pt.1", "run.pt.2"));
  EXPECT_EQ(kept.step(), 5);
  EXPECT_EQ(Kept(dir / "run.pt.1").step(), 4);
  EXPECT_EQ(Kept(dir / "run.pt.2").step(), 3);
  EXPECT_EQ(kept.refused.size(), 0u);
}

TEST(CheckpointFileTest, OfAThousandFlippedBitsAndAHundredCutsAllAreRefusedAndTheOneBeforeIsTaken) {
  const test::TempDir dir;
  Kept kept(dir / "run.pt");
  kept.write(1);
  kept.write(2);
  const std::string whole = test::read_file(dir / "run.pt");
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 1100; ++i) {
    std::string damaged = whole;
    if (i < 1000) {
      damaged[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    } else {
      damaged.resize(random() % whole.size());
    }
    test::write_file(dir / "run.pt", damaged);
    kept.refused.clear();
    ASSERT_EQ(kept.step(), 1) << i;
    ASSERT_EQ(kept.refused.size(), 1u) << i;
    EXPECT_THAT(kept.refused[0], HasSubstr("run.pt'"));
  }
}

TEST(CheckpointFileTest, WhatWasRefusedDoesNotDriveOutWhatIsWhole) {
  const test::TempDir dir;
  Kept kept(dir / "run.pt");
  kept.write(1);
  kept.write(2);
  test::write_file(dir / "run.pt", "damaged");
  EXPECT_EQ(kept.step(), 1);
  kept.write(3);
  EXPECT_EQ(kept.step(), 3);
  EXPECT_EQ(Kept(dir / "run.pt.1").step(), 1);
  kept.write(4);
  EXPECT_EQ(Kept(dir / "run.pt.1").step(), 3);
}

TEST(CheckpointFileTest, WhatAnotherVersionWroteIsKept) {
  const test::TempDir dir;
  Kept kept(dir / "run.pt");
  kept.write(1);
  kept.write(2);
  test::write_file(dir / "run.pt", "shardwise checkpoint 9\n");
  EXPECT_EQ(kept.step(), 1);
  EXPECT_THAT(kept.refused, ElementsAre(HasSubstr("a checkpoint of version '9'")));
  kept.write(3);
  EXPECT_EQ(kept.step(), 3);
  EXPECT_EQ(test::read_file(dir / "run.pt.1"), "shardwise checkpoint 9\n");
}

TEST(CheckpointFileTest, WhatCannotBeReadIsNotReplaced) {
  const test::TempDir dir;
  Kept kept(dir / "run.pt");
  kept.write(1);
  kept.write(2);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_THAT(error_text([&] { kept.file.read(); }), HasSubstr("limit of open files"));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(kept.refused.size(), 0u);
  EXPECT_EQ(kept.step(), 2);
}

TEST(CheckpointFileTest, IfAllAreRefusedTheNewestSaysWhy) {
  const test::TempDir dir;
  Kept kept(dir / "run.pt");
  test::write_file(dir / "run.pt", "PK");
  test::write_file(dir / "run.pt.1", "shardwise checkpoint 9\n");
  EXPECT_THAT(error_text([&] { kept.file.read(); }), HasSubstr("not a complete checkpoint"));
  EXPECT_EQ(kept.refused.size(), 0u);
  kept.write(1);
  EXPECT_THAT(dir.list(), ElementsAre("run.pt", "run.pt.1"));  // a file of another version is kept
}

TEST(CheckpointFileTest, ASignalEndsTheReadingOfALargeOne) {
  const test::TempDir dir;
  StopGuard guard({.signals = {SIGUSR1}});
  const auto group = init_process_group({.guard = &guard});
  CheckpointFile small(dir / "small.pt", group);
  CheckpointFile large(dir / "large.pt", group);
  Checkpoint checkpoint(token_at(1));
  small.write(checkpoint);
  checkpoint.put("tensor", torch::zeros({20 << 20}, torch::kUInt8));
  large.write(checkpoint);
  EXPECT_TRUE(large.read());
  ::raise(SIGUSR1);
  EXPECT_THROW(static_cast<void>(large.read()), Cancelled);
  EXPECT_TRUE(small.read()) << "it takes no time";
  large.write(checkpoint);  // a signal must not prevent the last checkpoint
  EXPECT_TRUE(CheckpointFile(dir / "large.pt", ProcessGroup()).read());
}

TEST(CheckpointFileTest, AWriterThatWasKilledAnywhereLeavesAWholeOne) {
  const test::TempDir dir;
  // The states that a writer can leave if it is killed between two steps.
  {
    Kept kept(dir / "run.pt");
    kept.write(1);
    kept.write(2);
  }
  fs::remove(dir / "run.pt.1");
  fs::create_hard_link(dir / "run.pt", dir / "run.pt.1");
  Kept same(dir / "run.pt");
  EXPECT_EQ(same.step(), 2);
  same.write(3);
  EXPECT_EQ(Kept(dir / "run.pt.1").step(), 2);
  fs::remove(dir / "run.pt");  // a state that occurs on file systems without hard links
  EXPECT_EQ(Kept(dir / "run.pt").step(), 2);
  EXPECT_THAT(dir.list(), ElementsAre("run.pt.1"));
}

TEST(CheckpointFileTest, AKilledWriterLosesNothingThatWasWritten) {
  const test::TempDir dir;
  std::int64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Kept kept(dir / "run.pt");
      for (std::int64_t step = last + 1;; ++step) {
        kept.write(step);
        if (::write(said[1], &step, sizeof step) < 0) ::_exit(1);
      }
    }
    ::close(said[1]);
    std::int64_t step = 0;
    for (int i = 0; i <= round % 5; ++i) {
      ASSERT_EQ(::read(said[0], &step, sizeof step), static_cast<ssize_t>(sizeof step));
    }
    ::usleep(static_cast<useconds_t>(round * 137 % 1000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(said[0]);
    Kept kept(dir / "run.pt");
    const std::int64_t found = kept.step();
    EXPECT_GE(found, step);
    EXPECT_EQ(kept.refused.size(), 0u);
    EXPECT_EQ(kept.file.read()->token(), token_at(static_cast<std::uint64_t>(found)));
    EXPECT_THAT(dir.list(), testing::IsSubsetOf({"run.pt", "run.pt.1"}));
    last = found;
  }
}

TEST(CheckpointFileTest, ALinkIsFollowedAndStays) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir / "disk");
  std::filesystem::create_symlink("disk/run.pt", dir / "run.pt");
  Kept kept(dir / "run.pt");
  EXPECT_FALSE(CheckpointFile::exists(dir / "run.pt"));
  kept.write(1);
  kept.write(2);
  EXPECT_TRUE(CheckpointFile::exists(dir / "run.pt"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "run.pt"));
  EXPECT_THAT(dir.list(), ElementsAre("disk", "run.pt"));
  EXPECT_EQ(kept.step(), 2);
  EXPECT_EQ(Kept(dir / "disk/run.pt").step(), 2);
  EXPECT_EQ(Kept(dir / "disk/run.pt.1").step(), 1);
}

TEST(CheckpointFileTest, WhatCannotBeWrittenIsSaidBeforeTheFirstStep) {
  const test::TempDir dir;
  EXPECT_THAT(error_text([&] { CheckpointFile(dir / "no/run.pt", ProcessGroup()); }),
              HasSubstr("no/run.pt"));
  EXPECT_THROW(CheckpointFile("", ProcessGroup()), InvalidArgument);
  std::filesystem::create_directory(dir / "folder");
  const auto wanted = AllOf(HasSubstr("is a folder: '" + (dir / "folder") + "'"),
                            HasSubstr("'" + (dir / "folder/run.pt") + "'"));
  EXPECT_THAT(error_text([&] { CheckpointFile(dir / "folder", ProcessGroup()); }), wanted);
  EXPECT_THAT(error_text([&] { CheckpointFile::exists(dir / "folder"); }), wanted);
  EXPECT_THROW(CheckpointFile(dir / "run.pt", ProcessGroup(), {.keep = 0}), InvalidArgument);
}

}  // namespace
}  // namespace shardwise::libtorch
