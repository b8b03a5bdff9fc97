#include "shardwise/libtorch/checkpoint.h"

#include <torch/torch.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "base/cancel_scope.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "libtorch/group_access.h"
#include "libtorch/optimizer_state.h"
#include "libtorch/tensor_view.h"
#include "order/checkpoint_format.h"

namespace shardwise::libtorch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWriter = "shardwise " SHARDWISE_VERSION ", LibTorch " TORCH_VERSION;
using shardwise::detail::CheckpointContent;
using shardwise::detail::CheckpointPart;

constexpr std::string_view kText = "text";
constexpr const char* kRandomState = "random_state/cpu";
/// Limit for the bytes of one broadcast.
constexpr std::int64_t kMaxBroadcastBytes = 1 << 28;

// ----------------------------------------------------------------------------------------- values

struct TypeName {
  std::string_view name;
  torch::ScalarType type;
};

constexpr std::array<TypeName, 10> kTypes = {{{"uint8", torch::kUInt8},
                                              {"int8", torch::kInt8},
                                              {"int16", torch::kInt16},
                                              {"int32", torch::kInt32},
                                              {"int64", torch::kInt64},
                                              {"float16", torch::kFloat16},
                                              {"bfloat16", torch::kBFloat16},
                                              {"float32", torch::kFloat32},
                                              {"float64", torch::kFloat64},
                                              {"bool", torch::kBool}}};

std::string type_name(torch::ScalarType type, const std::string& name) {
  for (const TypeName& known : kTypes) {
    if (known.type == type) return std::string(known.name);
  }
  throw Unsupported("a checkpoint cannot hold tensors of this type",
                    in_quotes(name) + ", " + c10::toString(type),
                    "convert it to integers, floats or bool");
}

std::optional<torch::ScalarType> type_of(std::string_view name) {
  for (const TypeName& known : kTypes) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

std::string shape_text(torch::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t side : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(side);
  return text + "]";
}

/// Returns type and shape as text. `name` is the tensor's, for errors.
std::string text_of(const torch::Tensor& tensor, const std::string& name) {
  return type_name(tensor.scalar_type(), name) + shape_text(tensor.sizes());
}

/// Returns the bytes of a contiguous CPU tensor as a tensor, without a copy.
torch::Tensor bytes_of(const torch::Tensor& plain) {
  const auto size = static_cast<std::int64_t>(plain.nbytes());
  if (size == 0) return torch::empty({0}, torch::kUInt8);
  return torch::from_blob(
      plain.data_ptr(), {size}, [plain](void*) {}, torch::kUInt8);
}

/// Makes a tensor from the bytes of a value. Copies the bytes, as they may be unaligned.
torch::Tensor tensor_over(const torch::Tensor& bytes, torch::ScalarType type,
                          const std::vector<std::int64_t>& shape) {
  auto made = torch::empty(shape, type);
  if (bytes.numel() > 0) bytes_of(made).copy_(bytes);
  return made;
}

/// Returns true if the part has the number of bytes that its type and shape need.
bool fits(const CheckpointPart& part) {
  if (part.type == kText) return part.shape.empty();
  const auto type = type_of(part.type);
  if (!type) return true;  // a type of a later version, which no caller can request
  std::uint64_t left = part.bytes.size();
  std::uint64_t size = c10::elementSize(*type);
  for (const std::int64_t side : part.shape) {
    if (side != 0 && size > left / static_cast<std::uint64_t>(side)) return false;
    size *= static_cast<std::uint64_t>(side);
  }
  return size == left;
}

/// Returns the parameters and buffers of a module, by name.
std::map<std::string, torch::Tensor> tensors_of(const torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& item : module.named_parameters()) all.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.emplace(item.key(), item.value());
  return all;
}

[[noreturn]] void throw_mismatch(const std::vector<std::string>& differences,
                                 const std::string& path) {
  constexpr std::size_t kMaxShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxShown, differences.size()); ++i) {
    text += (i == 0 ? "" : ", ") + differences[i];
  }
  if (differences.size() > kMaxShown) {
    text += ", and " + std::to_string(differences.size() - kMaxShown) + " more";
  }
  throw Mismatch("the checkpoint is of another model",
                 (path.empty() ? "" : in_quotes(path) + ": ") + text,
                 "load the checkpoint into a model with the structure of the saved model");
}

