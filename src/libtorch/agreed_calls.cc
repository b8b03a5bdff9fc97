#include "libtorch/agreed_calls.h"

#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error_types.h"
#include "base/text.h"
#include "libtorch/reduction.h"
#include "libtorch/rendezvous/own_address.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch::detail {
namespace {

/// Reduces the tensors in the headers.
void reduce_payloads(const std::vector<CallHeader>& headers, ProcessGroup::ReduceOp op,
                     const torch::Tensor& tensor) {
  std::vector<torch::Tensor> of_ranks;
  for (const CallHeader& each : headers) of_ranks.push_back(widened(each.payload_like(tensor)));
  narrow_into(tensor, reduced(of_ranks, op));
}

}  // namespace

AgreedCalls::AgreedCalls(Peers peers, std::unique_ptr<Collectives> collectives,
                         std::shared_ptr<StopState> stop)
    : peers_(std::move(peers)), collectives_(std::move(collectives)), stop_(std::move(stop)) {}

bool AgreedCalls::is_usable() {
  const Lock lock(mutex_);
  return !broken_;
}

// ----------------------------------------------------------------------------------- one call

void AgreedCalls::call(const char* action, CallHeader own,
                       const std::function<void(const Headers&)>& collective) {
  const Lock lock(mutex_);
  if (broken_) {
    throw Error(ErrorCode::kDistributed, action,
                describe(environment()) + ", after an earlier failure", "start all ranks again");
  }
  if (stop_ && stop_->is_closed()) throw_given_up();
  broken_ = true;  // until the call has succeeded
  own.number = ++num_calls_;
  StopWord word;
  if (stop_) {
    stop_->happen(StopEvent::kWentOn);
    word = stop_->own();
    own.set_stop(word, stop_->is_save_due());
  }
  const Headers headers = run(action, [&] { return exchange(own); });
  if (stop_) {
    run(action, [&] { hear(headers, word); });
    if (std::ranges::any_of(headers, &CallHeader::is_given_up)) {
      const CallHeader& first = headers[0];
      const bool is_torn = first.is_given_up() && first.count != 0;
      stop_->happen(is_torn ? StopEvent::kTore : StopEvent::kGaveUp);
      broken_ = false;  // all ranks have made this call
      if (!own.is_given_up()) throw_given_up();
      return;
    }
  }
  require_same_call(action, headers);
  last_call_ = describe(own);
  if (collective) run(action, [&] { collective(headers); });
  broken_ = false;
}

template <class Work>
std::invoke_result_t<Work> AgreedCalls::run(const char* action, Work&& work) {
  try {
    return work();
  } catch (const std::exception& e) {
    // Close the connections first. Ranks that wait for this rank then fail at once instead of at
    // their timeout.
    if (peers_.probe) collectives_->close();
    std::string history = "the last call of all ranks was " + last_call_;
    if (num_steps_ > 0) history += ", after " + std::to_string(num_steps_) + " steps";
    peers_.throw_lost(action, reason_of(e), history);
  }
}

AgreedCalls::Headers AgreedCalls::exchange(const CallHeader& own) {
  if (is_alone()) return {own};
  ++counts_.exchanges;
  const auto size = static_cast<std::int64_t>(sizeof own);
  auto input = torch::empty({size}, torch::kUInt8);
  std::memcpy(input.data_ptr(), &own, sizeof own);
  const auto bytes = gather_tensors(input);
  Headers headers(bytes.size());
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    std::memcpy(static_cast<void*>(&headers[rank]), bytes[rank].data_ptr(), sizeof own);
    headers[rank].name.back() = 0;
  }
  return headers;
}

/// Adopts the largest word of all ranks if it is new. If words are equal, the lowest rank's counts.
void AgreedCalls::hear(const Headers& headers, const StopWord& own) {
  if (is_alone()) {
    stop_->agree(own);
    return;
  }
  if (headers[0].saves) stop_->agree_on_save();
  const auto first = std::ranges::max_element(headers, {}, &CallHeader::stop);
  if (first->stop <= stop_->agreed().level) return;
  const auto most = std::ranges::max(headers, {}, &CallHeader::reason_size).reason_size;
  const auto reasons =
      gather_bytes(own.reason.substr(0, CallHeader::kMaxReason), std::max<std::int64_t>(1, most));
  const auto rank = static_cast<std::size_t>(first - headers.begin());
  const std::string text = reasons[rank].substr(0, first->reason_size);
  stop_->agree({first->stop, first->exit_code,
                first->stop == StopLevel::kFailed ? peers_.name_of(rank) + ": " + text
                                                  : text + " (rank " + std::to_string(rank) + ")"});
}

