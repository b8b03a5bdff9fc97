#include "loader/read_ahead.h"

#include <sys/resource.h>

#include <utility>

#include "base/fork.h"
#include "loader/read_fields.h"

namespace shardwise::detail {
namespace {

/// While the page cache lacks the data, this many samples or bytes, whichever limit is reached
/// first, are requested beyond the engine's next plan.
constexpr std::size_t kRowsAhead = 256;
constexpr std::uint64_t kBytesAhead = std::uint64_t{64} << 20;
/// Samples between two checks for disk reads. A check costs a system call.
constexpr std::size_t kRowsALook = 64;
/// Once this many samples were requested without a disk read, the data counts as cached. The number
/// is larger than a usual chunk, because reading the first samples of a chunk may bring the whole
/// chunk into memory.
constexpr std::size_t kMaxInVain = 2048;
/// Samples of pieces that were requested before say little about the page cache. This many of them
/// count as one.
constexpr std::size_t kSkippedForOne = 16;

/// Returns a number that grows when this thread reads from disk, or waits for a read by another.
std::int64_t disk_reads_of_thread() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return 0;
  return std::int64_t{usage.ru_inblock} + usage.ru_majflt;
}

/// disk_reads_of_thread() at this thread's last check.
thread_local constinit std::int64_t reads_before = 0;

}  // namespace

ReadAheadSource::ReadAheadSource(Engine::Source source, MixedDataset data,
                                 std::span<const Column> columns)
    : source_(std::move(source)),
      data_(std::move(data)),
      requests_(new std::vector<PageRequest>,
                [here = process_generation()](const std::vector<PageRequest>* requests) {
                  if (process_generation() == here) delete requests;
                }) {
  for (std::size_t part = 0; part < data_.num_parts(); ++part) {
    requests_->emplace_back(data_.part(part), whole_fields(columns));
  }
}

std::optional<BatchPlan> ReadAheadSource::operator()() {
  look();
  while (!has_ended_ && (plans_.empty() || (is_asking_ && !is_ahead()))) plan_one();
  if (plans_.empty()) {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return std::nullopt;
  }
  BatchPlan plan = std::move(plans_.front().plan);
  plans_.pop_front();
  return plan;
}

bool ReadAheadSource::is_ahead() const noexcept {
  std::size_t rows = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 1; i < plans_.size(); ++i) {
    rows += plans_[i].plan.samples.size();
    bytes += plans_[i].bytes;
  }
  return rows >= kRowsAhead || bytes >= kBytesAhead || plans_.size() > kRowsAhead;
}

void ReadAheadSource::look() {
  if (!is_asking_ && rows_since_look_ < kRowsALook) return;
  rows_since_look_ = 0;
  if (std::exchange(reads_before, disk_reads_of_thread()) == reads_before) return;
  if (!std::exchange(is_asking_, true)) {
    for (PageRequest& request : *requests_) request.forget();
  }
  asked_in_vain_ = 0;
}

void ReadAheadSource::plan_one() {
  Asked next;
  try {
    std::optional<BatchPlan> plan = source_();
    if (!plan) {
      has_ended_ = true;
      return;
    }
    next.plan = *std::move(plan);
    rows_since_look_ += next.plan.samples.size();
    if (is_asking_) next.bytes = ask(next.plan);
    plans_.push_back(std::move(next));
  } catch (...) {
    error_ = std::current_exception();
    has_ended_ = true;
  }
}

std::uint64_t ReadAheadSource::ask(const BatchPlan& plan) {
  std::uint64_t bytes = 0;
  if (data_.num_parts() == 1) {
    bytes = requests_->front().send(plan.samples);
  } else {
    std::vector<std::vector<std::uint64_t>> samples(data_.num_parts());
    for (const std::uint64_t sample : plan.samples) {
      const std::size_t part = data_.part_of(sample);
      samples[part].push_back(sample - data_.first_sample(part));
    }
    for (std::size_t part = 0; part < samples.size(); ++part) {
      bytes += (*requests_)[part].send(samples[part]);
    }
  }
  const bool was_in_vain = std::exchange(reads_before, disk_reads_of_thread()) == reads_before;
  if (bytes == 0) {
    asked_in_vain_ += (plan.samples.size() + kSkippedForOne - 1) / kSkippedForOne;
  } else {
    asked_in_vain_ = was_in_vain ? asked_in_vain_ + plan.samples.size() : 0;
  }
  if (asked_in_vain_ >= kMaxInVain) is_asking_ = false;
  return bytes;
}

}  // namespace shardwise::detail