/// The parameters of all groups of an optimizer, by name.
class OptimizerParameters {
 public:
  OptimizerParameters(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
    std::unordered_map<const void*, std::string> names;
    for (const auto& item : module.named_parameters()) {
      names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    }
    for (const auto& group : optimizer.param_groups()) {
      for (const torch::Tensor& parameter : group.params()) {
        const auto at = names.find(parameter.unsafeGetTensorImpl());
        if (at == names.end()) {
          throw InvalidArgument("the module lacks a parameter of the optimizer",
                                "a parameter of shape " + shape_text(parameter.sizes()),
                                "give the module whose parameters() the optimizer was made with");
        }
        all_.emplace_back(at->second, parameter);
      }
    }
  }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::vector<std::pair<std::string, torch::Tensor>> all_;
};

// ------------------------------------------------------------------------------------------ ranks

void broadcast_bytes(const torch::Tensor& bytes, const ProcessGroup& group) {
  for (std::int64_t at = 0; at < bytes.numel(); at += kMaxBroadcastBytes) {
    group.broadcast(bytes.narrow(0, at, std::min(kMaxBroadcastBytes, bytes.numel() - at)));
  }
}

/// Runs `work` on rank 0 only. If it throws, every rank throws an Error of the same class.
template <class Work>
void on_first_rank(const ProcessGroup& group, Work&& work) {
  bool failed = false;
  ErrorCode code = ErrorCode::kIo;
  std::string text;
  if (group.is_first()) {
    try {
      work();
    } catch (const Error& e) {
      failed = true;
      code = e.code();
      text = e.what();
    } catch (const std::exception& e) {
      failed = true;
      text = e.what();
    } catch (...) {
      failed = true;
      text = "an exception other than std::exception was thrown";
    }
  }
  const auto outcome = torch::tensor({std::int64_t{failed}, static_cast<std::int64_t>(code),
                                      static_cast<std::int64_t>(text.size())},
                                     torch::kInt64);
  group.broadcast(outcome);
  const auto* words = outcome.data_ptr<std::int64_t>();
  if (words[0] == 0) return;
  text.resize(static_cast<std::size_t>(words[2]));
  broadcast_bytes(torch::from_blob(text.data(), {words[2]}, torch::kUInt8), group);
  throw_error(static_cast<ErrorCode>(words[1]), text);
}

// ------------------------------------------------------------------------------------------ files

std::string numbered(const std::string& path, int number) {
  return number == 0 ? path : path + "." + std::to_string(number);
}

void require_no_folder(const std::string& path) {
  std::error_code unknown;  // ignored: opening the path reports the fault
  if (!fs::is_directory(path, unknown)) return;
  throw InvalidArgument(
      "the path of the checkpoint is a folder", in_quotes(path),
      "name a file in this folder, such as " + in_quotes((fs::path(path) / "run.pt").string()));
}

/// Reads a checkpoint, and checks all its bytes against its hashes.
/// Errors: InvalidArgument; those of parse_checkpoint(); Cancelled, if the thread's CancelScope is
/// cancelled between two reads.
torch::Tensor read_checked(const std::string& path) {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  const File file = File::open_read(path);
  auto bytes = torch::empty({static_cast<std::int64_t>(file_identity(file.fd(), path).size_bytes)},
                            torch::kUInt8);
  const auto expected = static_cast<std::size_t>(bytes.numel());
  std::size_t size = 0;
  while (size < expected) {
    if (size > 0) shardwise::detail::CancelScope::throw_if_cancelled();
    const std::size_t piece = std::min(kPiece, expected - size);
    const std::size_t got = file.read_at(size, static_cast<char*>(bytes.data_ptr()) + size, piece);
    size += got;
    if (got < piece) break;  // another process truncated the file
  }
  bytes = bytes.narrow(0, 0, static_cast<std::int64_t>(size));
  for (const CheckpointPart& part :
       shardwise::detail::parse_checkpoint(view_of(bytes), path).parts) {
    if (fits(part)) continue;
    throw InvalidArgument("the file is not a complete checkpoint (the value " +
                              in_quotes(part.name) + " has another size than its shape)",
                          in_quotes(path), "name a complete checkpoint");
  }
  return bytes;
}