void AgreedCalls::throw_given_up() const {
  const std::string& reason = stop_->agreed().reason;
  if (stop_->agreed().level == StopLevel::kFailed) {
    throw Error(ErrorCode::kDistributed, "a rank failed", reason, "");
  }
  throw Cancelled("the ranks stop", reason, "");
}

void AgreedCalls::require_same_call(const char* action, const Headers& headers) const {
  const auto is_same = [&](const CallHeader& each) { return each.is_same_call(headers[0]); };
  if (std::ranges::all_of(headers, is_same)) return;
  std::vector<Record> records;
  for (const CallHeader& each : headers) records.push_back({{"call", describe(each)}});
  throw Error(ErrorCode::kDistributed, std::string(action) + " (the ranks are out of step)",
              describe(environment()) + ": " + find_disagreement(records).value_or(""),
              "every rank must make the same calls in the same order: look for a call that only "
              "some ranks make, then start all ranks again from the last checkpoint");
}

// ------------------------------------------------------------------------------------ tensors

template <class Work>
void AgreedCalls::on_plain_tensor(const torch::Tensor& tensor, Work&& work) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor whole = tensor.detach().resolve_conj().resolve_neg();
  const torch::Tensor plain =
      CallHeader::fits(whole) ? whole.cpu().contiguous() : collectives_->prepared(whole);
  work(plain);
  if (plain.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(plain);
}

std::int64_t AgreedCalls::reduce(const char* name, const torch::Tensor& tensor, ReduceOp op,
                                 std::int64_t count) {
  if (is_alone()) return count;
  std::int64_t total = 0;
  on_plain_tensor(tensor, [&](const torch::Tensor& plain) {
    CallHeader own(name, plain);
    own.op = static_cast<std::uint8_t>(op);
    own.count = count;
    call("cannot reduce over the ranks", own, [&](const Headers& headers) {
      for (const CallHeader& each : headers) total += each.count;
      CallHeader::fits(plain) ? reduce_payloads(headers, op, plain) : reduce_all(plain, op);
    });
  });
  return total;
}

std::int64_t AgreedCalls::add_gradients(const char* name, const torch::Tensor& tensor,
                                        std::int64_t count, bool ends_step) {
  const std::int64_t total = reduce(name, tensor, ReduceOp::kSum, count);
  if (!ends_step) return total;
  ++num_steps_;
  if (stop_) stop_->happen(StopEvent::kAveraged);
  return total;
}

void AgreedCalls::broadcast(const torch::Tensor& tensor, int root) {
  if (is_alone()) return;
  on_plain_tensor(tensor, [&](const torch::Tensor& plain) {
    CallHeader own("broadcast", plain);
    own.root = root;
    call("cannot broadcast to the ranks", own, [&](const Headers& headers) {
      if (CallHeader::fits(plain)) {
        plain.copy_(headers[static_cast<std::size_t>(root)].payload_like(plain));
        return;
      }
      ++counts_.collectives;
      collectives_->broadcast(plain, root);
    });
  });
}

void AgreedCalls::reduce_all(const torch::Tensor& tensor, ReduceOp op) {
  const torch::Tensor wide = widened(tensor);
  // NaNs are summed separately: all backends add NaNs equally, but compare them differently.
  torch::Tensor nans;
  if (op != ReduceOp::kSum && wide.is_floating_point()) {
    nans = wide.mul(0).masked_fill_(wide.isnan().logical_not_(), 0);
    reduce_all(nans, ReduceOp::kSum);
  }
  ++counts_.collectives;
  collectives_->all_reduce(wide, op);
  if (nans.defined()) wide.masked_fill_(nans.isnan(), NAN);
  narrow_into(tensor, wide);
}

std::vector<torch::Tensor> AgreedCalls::gather_tensors(const torch::Tensor& input) {
  auto outputs = collectives_->all_gather(collectives_->prepared(input));
  for (torch::Tensor& output : outputs) output = output.cpu();
  return outputs;
}

// -------------------------------------------------------------------------------------- texts

void AgreedCalls::barrier() {
  if (!is_alone()) call("cannot wait for the ranks", CallHeader("barrier"));
}

