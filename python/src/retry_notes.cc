#include "retry_notes.h"

#include <nanobind/nanobind.h>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "gil.h"
#include "storage/retry_notes.h"

namespace shardwise::python {
namespace {

/// Maximum number of notes that wait for the thread that logs them. More notes are dropped, e.g. if
/// a handler of the logger hangs.
constexpr std::size_t kMaxNotes = 64;

struct Notes {
  struct Process {
    std::vector<std::string> texts;
    bool has_thread = false;
  };
  detail::Mutex mutex;
  detail::Condition added;
  detail::PerProcess<Process> process SHARDWISE_GUARDED_BY(mutex);
};

/// Is never destroyed, because fetching threads may outlive the interpreter.
Notes& notes() {
  static auto* const made = new Notes;
  return *made;
}

/// Logs one note. Uses the C API, as call_python() requires. If a handler of the logger raises,
/// Python reports this by sys.unraisablehook().
void log(const std::string& text) {
  PyObject* const logging = PyImport_ImportModule("logging");
  PyObject* const logger =
      logging == nullptr ? nullptr : PyObject_CallMethod(logging, "getLogger", "s", "shardwise");
  PyObject* const message =
      logger == nullptr
          ? nullptr
          : PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  PyObject* const done =
      message == nullptr ? nullptr : PyObject_CallMethod(logger, "warning", "sO", "%s", message);
  if (done == nullptr) PyErr_WriteUnraisable(logger);
  Py_XDECREF(done);
  Py_XDECREF(message);
  Py_XDECREF(logger);
  Py_XDECREF(logging);
}

[[noreturn]] void log_all() {
  for (;;) {
    std::vector<std::string> texts;
    {
      const detail::Lock lock(notes().mutex);
      while (notes().process.get().texts.empty()) notes().added.wait(notes().mutex);
      texts.swap(notes().process.get().texts);
    }
    const GilAcquired acquired;
    call_python([&] {
      for (const std::string& text : texts) log(text);
    });
  }
}

void collect(const std::string& url, const std::string& reason, std::chrono::milliseconds left) {
  std::string text = detail::retry_note(url, reason, left);
  const detail::Lock lock(notes().mutex);
  Notes::Process& process = notes().process.get();
  if (process.texts.size() < kMaxNotes) process.texts.push_back(std::move(text));
  notes().added.notify_one();
  if (process.has_thread) return;
  try {
    std::thread(log_all).detach();
    process.has_thread = true;
  } catch (const std::system_error&) {  // the next note tries again
  }
}

}  // namespace

void log_retries() { detail::set_retry_hook(&collect); }

}  // namespace shardwise::python