/// Gives the file `from` a second name `to`. Replaces a file of that name.
void link_as(const std::string& from, const std::string& to) {
  const std::string temporary = temporary_name(from);
  if (::link(from.c_str(), temporary.c_str()) != 0) {
    // The file system has no hard links. Until the new checkpoint gets its name, no file has the
    // name `from`, and a reader uses the previous checkpoint.
    if (std::rename(from.c_str(), to.c_str()) != 0) throw_errno(errno, "cannot rename", from);
    return;
  }
  if (std::rename(temporary.c_str(), to.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw_errno(error, "cannot rename", temporary);
  }
  ::unlink(temporary.c_str());  // if both names refer to one file, rename() does nothing
}

/// Renames each older checkpoint to the next number. Gives the newest checkpoint an additional
/// name, with number 1, by a hard link.
void make_place(const std::string& path, int keep) {
  for (int number = keep - 1; number > 0; --number) {
    const std::string from = numbered(path, number - 1);
    const std::string to = numbered(path, number);
    if (!fs::exists(from)) continue;
    if (number == 1) {
      link_as(from, to);
    } else if (std::rename(from.c_str(), to.c_str()) != 0) {
      throw_errno(errno, "cannot rename", from);
    }
  }
}

}  // namespace

// ------------------------------------------------------------------------------------- Checkpoint

Checkpoint::Checkpoint(ResumeToken token) : token_(std::move(token)), writer_(kWriter) {}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> all;
  for (const auto& [name, value] : values_) all.push_back(name);
  return all;
}

void Checkpoint::put_value(const std::string& name, Value value) {
  shardwise::detail::require_part_name(name);
  values_[name] = std::move(value);
}

void Checkpoint::put(const std::string& name, const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  put_value(name, {type_name(plain.scalar_type(), name), plain.sizes().vec(), bytes_of(plain)});
}

void Checkpoint::put(const std::string& name, std::int64_t value) {
  put(name, torch::full({}, value, torch::kInt64));
}

void Checkpoint::put(const std::string& name, double value) {
  put(name, torch::full({}, value, torch::kFloat64));
}

void Checkpoint::put(const std::string& name, const std::string& text) {
  const auto bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
  put_value(name, {std::string(kText), {}, bytes});
}

void Checkpoint::put(const std::string& prefix, const torch::nn::Module& module) {
  for (const auto& [name, tensor] : tensors_of(module)) put(prefix + "/" + name, tensor);
}

void Checkpoint::put(const std::string& prefix, const torch::optim::Optimizer& optimizer,
                     const torch::nn::Module& module) {
  const detail::OptimizerKind& kind = detail::kind_of(optimizer);
  for (const auto& [name, parameter] : OptimizerParameters(optimizer, module)) {
    auto* const state = detail::find_state(optimizer, parameter);
    if (state == nullptr) continue;
    kind.for_each(*state, [&, at = prefix + "/" + name + "/"](const detail::StateField& field) {
      if (field.number != nullptr) put(at + field.name, *field.number);
      if (field.tensor != nullptr && field.tensor->defined()) put(at + field.name, *field.tensor);
    });
  }
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  put(prefix + "/kind", kind.name);
  put(prefix + "/learning_rates", torch::tensor(rates, torch::kFloat64));
}

const Checkpoint::Value& Checkpoint::value(const std::string& name) const {
  const auto at = values_.find(name);
  if (at != values_.end()) return at->second;
  throw NotFound("the checkpoint has no value of this name",
                 in_quotes(name) + (path_.empty() ? "" : " in " + in_quotes(path_)),
                 "list the names of the values with names()");
}

torch::Tensor Checkpoint::tensor(const std::string& name) const {
  const Value& found = value(name);
  const auto type = type_of(found.type);
  if (!type) {
    throw Mismatch("the value is not a tensor",
                   in_quotes(name) + (path_.empty() ? "" : " in " + in_quotes(path_)) +
                       " has the type " + escaped(found.type),
                   "read a text with text()");
  }
  return tensor_over(found.bytes, *type, found.shape);
}

std::int64_t Checkpoint::integer(const std::string& name) const {
  const torch::Tensor found = tensor(name);
  if (found.dim() == 0 && found.scalar_type() == torch::kInt64) return found.item<std::int64_t>();
  throw Mismatch("the value is not an integer", in_quotes(name), "read tensors with tensor()");
}

double Checkpoint::number(const std::string& name) const {
  const torch::Tensor found = tensor(name);
  if (found.dim() == 0 && found.scalar_type() == torch::kFloat64) return found.item<double>();
  throw Mismatch("the value is not a 64-bit number", in_quotes(name), "read tensors with tensor()");
}

std::string Checkpoint::text(const std::string& name) const {
  const Value& found = value(name);
  if (found.type == kText) return std::string(view_of(found.bytes));
  throw Mismatch("the value is not a text", in_quotes(name) + ", " + escaped(found.type),
                 "read tensors with tensor()");
}

