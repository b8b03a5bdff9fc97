#include "storage/range_download.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "base/fork.h"
#include "base/text.h"
#include "storage/backoff.h"
#include "storage/byte_ranges.h"
#include "storage/fetch_failure.h"

// Each thread repeatedly takes the next piece that has not been requested, and fetches it with a
// separate request. Pieces arrive nearly in order, because readers of the shard and the hash of the
// file need the bytes in order. The calling thread processes the bytes up to the first gap.
//
//   |== there ==|-- coming, piece 5 --|== there (6) ==|-- coming, 7 --|   left_   |
//               ^ advance(end)                                        ^ the next piece
//
// If a reader waits for a byte far ahead, the next piece begins at that byte.
//
// A piece that has delivered bytes is never restarted. If its connection breaks, its thread resumes
// the piece or fails. Each byte is therefore written only once, and readers may map the file.
//
// The first failure sets a flag that all requests poll, and so stops them.

namespace shardwise {
namespace {

using detail::ByteRanges;

/// A piece is so large that the overhead of a request is small, and so small that urgent bytes do
/// not wait long. Very large files are divided into larger pieces.
constexpr std::uint64_t kMinPieceBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kPieces = 32;
/// An urgent piece begins at a multiple of this, so that whole pages are written.
constexpr std::uint64_t kAlignment = 4096;

class Download {
 public:
  explicit Download(const RangeDownload& what)
      : what_(what),
        piece_bytes_(std::clamp(what.size_bytes / kPieces, kMinPieceBytes, kMaxPieceBytes)) {
    left_.add(0, what.size_bytes);
  }

  void run() {
    Threads threads(*this);
    const std::uint64_t num_pieces = (what_.size_bytes + piece_bytes_ - 1) / piece_bytes_;
    const auto num =
        std::min(num_pieces, static_cast<std::uint64_t>(std::max(1, what_.num_connections)));
    for (std::uint64_t i = 0; i < num; ++i) threads.start();
    follow();
    threads.join();
    const Lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  using Piece = std::pair<std::uint64_t, std::uint64_t>;

  /// The threads that fetch. The destructor stops and joins them.
  class Threads {
   public:
    explicit Threads(Download& of) : of_(of) {}
    ~Threads() {
      of_.stop_ = true;
      threads_.join();
    }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

    void start() {
      {
        const Lock lock(of_.mutex_);
        ++of_.num_running_;
      }
      try {
        threads_.start([&of = of_] { of.work(); }, "sw-part");
      } catch (...) {
        const Lock lock(of_.mutex_);
        if (--of_.num_running_ == 0) throw;  // otherwise the running threads do all the work
      }
    }
    void join() { threads_.join(); }

   private:
    Download& of_;
    WorkerThreads threads_;
  };

  /// Writes the bytes of one piece, and records which have arrived.
  class PieceSink : public Fetcher::Sink {
   public:
    PieceSink(Download& to, const Piece& piece) : to_(to), begin_(piece.first), at_(piece.first) {}
    void write(std::string_view bytes) override {
      to_.what_.write(at_, bytes);
      {
        const Lock lock(to_.mutex_);
        to_.there_.add(at_, at_ + bytes.size());
      }
      at_ += bytes.size();
      to_.changed_.notify_all();
    }
    bool restart() override { return at_ == begin_; }

   private:
    Download& to_;
    const std::uint64_t begin_;
    std::uint64_t at_;
  };

  std::optional<Piece> take() {
    const std::vector<std::uint64_t> wanted = what_.wanted();
    const Lock lock(mutex_);
    if (stop_ || left_.empty()) return std::nullopt;
    Piece piece = left_.first();
    for (const std::uint64_t byte : wanted) {
      const auto gap = left_.find(byte);
      if (!gap) continue;  // a thread is already fetching this byte
      piece = {std::max(gap->first, byte - byte % kAlignment), gap->second};
      break;
    }
    piece.second = std::min(piece.second, piece.first + piece_bytes_);
    left_.remove(piece.first, piece.second);
    return piece;
  }

  void fetch(const Piece& piece) {
    PieceSink sink(*this, piece);
    Fetcher::Request request = what_.request;
    request.range = {piece.first, piece.second};
    request.cancel = &stop_;
    const Fetcher::Stat file = what_.fetchers.fetch(request, sink);
    if (!file.size_bytes || *file.size_bytes == what_.size_bytes) return;
    throw_fetch_error<BadPart>(request.url,
                               "the file has " + human_count(*file.size_bytes) + " bytes, not " +
                                   human_count(what_.size_bytes),
                               "index the file again");
  }

  void work() noexcept {
    std::exception_ptr failure;
    try {
      while (const auto piece = take()) fetch(*piece);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const Lock lock(mutex_);
      // Only the first failure counts; later ones occur because the flag stopped their requests.
      if (failure && !failure_) failure_ = failure;
      if (failure) stop_ = true;
      --num_running_;
    }
    changed_.notify_all();
  }

  /// Processes the received bytes in order, until all threads have finished.
  void follow() {
    for (std::uint64_t done = 0;;) {
      std::uint64_t end = 0;
      bool is_over = false;
      {
        const Lock lock(mutex_);
        end = there_.first_missing(0);
        is_over = num_running_ == 0;
        if (end == done && !is_over) {
          changed_.wait(mutex_, what_.request.cancel);
          end = there_.first_missing(0);
        }
      }
      check_cancelled(what_.request);
      if (end > done) what_.advance(end);
      done = end;
      if (is_over) return;
    }
  }

  const RangeDownload& what_;
  const std::uint64_t piece_bytes_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  Condition changed_;
  ByteRanges left_ SHARDWISE_GUARDED_BY(mutex_);   // bytes not yet requested
  ByteRanges there_ SHARDWISE_GUARDED_BY(mutex_);  // bytes written
  std::uint64_t num_running_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::exception_ptr failure_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace

void download_ranges(const RangeDownload& what) { Download(what).run(); }

}  // namespace shardwise
