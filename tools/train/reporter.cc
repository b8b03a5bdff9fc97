#include "reporter.h"

#include <fmt/core.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "console.h"
#include "json_names.h"
#include "shardwise/base/error.h"

namespace shardwise::train {
namespace {

using libtorch::Mean;

/// A number of 0 or more, for people: "1,235".
std::string rounded(double value) {
  return human_count(static_cast<std::uint64_t>(std::llround(value)));
}

std::string accuracy_text(const Mean& accuracy) {
  return fmt::format("accuracy {:.2f} % ({} of {})", 100 * accuracy.value(), rounded(accuracy.sum),
                     human_count(static_cast<std::uint64_t>(accuracy.count)));
}

void add_accuracy(nlohmann::ordered_json& line, const std::optional<Mean>& accuracy) {
  if (!accuracy) return;
  line["accuracy"] = accuracy->value();
  line["correct"] = static_cast<std::int64_t>(accuracy->sum);
  line["evaluated"] = accuracy->count;
}

void say_all(const std::string& text) { std::fputs(text.c_str(), stderr); }

}  // namespace

Reporter::Reporter(const Options& options, bool speaks)
    : json_(options.json),
      speaks_(speaks),
      progress_(speaks && !options.first_use.quiet),
      terminal_(::isatty(STDERR_FILENO) != 0) {}

void Reporter::begin_epoch() {
  epoch_start_ = Clock::now();
  last_ = epoch_start_;
}

void Reporter::progress(std::uint64_t epoch, std::uint64_t step, std::uint64_t steps, double loss,
                        double images_per_second) {
  const auto now = Clock::now();
  const std::chrono::milliseconds pause(terminal_ ? 200 : 5000);
  if (!progress_ || now - last_ < pause) return;
  last_ = now;
  double left = 0;
  if (images_per_second > 0 && step > 0) {
    const double seconds = std::chrono::duration<double>(now - epoch_start_).count();
    left = seconds / static_cast<double>(step) * static_cast<double>(steps - step);
  }
  say_all(fmt::format("{}epoch {}: step {} of {}, loss {:.4f}, {} images/s, {:.0f} s left{}",
                      terminal_ ? "\r" : "", epoch, step, steps, loss, rounded(images_per_second),
                      left, terminal_ ? "   " : "\n"));
  line_open_ = terminal_;
}

void Reporter::epoch_done(std::uint64_t epoch, double loss, std::int64_t samples, double seconds,
                          const std::optional<Mean>& accuracy, const std::string& proof) {
  proofs_.push_back(proof);
  if (accuracy) accuracy_ = accuracy;
  if (!speaks_) return;
  close_line();
  const double rate = seconds > 0 ? static_cast<double>(samples) / seconds : 0;
  if (json_) {
    nlohmann::ordered_json line = {{"epoch", epoch},
                                   {"loss", loss},
                                   {"samples", samples},
                                   {"seconds", seconds},
                                   {"images_per_second", rate}};
    add_accuracy(line, accuracy);
    line["proof"] = proof;
    print(line);
  } else {
    print(fmt::format("epoch {}: loss {:.4f}, {}{} in {:.1f} s, {} images/s", epoch, loss,
                      accuracy ? accuracy_text(*accuracy) + ", " : "",
                      counted(static_cast<std::uint64_t>(samples), "image"), seconds,
                      rounded(rate)));
  }
}

void Reporter::evaluated(std::uint64_t epoch, const Mean& accuracy) {
  accuracy_ = accuracy;
  if (!speaks_) return;
  if (json_) {
    nlohmann::ordered_json line = {{"epoch", epoch}};
    add_accuracy(line, accuracy);
    print(line);
  } else {
    print(fmt::format("epoch {}: {}", epoch, accuracy_text(accuracy)));
  }
}

void Reporter::report(const std::string& table) {
  if (!progress_) return;
  close_line();
  say_all(table);
}

void Reporter::stopped(const std::string& reason, std::uint64_t step,
                       const std::string& checkpoint) {
  if (!speaks_) return;
  close_line();
  if (json_) print(nlohmann::ordered_json{{"stopped", reason}, {"step", step}});
  tools::say("note", "stopped after step " + std::to_string(step) + ": " + reason +
                         (checkpoint.empty()
                              ? "; no checkpoint has this step"
                              : "; continue from " + in_quotes(checkpoint) + " with --resume"));
}

void Reporter::run_done(std::uint64_t epochs, const SkipList& bad, const Loader::Stats& loading) {
  if (!speaks_) return;
  const std::string limit = loading.summary();
  if (progress_ && loading.batches > 0) tools::say("loading", limit);
  for (const auto& [sample, entry] : bad.samples()) {
    tools::say("note", fmt::format("sample {} was left out: {}", sample, entry.reason));
  }
  if (json_) {
    nlohmann::ordered_json line = {{"num_epochs", epochs}};
    add_accuracy(line, accuracy_);
    line["bad_samples"] = bad.samples().size();
    line["limit"] = limit;
    line["threads"] = loading.threads;
    line["compute_threads"] = torch::get_num_threads();
    line["proofs"] = proofs_;
    print(line);
  } else {
    if (accuracy_) print(accuracy_text(*accuracy_) + ", each sample counted once");
    for (const std::string& proof : proofs_) print(proof);
  }
}

void Reporter::require_written() const {
  if (unwritten_) std::rethrow_exception(unwritten_);
}

void Reporter::close_line() {
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

void Reporter::print(const nlohmann::ordered_json& json) {
  print(tools::json_text(tools::with_old_names("shardwise-train", json)));
}

/// Prints a line of results. Prints nothing once a write has failed.
void Reporter::print(const std::string& line) {
  if (unwritten_ || reader_is_gone_) return;
  try {
    out_.write(line + "\n");
    out_.flush();
  } catch (const tools::ReaderGone&) {
    reader_is_gone_ = true;  // the reader has closed the pipe
  } catch (const Error&) {
    unwritten_ = std::current_exception();
  }
}

}  // namespace shardwise::train
