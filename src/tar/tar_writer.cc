#include "tar/tar_writer.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "base/errno_error.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "tar/tar_header.h"

namespace shardwise {
namespace {

using tar::kBlockBytes;

constexpr std::uint64_t kEndMarkerBytes = 1024;
constexpr int kRecordBytes = 10240;  // tar pads an archive's end to this
constexpr int kWriteBytes = 1 << 20;
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

/// While it lives, libarchive treats names on this thread as UTF-8, in any locale. Names that are
/// not UTF-8 are stored unchanged.
class Utf8Names {
 public:
  Utf8Names() : before_(::uselocale(utf8())) {}
  ~Utf8Names() { ::uselocale(before_); }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  static locale_t utf8() {
    static const locale_t kUtf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return kUtf8;  // null if that locale does not exist; the thread's locale is then unchanged
  }

  const locale_t before_;
};

/// Receives libarchive's output.
/// @param target  a TarWriter::Target.
la_ssize_t write_to_file(archive* writer, void* target, const void* bytes, std::size_t size) {
  auto& to = *static_cast<TarWriter::Target*>(target);
  try {
    if (to.file != nullptr) to.file->write({static_cast<const char*>(bytes), size});
    return static_cast<la_ssize_t>(size);
  } catch (...) {  // an exception must not pass through libarchive
    to.failure = std::current_exception();
    archive_set_error(writer, EIO, "cannot write");
    return -1;
  }
}

}  // namespace

TarWriter::TarWriter(const std::string& path)
    : file_(at_home(path)), archive_(archive_write_new()) {
  if (archive_ == nullptr) throw std::bad_alloc();
  archive* const writer = archive_.get();
  require(archive_write_set_format_pax_restricted(writer), "cannot write the shard");
  require(archive_write_set_bytes_per_block(writer, kWriteBytes), "cannot write the shard");
  require(archive_write_set_bytes_in_last_block(writer, kRecordBytes), "cannot write the shard");
  require(archive_write_open(writer, &target_, nullptr, write_to_file, nullptr),
          "cannot write the shard");
}

TarWriter::~TarWriter() {
  target_.file = nullptr;  // otherwise freeing the archive would write its end to the file
}

void TarWriter::Free::operator()(archive* writer) const noexcept { archive_write_free(writer); }

void TarWriter::add(const std::string& name, std::string_view content) {
  begin(name, content.size());
  write(content);
}

void TarWriter::add_file(const std::string& name, const std::string& source) {
  const File file = File::open_read(source);
  const std::uint64_t size_bytes = file_identity(file.fd(), source).size_bytes;
  begin(name, size_bytes);
  std::vector<char> buffer(std::min<std::uint64_t>(size_bytes, kCopyBytes));
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::size_t wanted = std::min<std::uint64_t>(buffer.size(), size_bytes - done);
    if (file.read_at(done, buffer.data(), wanted) != wanted) {
      throw Error(ErrorCode::kIo, "the file became shorter while it was packed", in_quotes(source),
                  "run again when no program writes to it");
    }
    write({buffer.data(), wanted});
    done += wanted;
  }
}

void TarWriter::commit() {
  require(archive_write_close(archive_.get()), "cannot finish");
  file_.commit();
}

std::uint64_t TarWriter::member_bytes(std::uint64_t content_bytes) {
  return kBlockBytes + tar::padded(content_bytes);
}

std::uint64_t TarWriter::archive_bytes(std::uint64_t member_bytes) {
  return (member_bytes + kEndMarkerBytes + kRecordBytes - 1) / kRecordBytes * kRecordBytes;
}

void TarWriter::begin(const std::string& name, std::uint64_t size_bytes) {
  const Utf8Names utf8;
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                            archive_entry_free);
  if (!entry) throw std::bad_alloc();
  archive_entry_copy_pathname(entry.get(), name.c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_mtime(entry.get(), 0, 0);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(size_bytes));
  const int result = archive_write_header(archive_.get(), entry.get());
  // A warning means that the name is not UTF-8. libarchive then stores its bytes in the pax header.
  if (result != ARCHIVE_WARN) require(result, "cannot write a header to");
}

void TarWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const la_ssize_t n = archive_write_data(archive_.get(), bytes.data(), bytes.size());
    if (n <= 0) require(ARCHIVE_FATAL, "cannot write");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void TarWriter::require(int result, const char* action) {
  if (result == ARCHIVE_OK) return;
  if (target_.failure) std::rethrow_exception(target_.failure);
  throw_errno(archive_errno(archive_.get()), action, file_.temporary_path());
}

}  // namespace shardwise
