#include "blocking.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/cancel_scope.h"
#include "gil.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

constexpr std::chrono::milliseconds kSignalInterval{20};

/// The thread that works for the main thread. A process needs only one, since the main thread waits
/// for each piece of work. The thread starts at first use and never ends.
class MainThreadHelper {
 public:
  static MainThreadHelper& get() {
    // In a forked child the parent's helper has no thread. The child abandons it.
    static MainThreadHelper* helper = nullptr;
    static pid_t owner = 0;
    if (owner != getpid()) {
      helper = new MainThreadHelper;
      owner = getpid();
    }
    return *helper;
  }

  /// True during work. A call from the main thread then comes from a signal handler.
  [[nodiscard]] bool is_busy() {
    const std::lock_guard lock(mutex_);
    return work_ != nullptr;
  }
  /// Starts `work`. REQUIRES: no other work is running.
  void begin(const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    error_ = nullptr;
    changed_.notify_all();
  }
  /// Waits for the work, `time` at most. Returns true if it is done.
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return work_ == nullptr; });
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_ == nullptr; });
  }
  [[nodiscard]] std::exception_ptr take_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, nullptr);
  }

 private:
  MainThreadHelper() {
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return work_ != nullptr; });
      const std::function<void()>& work = *work_;
      lock.unlock();
      std::exception_ptr error;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = std::move(error);
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
};

bool is_main_thread() { return gettid() == getpid(); }

void work_on_helper(const std::function<void(const CancelToken& cancel)>& work,
                    const std::function<void()>& on_cancel) {
  CancelToken::Flag stop{false};
  const std::function<void()> cancellable = [&] {
    const detail::CancelScope scope(stop);
    work(CancelToken(&stop));
  };
  MainThreadHelper& helper = MainThreadHelper::get();
  std::exception_ptr signal;  // exception raised by a signal's handler
  {
    const GilReleased released;
    helper.begin(cancellable);
    while (!helper.wait(kSignalInterval)) {
      const nb::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() == 0) continue;
      try {
        nb::raise_python_error();
      } catch (...) {
        signal = std::current_exception();
      }
      stop = true;
      if (on_cancel) on_cancel();
      const GilReleased again;
      helper.wait();
      break;
    }
  }
  const std::exception_ptr error = helper.take_error();
  if (signal) std::rethrow_exception(signal);
  if (error) std::rethrow_exception(error);
}

}  // namespace

void run_without_gil(const std::function<void(const CancelToken& cancel)>& work,
                     const std::function<void()>& on_cancel) {
  if (is_main_thread() && !MainThreadHelper::get().is_busy()) {
    return work_on_helper(work, on_cancel);
  }
  const GilReleased released;
  work({});
}

}  // namespace shardwise::python
