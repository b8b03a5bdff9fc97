// Trains a linear classifier on samples (image, cls), data parallel, and proves each epoch. The
// checkpoint contains the model and the position in the run. A run continues from it on any number
// of ranks. After Ctrl-C, SIGTERM or an error on one rank, all ranks stop after the same step and
// save a checkpoint.
//
//     train SHARDS EPOCHS CHECKPOINT     alone, or under torchrun --no-python, mpirun or srun

#include <shardwise/libtorch/advanced.h>
#include <torch/torch.h>

#include <cstdio>

namespace sl = shardwise::libtorch;

int main(int argc, char** argv) try {
  if (argc != 4) return std::fputs("usage: train SHARDS EPOCHS CHECKPOINT\n", stderr), 2;
  sl::StopGuard guard;
  const sl::ProcessGroup group = sl::init_process_group({.guard = &guard});
  torch::nn::Linear model(3 * 16 * 16, 10);
  sl::ImageLoader images(shardwise::Dataset::open(argv[1]), group,
                         {.order = {.seed = 17}, .batch_size = 8, .resize = {16, 16}});
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  sl::CheckpointFile file(argv[3], group);
  if (const auto last = file.read()) {
    last->load("model", *model);
    last->load("optimizer", optimizer, *model);
    images.loader().restore(last->token());
  }
  sl::broadcast_parameters(*model, group);
  sl::GradientAverager gradients(model->parameters());
  const auto sum = torch::nn::CrossEntropyLossOptions().reduction(torch::kSum);
  const auto save = [&] {
    sl::Checkpoint now(images.loader().state());  // every rank must call state()
    now.put("model", *model);
    now.put("optimizer", optimizer, *model);
    file.write(now);
  };
  const auto run = [&] {
    for (auto epoch : images.epochs(std::stoull(argv[2]))) {
      for (auto& batch : epoch) {  // images: uint8 [N, 3, 16, 16]; labels: int64 [N]; N may be 0
        optimizer.zero_grad();
        const auto scores = model->forward(batch.images.to(torch::kFloat).div(255).flatten(1));
        torch::nn::functional::cross_entropy(scores, batch.labels, sum).backward();
        gradients.average(batch.size(), group);  // over this step's samples on all ranks
        optimizer.step();
        if (guard.should_stop()) return;  // same result on all ranks
      }
      const std::string proof = epoch.prove();  // NotExact if a sample is missing or repeated
      save();
      if (group.is_first()) std::puts(proof.c_str());
    }
  };
  guard.run(run, save);  // calls save() if the ranks stop within run()
  return guard.exit_code();
} catch (const std::exception& e) {
  std::fprintf(stderr, "train: %s\n", e.what());
  return 1;
}