void Checkpoint::load(const std::string& prefix, torch::nn::Module& module) const {
  const auto own = tensors_of(module);
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : own) {
    const auto at = values_.find(prefix + "/" + name);
    if (at == values_.end()) {
      differences.push_back(in_quotes(name) + " is missing in the checkpoint");
    } else if (at->second.shape != tensor.sizes().vec() ||
               type_of(at->second.type) != tensor.scalar_type()) {
      differences.push_back(in_quotes(name) + " is " + at->second.type +
                            shape_text(at->second.shape) + " in the checkpoint, " +
                            text_of(tensor, name) + " here");
    }
  }
  const std::string front = prefix + "/";
  for (auto at = values_.lower_bound(front); at != values_.end() && at->first.starts_with(front);
       ++at) {
    const std::string name = at->first.substr(front.size());
    if (!own.contains(name)) differences.push_back(in_quotes(name) + " is missing in the model");
  }
  if (!differences.empty()) throw_mismatch(differences, path_);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(this->tensor(prefix + "/" + name));
}

void Checkpoint::load(const std::string& prefix, torch::optim::Optimizer& optimizer,
                      const torch::nn::Module& module) const {
  const detail::OptimizerKind& kind = detail::kind_of(optimizer);
  if (text(prefix + "/kind") != kind.name) {
    throw_mismatch({"the optimizer is " + escaped(text(prefix + "/kind")) + " in the checkpoint, " +
                    kind.name + " here"},
                   path_);
  }
  const torch::Tensor rates = tensor(prefix + "/learning_rates").to(torch::kFloat64).flatten();
  auto& groups = optimizer.param_groups();
  if (rates.numel() != static_cast<std::int64_t>(groups.size())) {
    throw_mismatch({"the optimizer has " + std::to_string(rates.numel()) +
                    " groups in the checkpoint, " + std::to_string(groups.size()) + " here"},
                   path_);
  }
  std::vector<std::pair<torch::Tensor, std::unique_ptr<torch::optim::OptimizerParamState>>> states;
  for (const auto& [name, parameter] : OptimizerParameters(optimizer, module)) {
    auto state = kind.make_state();
    bool is_known = false;
    kind.for_each(*state, [&, at = prefix + "/" + name + "/",
                           &own = parameter](const detail::StateField& field) {
      if (!contains(at + field.name)) return;
      is_known = true;
      if (field.number != nullptr) {
        *field.number = integer(at + field.name);
        return;
      }
      const torch::Tensor kept = tensor(at + field.name);
      if (kept.sizes() != own.sizes() || kept.scalar_type() != own.scalar_type()) {
        throw_mismatch({in_quotes(at + field.name) + " is " + text_of(kept, field.name) +
                        " in the checkpoint, " + text_of(own, field.name) + " here"},
                       path_);
      }
      *field.tensor = kept.to(own.device());
    });
    states.emplace_back(parameter, is_known ? std::move(state) : nullptr);
  }
  for (auto& [parameter, state] : states) {
    detail::set_state(optimizer, parameter, std::move(state));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(rates[static_cast<std::int64_t>(i)].item<double>());
  }
}

void Checkpoint::put_random_state(const ProcessGroup& group) {
  auto generator = at::detail::getDefaultCPUGenerator();
  torch::Tensor own;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    own = generator.get_state();
  }
  const auto all = torch::zeros({group.world_size(), own.numel()}, torch::kUInt8);
  all[group.rank()].copy_(own);
  group.all_reduce(all);
  put(kRandomState, all);
}

void Checkpoint::load_random_state(const ProcessGroup& group) const {
  const torch::Tensor all = tensor(kRandomState);
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (all.dim() != 2 || all.scalar_type() != torch::kUInt8 || all.size(0) == 0 ||
      all.size(1) != generator.get_state().numel()) {
    throw Mismatch("the checkpoint's random state belongs to another version of LibTorch",
                   in_quotes(path_) + ", written by " + escaped(writer_),
                   "seed again with torch::manual_seed()");
  }
  if (group.rank() < all.size(0)) {
    generator.set_state(all[group.rank()].clone());
  } else {
    generator.set_current_seed(
        hash64(view_of(all[0].contiguous()), static_cast<std::uint64_t>(group.rank())));
  }
}

// --------------------------------------------------------------------------------- CheckpointFile