std::vector<std::string> AgreedCalls::gather_bytes(const std::string& own, std::int64_t size) {
  auto padded = torch::zeros({size}, torch::kUInt8);
  std::memcpy(padded.data_ptr(), own.data(), own.size());
  ++counts_.collectives;
  std::vector<std::string> texts;
  for (const torch::Tensor& bytes : gather_tensors(padded)) {
    texts.emplace_back(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(size));
  }
  return texts;
}

std::vector<std::string> AgreedCalls::gather(const char* action, const char* name,
                                             const std::string& own) {
  if (is_alone()) return {own};
  CallHeader header(name);
  header.count = static_cast<std::int64_t>(own.size());
  std::vector<std::string> texts;
  call(action, header, [&](const Headers& headers) {
    const std::int64_t most = std::ranges::max(headers, {}, &CallHeader::count).count;
    texts = gather_bytes(own, std::max<std::int64_t>(1, most));
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      texts[rank].resize(static_cast<std::size_t>(headers[rank].count));
    }
  });
  return texts;
}

std::optional<std::string> AgreedCalls::find_difference(const Record& own) {
  std::vector<Record> records;
  for (const std::string& bytes : gather("cannot compare the ranks' settings", "require_same",
                                         shardwise::detail::to_bytes(own))) {
    records.push_back(record_from(bytes).value_or(Record()));
  }
  return find_disagreement(records);
}

void AgreedCalls::require_same(const Record& own) {
  if (const auto different = find_difference(own)) {
    throw Mismatch("the ranks' settings differ", *different,
                   "start all ranks with the same data and options");
  }
}

// ----------------------------------------------------------------------------------- stopping

void AgreedCalls::end_run() {
  call("cannot end the run with the other ranks", CallHeader("end of run"));
}

void AgreedCalls::give_up() {
  CallHeader own(CallHeader::kGivenUp);
  own.count = stop_->is_updating() ? 1 : 0;
  call("cannot tell the other ranks", own);
}

void AgreedCalls::throw_if_stopping(const char* name) {
  if (!stop_) return;
  call("cannot continue with the other ranks", CallHeader(name));
  if (stop_->agreed().is_at_once()) throw Cancelled("the ranks stop", stop_->agreed().reason, "");
}

// ------------------------------------------------------------------------------- introduction

std::vector<std::vector<std::string>> AgreedCalls::introduce(const std::vector<std::string>& own) {
  std::string text;
  for (const std::string& line : own) text += escaped(line) + '\n';
  std::vector<std::vector<std::string>> all;
  for (const std::string& lines :
       gather("cannot introduce the ranks to each other", "introduce", text)) {
    std::istringstream in(lines);
    auto& of_rank = all.emplace_back(own.size());
    for (std::string& line : of_rank) std::getline(in, line);
  }
  return all;
}

void AgreedCalls::introduce() {
  if (is_alone()) return;
  const auto of_ranks = introduce({own_host_name(), std::to_string(::getpid()), own_network(),
                                   shardwise::detail::random_key()});
  bool is_one_network = true;
  for (const auto& lines : of_ranks) {
    const auto process = static_cast<std::uint32_t>(parse_int64(lines[1]).value_or(0));
    peers_.ranks.push_back({.host = lines[0], .address = {}, .process = process});
    is_one_network = is_one_network && !lines[2].empty() && lines[2] == of_ranks[0][2];
  }
  peers_.find_local_ranks();
  peers_.letters.rank = environment().rank;
  peers_.letters.key = of_ranks[0][3];
  const std::string address = is_one_network ? "127.0.0.1" : own_address();
  try {
    peers_.probe.emplace(address);
  } catch (const Error&) {  // without a probe, lost ranks cannot be identified
  }
  bool has_all = true;
  const std::string port = std::to_string(peers_.probe ? peers_.probe->port() : 0);
  for (const auto& lines : introduce({address, port})) {
    const auto at = static_cast<std::uint16_t>(parse_int64(lines[1]).value_or(0));
    peers_.letters.addresses.push_back({lines[0], at});
    has_all = has_all && at != 0;
  }
  const bool is_reached = has_all && peers_.reach_each_other();
  for (const auto& lines : introduce({is_reached ? "yes" : "no"})) {
    if (lines[0] != "yes") peers_.probe.reset();
  }
}

}  // namespace shardwise::libtorch::detail
