#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/order/resume.h"

namespace shardwise::libtorch {

/// The state that a run needs to continue: a resume token, and named tensors, numbers and texts.
///
///     sl::CheckpointFile file("run.pt", group);   // tests that it is writable
///     if (const auto last = file.read()) {
///       last->load("model", *model);
///       last->load("optimizer", optimizer, *model);
///       images.loader().restore(last->token());
///     }
///     ...
///     sl::Checkpoint now(images.loader().state());  // every rank
///     now.put("model", *model);
///     now.put("optimizer", optimizer, *model);
///     now.put("loss", loss);
///     file.write(now);                            // rank 0 writes; errors reach all ranks
///
/// docs/formats/checkpoint.md specifies the file. It does not depend on the version of LibTorch:
/// tensors are stored as plain bytes, and the state of an optimizer by names of parameters.
///
/// Names must not contain spaces or control characters. Putting a name again replaces its value.
/// Threads: one thread.
/// Lifetime: contiguous tensors on the CPU are not copied. Write a checkpoint before the next step
///   changes them.
class SHARDWISE_EXPORT Checkpoint {
 public:
  explicit Checkpoint(ResumeToken token = {});

  [[nodiscard]] const ResumeToken& token() const noexcept { return token_; }
  /// The path of the file from which this checkpoint was read.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Name and versions of the writer, e.g. "shardwise 0.2.0, LibTorch 1.13.1": the writer of the
  /// file if this checkpoint was read, otherwise this program.
  [[nodiscard]] const std::string& writer() const noexcept { return writer_; }
  [[nodiscard]] bool contains(const std::string& name) const { return values_.contains(name); }
  [[nodiscard]] std::vector<std::string> names() const;

  /// Shapes: any shape, on any device; bool, integers, bfloat16, and floats of 8 to 64 bits.
  /// Errors: InvalidArgument for an invalid name. Unsupported for another type.
  void put(const std::string& name, const torch::Tensor& tensor);
  void put(const std::string& name, std::int64_t value);
  void put(const std::string& name, double value);
  void put(const std::string& name, int value) { put(name, std::int64_t{value}); }
  void put(const std::string& name, const std::string& text);
  /// Puts all parameters and buffers of a module as "prefix/name".
  void put(const std::string& prefix, const torch::nn::Module& module);
  /// Puts the optimizer's state of each parameter, under the parameter's name in `module`, and the
  /// learning rates of its groups. Other options are not stored.
  /// Errors: Unsupported unless the optimizer is Adam, AdamW, SGD, RMSprop or Adagrad.
  ///   InvalidArgument if the module lacks a parameter of the optimizer.
  void put(const std::string& prefix, const torch::optim::Optimizer& optimizer,
           const torch::nn::Module& module);
  /// Puts the state of LibTorch's CPU random number generator on every rank. Every rank must call
  /// it. Loaders do not need this state: their random choices follow from the order's seed.
  /// Errors: kDistributed.
  void put_random_state(const ProcessGroup& group);

  /// Return the value of this name. Tensors are on the CPU and owned by the caller.
  /// Errors: NotFound. Mismatch if the value has another kind.
  [[nodiscard]] torch::Tensor tensor(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;
  [[nodiscard]] std::string text(const std::string& name) const;

  /// Loads the parameters and buffers below `prefix` into a module, on the devices of the module.
  /// After an error the module is unchanged.
  /// Errors: Mismatch, naming everything that is missing, superfluous, or of another shape or type.
  void load(const std::string& prefix, torch::nn::Module& module) const;
  /// Loads the state below `prefix` into an optimizer. After an error the optimizer is unchanged.
  /// Errors: Mismatch if the kind, the number of groups, or the shape of a parameter differs. The
  ///   errors of put().
  void load(const std::string& prefix, torch::optim::Optimizer& optimizer,
            const torch::nn::Module& module) const;
  /// Restores each rank's state of the random number generator. A rank without a stored state gets
  /// a state derived from rank 0's state and its own number.
  /// Errors: NotFound. Mismatch if another version of LibTorch wrote it.
  void load_random_state(const ProcessGroup& group) const;

 private:
  friend class CheckpointFile;
  struct Value {
    std::string type;
    std::vector<std::int64_t> shape;
    torch::Tensor bytes;  ///< uint8, on the CPU
  };

  [[nodiscard]] const Value& value(const std::string& name) const;
  void put_value(const std::string& name, Value value);

  ResumeToken token_;
  std::string path_;
  std::string writer_;
  std::map<std::string, Value> values_;
};

/// The checkpoint files of a run: FILE is the newest checkpoint, FILE.1 the previous one, and so
/// on. If the path is a symbolic link, FILE is the link's target, and the older files are next to
/// the target.
///
/// Every rank makes the same calls. Only rank 0 reads and writes files, so only its machine needs
/// them. An exception on rank 0 is thrown on all ranks, with the same class. Even if the process is
/// killed, a checkpoint appears complete and synced to disk, or not at all. Only one process at a
/// time may write a file.
class SHARDWISE_EXPORT CheckpointFile {
 public:
  struct Options {
    /// Number of checkpoints to keep, including the newest.
    int keep = 2;
    /// Called on rank 0, with the reason, for each file that read() refuses before it uses an older
    /// file.
    std::function<void(const std::string& reason)> on_refused = nullptr;
  };

  /// Tests whether the file can be written, and removes leftovers of killed writers.
  /// Errors: InvalidArgument for invalid options, or if the path is a folder. kIo. kNoSpace.
  CheckpointFile(std::string path, ProcessGroup group, Options options);
  CheckpointFile(std::string path, ProcessGroup group);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// True if a run has written a checkpoint to `path`, complete or not.
  /// Errors: InvalidArgument if the path is a folder. kIo.
  [[nodiscard]] static bool exists(const std::string& path);

  /// Returns the newest valid checkpoint, or nothing if there is no file. All content is checked
  /// against its hashes. A file that is truncated, damaged, of another version, or not a checkpoint
  /// is refused, and the next older file is tried. A file that cannot be read is an error, because
  /// it may be valid.
  /// Cost: one broadcast; each rank needs memory for the whole file.
  /// Errors: the error of the newest file if all are refused. kIo. kDistributed. Cancelled if rank
  ///   0 receives a signal of its StopGuard while it reads a large file.
  [[nodiscard]] std::optional<Checkpoint> read();

  /// Replaces FILE by this checkpoint. Older checkpoints are kept (Options::keep), except a file
  /// that read() found to be damaged.
  /// Errors: kNoSpace or kIo; the files are then unchanged. kDistributed.
  void write(const Checkpoint& checkpoint);

 private:
  std::string path_;
  std::string file_;  // the target of the path's links, on rank 0
  ProcessGroup group_;
  Options options_;
  std::vector<std::string> damaged_;  // paths, on rank 0
};

}  // namespace shardwise::libtorch