CheckpointFile::CheckpointFile(std::string path, ProcessGroup group)
    : CheckpointFile(std::move(path), std::move(group), Options{}) {}

CheckpointFile::CheckpointFile(std::string path, ProcessGroup group, Options options)
    : path_(at_home(std::move(path))), group_(std::move(group)), options_(std::move(options)) {
  if (path_.empty() || options_.keep < 1) {
    throw InvalidArgument("the options of the checkpoint are not valid",
                          in_quotes(path_) + ", keep " + std::to_string(options_.keep),
                          "give a path, and set keep to 1 or more");
  }
  on_first_rank(group_, [&] {
    require_no_folder(path_);
    file_ = behind_links(path_);
    sweep_temporaries(file_);
    const AtomicFile trial(file_);  // an unwritable path fails now, not after an epoch
  });
}

bool CheckpointFile::exists(const std::string& named) {
  const std::string path = at_home(named);
  require_no_folder(path);
  const std::string file = behind_links(path);
  return fs::exists(file) || fs::exists(numbered(file, 1));
}

std::optional<Checkpoint> CheckpointFile::read() {
  torch::Tensor bytes;  // undefined if there is no file
  std::string path;
  const auto stop = GroupAccess::calls(group_).stop();
  std::optional<shardwise::detail::CancelScope> scope;
  if (stop) scope.emplace(stop->flag());
  on_first_rank(group_, [&] {
    damaged_.clear();
    std::exception_ptr first;
    std::vector<std::string> reasons;
    for (int number = 0; number < options_.keep; ++number) {
      path = numbered(file_, number);
      if (!fs::exists(path)) continue;
      try {
        bytes = read_checked(path);
        break;
      } catch (const Error& e) {
        const bool is_damaged = e.code() == ErrorCode::kInvalidArgument;
        // A file that cannot be read may be intact, so its error ends the search. A file of another
        // format version is passed over, but is not damaged, so write() does not remove it.
        if (!is_damaged && e.code() != ErrorCode::kVersionMismatch) throw;
        if (first == nullptr) first = std::current_exception();
        if (is_damaged) damaged_.push_back(path);
        reasons.emplace_back(e.what());
      }
    }
    if (!bytes.defined() && first != nullptr) std::rethrow_exception(first);
    if (!options_.on_refused) return;
    for (const std::string& reason : reasons) options_.on_refused(reason);
  });
  const auto sizes = torch::tensor(
      {bytes.defined() ? bytes.numel() : std::int64_t{-1}, static_cast<std::int64_t>(path.size())},
      torch::kInt64);
  group_.broadcast(sizes);
  const auto* words = sizes.data_ptr<std::int64_t>();
  if (words[0] < 0) return std::nullopt;
  if (!group_.is_first()) bytes = torch::empty({words[0]}, torch::kUInt8);
  broadcast_bytes(bytes, group_);
  path.resize(static_cast<std::size_t>(words[1]));
  broadcast_bytes(torch::from_blob(path.data(), {words[1]}, torch::kUInt8), group_);

  CheckpointContent content = shardwise::detail::parse_checkpoint(view_of(bytes), path);
  Checkpoint read(std::move(content.token));
  read.path_ = path;
  read.writer_ = content.writer;
  const char* const begin = view_of(bytes).data();
  for (const CheckpointPart& part : content.parts) {
    read.values_[part.name] = {
        part.type, part.shape,
        bytes.narrow(0, part.bytes.data() - begin, static_cast<std::int64_t>(part.bytes.size()))};
  }
  return read;
}

void CheckpointFile::write(const Checkpoint& checkpoint) {
  on_first_rank(group_, [&] {
    CheckpointContent content{.token = checkpoint.token(), .writer = kWriter, .parts = {}};
    for (const auto& [name, value] : checkpoint.values_) {
      content.parts.push_back({name, value.type, value.shape, view_of(value.bytes)});
    }
    AtomicFile file(file_);
    file.file().write(shardwise::detail::checkpoint_front(content));
    for (const CheckpointPart& part : content.parts) file.file().write(part.bytes);
    file.file().sync();
    // The new file replaces a damaged newest file. Other damaged files are removed.
    for (const std::string& path : damaged_) {
      if (path != file_) fs::remove(path);
    }
    const bool is_whole = std::find(damaged_.begin(), damaged_.end(), file_) == damaged_.end();
    if (is_whole) make_place(file_, options_.keep);
    file.commit();
    damaged_.clear();
  });
}

}  // namespace shardwise::libtorch
