#include "ingest/md5.h"

#include <openssl/evp.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error_types.h"
#include "base/file.h"
#include "base/text.h"

namespace shardwise {
namespace {

constexpr std::size_t kMd5PieceBytes = std::size_t{1} << 20;

void require(int result) {
  if (result == 1) return;
  throw Unsupported("md5 is turned off in this system's libcrypto", "",
                    "leave out md5, or enable md5 in OpenSSL's configuration");
}

}  // namespace

struct Md5::State {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Md5::Md5() : state_(std::make_unique<State>()) {
  if (!state_->context) throw std::bad_alloc();
  require(EVP_DigestInit_ex(state_->context.get(), EVP_md5(), nullptr));
}
Md5::~Md5() = default;

void Md5::update(std::string_view bytes) {
  require(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()));
}

std::string Md5::digest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  require(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size));
  return hex({reinterpret_cast<const char*>(digest.data()), size});
}

std::string local_md5(const Index::Shard& shard,
                      const std::function<void(std::uint64_t)>& bytes_done,
                      const CancelToken& cancel) {
  const File file = File::open_read(shard.path);
  const FileIdentity identity = file_identity(file.fd(), file.path());
  require_unchanged(shard, identity.size_bytes, identity.mtime_ns);
  Md5 md5;
  std::vector<char> piece(kMd5PieceBytes);
  for (std::uint64_t done = 0;;) {
    cancel.throw_if_cancelled();
    const std::size_t n = file.read_at(done, piece.data(), piece.size());
    if (n == 0) break;
    md5.update({piece.data(), n});
    done += n;
    bytes_done(done);
  }
  return md5.digest();
}

}  // namespace shardwise
