// The second example of README.md, as it stands there; readme_test.cc holds the two against each
// other. Compiled, and run by the libtorch tests' image maker set-up.

// clang-format off
// [README]
#include <shardwise/libtorch.h>
namespace sl = shardwise::libtorch;

template <class Model, class Step>
void train(Model& model, Step step, const std::string& checkpoint) {
  auto group = sl::init_process_group();                // torchrun, mpirun, srun, or this process alone
  auto data = shardwise::Dataset::open("train.idx"), eval = shardwise::Dataset::open("eval.idx");
  sl::ImageLoader loader(data, group, {.order = {.seed = 17}, .batch_size = 64, .threads = 4, .resize = {224, 224}});
  if (!checkpoint.empty()) loader.restore(shardwise::ResumeToken::from_text(checkpoint));

  for (auto epoch : loader.epochs(90)) {
    for (auto& batch : epoch) step(model, batch);       // images uint8 [N,3,H,W], labels int64 [N]
    epoch.prove();                                      // each sample exactly once over all ranks, or an error
    double accuracy = sl::exact_accuracy(model, eval, group, {.resize = {224, 224}});
    if (group.rank() == 0) std::printf("accuracy %.4f\n", accuracy);
  }
}
// [README]
// clang-format on
