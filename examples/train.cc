// Trains a linear classifier on samples (image, cls), data parallel, and proves each epoch. The
// checkpoint holds the model and where the run stands; a run goes on from it, on any ranks.
//
//     train SHARDS EPOCHS CHECKPOINT     alone, or under torchrun --no-python, mpirun or srun

#include <shardwise/libtorch/advanced.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

namespace sl = shardwise::libtorch;
namespace fs = std::filesystem;

void save(const fs::path& path, torch::nn::Linear& model, const shardwise::ResumeToken& token) {
  torch::serialize::OutputArchive archive;
  model->save(archive);
  archive.write("token", c10::IValue(token.to_text()));
  archive.save_to(path.string() + ".new");
  fs::rename(path.string() + ".new", path);  // a reader finds the old file or the new one
}

shardwise::ResumeToken load(const fs::path& path, torch::nn::Linear& model) {
  torch::serialize::InputArchive archive;
  archive.load_from(path.string());
  model->load(archive);
  c10::IValue token;
  archive.read("token", token);
  return shardwise::ResumeToken::from_text(token.toStringRef());
}

int main(int argc, char** argv) try {
  if (argc != 4) return std::fputs("usage: train SHARDS EPOCHS CHECKPOINT\n", stderr), 2;
  const sl::ProcessGroup group = sl::init_process_group();
  torch::nn::Linear model(3 * 16 * 16, 10);
  sl::ImageLoader loader(shardwise::Dataset::open(argv[1]), group,
                         {.order = {.seed = 17}, .batch_size = 8, .resize = {16, 16}});
  if (fs::exists(argv[3])) loader.restore(load(argv[3], model));
  sl::broadcast_parameters(*model, group);
  sl::GradientAverager gradients(model->parameters());
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  const auto sum = torch::nn::CrossEntropyLossOptions().reduction(torch::kSum);
  for (auto epoch : loader.epochs(std::stoull(argv[2]))) {
    for (auto& batch : epoch) {  // images: uint8 [N, 3, 16, 16]; labels: int64 [N]; N may be 0
      optimizer.zero_grad();
      const auto scores = model->forward(batch.images.to(torch::kFloat).div(255).flatten(1));
      torch::nn::functional::cross_entropy(scores, batch.labels, sum).backward();
      gradients.average(batch.size(), group);  // over the samples of this step on all ranks
      optimizer.step();
    }
    const std::string proof = epoch.prove();  // NotExact if a sample is missing, or came twice
    const shardwise::ResumeToken token = loader.state();  // as prove(), called by every rank
    if (group.is_first()) save(argv[3], model, token), std::puts(proof.c_str());
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "train: %s\n", e.what());
  return 1;
}
