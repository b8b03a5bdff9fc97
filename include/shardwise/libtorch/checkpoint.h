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

/// What a run needs to go on: a resume token, and named tensors, numbers and texts.
///
///     sl::CheckpointFile file("run.pt", group);   // before the first step: is it writable?
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
///     file.write(now);                            // rank 0 writes, and all learn how it went
///
/// docs/formats/checkpoint.md specifies the file. It is of no version of LibTorch: tensors are kept
/// as plain bytes, and the state of an optimizer by the names of the parameters that it belongs to.
///
/// Names have no spaces or control characters; putting one a second time replaces the value.
/// Tensors that are on the CPU and contiguous are not copied: write a checkpoint before the next
/// step changes them. One thread.
class SHARDWISE_EXPORT Checkpoint {
 public:
  explicit Checkpoint(ResumeToken token = {});

  [[nodiscard]] const ResumeToken& token() const noexcept { return token_; }
  /// The path of the file that it was read from.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Who wrote the file that it was read from, or would write it: "shardwise 0.1.0, LibTorch
  /// 1.13.1".
  [[nodiscard]] const std::string& writer() const noexcept { return writer_; }
  [[nodiscard]] bool contains(const std::string& name) const { return values_.contains(name); }
  [[nodiscard]] std::vector<std::string> names() const;

  /// Shapes: any; bool, integers and floats of 8 to 64 bits, bfloat16; on any device.
  /// Errors: InvalidArgument (the name); Unsupported (the type).
  void put(const std::string& name, const torch::Tensor& tensor);
  void put(const std::string& name, std::int64_t value);
  void put(const std::string& name, double value);
  void put(const std::string& name, int value) { put(name, std::int64_t{value}); }
  void put(const std::string& name, const std::string& text);
  /// All parameters and buffers of a module, as "prefix/name".
  void put(const std::string& prefix, const torch::nn::Module& module);
  /// The state that an optimizer keeps of each parameter, by its name in `module`, and the learning
  /// rates of its groups. Its other options are the program's.
  /// Errors: Unsupported if it is none of Adam, AdamW, SGD, RMSprop and Adagrad; InvalidArgument if
  ///   it has a parameter that the module has not.
  void put(const std::string& prefix, const torch::optim::Optimizer& optimizer,
           const torch::nn::Module& module);
  /// The state of LibTorch's random numbers on the CPU, of every rank. Every rank must call it.
  /// Loaders need none of it: what is random in them follows from the order's seed.
  /// Errors: kDistributed.
  void put_random_state(const ProcessGroup& group);

  /// A value by its name. Tensors are on the CPU, and the caller's own.
  /// Errors: NotFound; Mismatch if it is of another kind.
  [[nodiscard]] torch::Tensor tensor(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;
  [[nodiscard]] std::string text(const std::string& name) const;

  /// Gives a module the parameters and buffers that were put under `prefix`, on the devices where
  /// it has them: all of them or, with an error, none.
  /// Errors: Mismatch, naming each that is missing, or of another shape or type, or too many.
  void load(const std::string& prefix, torch::nn::Module& module) const;
  /// Gives an optimizer the state that was put under `prefix`. All or nothing.
  /// Errors: Mismatch if it is of another kind, has another number of groups, or a parameter has
  ///   another shape; those of put().
  void load(const std::string& prefix, torch::optim::Optimizer& optimizer,
            const torch::nn::Module& module) const;
  /// Each rank gets the state that the rank of its number had; one beyond them gets one that
  /// follows from rank 0's and its number. Errors: NotFound; Mismatch (of another LibTorch).
  void load_random_state(const ProcessGroup& group) const;

 private:
  friend class CheckpointFile;
  struct Value {
    std::string type;
    std::vector<std::int64_t> shape;
    torch::Tensor bytes;  ///< uint8, on the CPU
  };

  [[nodiscard]] const Value& value(const std::string& name) const;
  [[nodiscard]] torch::Tensor view(const std::string& name) const;
  void put_value(const std::string& name, Value value);

  ResumeToken token_;
  std::string path_;
  std::string writer_;
  std::map<std::string, Value> values_;
};

/// The checkpoints of a run: FILE is the newest, FILE.1 the one before it, and so on. Every rank
/// makes the same calls; rank 0 alone reads and writes, so that only its machine needs the files.
/// What it throws is thrown on all ranks, as the same class.
///
/// If the path is a symbolic link, FILE is what it leads to, and the older ones lie beside that.
///
/// A checkpoint appears whole, synced to the disk, or not at all, whenever the process ends. One
/// process at a time writes a file.
class SHARDWISE_EXPORT CheckpointFile {
 public:
  struct Options {
    /// How many checkpoints are kept, the newest included.
    int keep = 2;
    /// Called on rank 0 for each file that read() refused before it took an older one, with the
    /// reason.
    std::function<void(const std::string& reason)> on_refused = nullptr;
  };

  /// Tries whether it can be written, and removes what killed writers left.
  /// Errors: InvalidArgument (options, a folder); kIo, kNoSpace.
  CheckpointFile(std::string path, ProcessGroup group, Options options);
  CheckpointFile(std::string path, ProcessGroup group);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// True if there is a checkpoint, whole or not, of a run that wrote to `path`.
  /// Errors: InvalidArgument (a folder); kIo.
  [[nodiscard]] static bool exists(const std::string& path);

  /// The newest checkpoint that is whole; none if there is no file. All of it is held against its
  /// hashes. A file that is cut, damaged, no checkpoint or one of another version is refused, and
  /// the one before it taken. One that cannot be read is an error: it may be whole.
  /// Cost: on each rank the size of the file in memory; one broadcast.
  /// Errors: that of the newest file if all are refused; kIo; kDistributed; Cancelled, if rank 0
  ///   gets a signal of its StopGuard while it reads a large file.
  [[nodiscard]] std::optional<Checkpoint> read();

  /// Replaces FILE by this checkpoint. One that read() found to be damaged is not kept.
  /// Errors: kNoSpace, kIo (the files stay as they were); kDistributed.
  void write(const Checkpoint& checkpoint);

 private:
  std::string path_;
  std::string file_;  // where links of the path lead to, on rank 0
  ProcessGroup group_;
  Options options_;
  std::vector<std::string> damaged_;  // paths, on rank 0
};

}  // namespace shardwise::libtorch
