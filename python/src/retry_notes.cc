#include "retry_notes.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "errors.h"
#include "storage/retry_notes.h"

namespace nb = nanobind;

namespace shardwise::python {
namespace {

/// Maximum number of notes that wait for log_retries(). More notes are dropped, e.g. in a process
/// whose main thread never waits for this package.
constexpr std::size_t kMaxNotes = 64;

struct Notes {
  detail::Mutex mutex;
  std::vector<std::string> texts SHARDWISE_GUARDED_BY(mutex);
  std::atomic<bool> has_any{false};
};

/// Is never destroyed, because fetching threads may outlive the interpreter.
Notes& notes() {
  static auto* const made = new Notes;
  return *made;
}

void collect(const std::string& url, const std::string& reason, std::chrono::milliseconds left) {
  std::string text = detail::retry_note(url, reason, left);
  const detail::Lock lock(notes().mutex);
  if (notes().texts.size() < kMaxNotes) notes().texts.push_back(std::move(text));
  notes().has_any = true;
}

}  // namespace

void collect_retry_notes() { detail::set_retry_hook(&collect); }

bool log_retries() {
  if (!notes().has_any) return true;
  std::vector<std::string> texts;
  {
    const detail::Lock lock(notes().mutex);
    texts.swap(notes().texts);
    notes().has_any = false;
  }
  return guarded(
      [&] {
        const nb::object logger = nb::module_::import_("logging").attr("getLogger")("shardwise");
        for (const std::string& text : texts) {
          logger.attr("warning")(
              "%s", nb::steal(PyUnicode_DecodeUTF8(
                        text.data(), static_cast<Py_ssize_t>(text.size()), "replace")));
        }
        return true;
      },
      false);
}

}  // namespace shardwise::python
