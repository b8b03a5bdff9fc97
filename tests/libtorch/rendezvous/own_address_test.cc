#include "libtorch/rendezvous/own_address.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "libtorch/rendezvous/hub.h"
#include "support/support.h"

namespace shardwise::detail {
namespace {

bool is_numbers(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1;
}

class OwnAddressTest : public testing::Test {
 protected:
  OwnAddressTest() { clear(); }
  ~OwnAddressTest() override { clear(); }

 private:
  static void clear() {
    for (const char* name : {"GLOO_SOCKET_IFNAME", "MASTER_ADDR"}) ::unsetenv(name);
  }
};

TEST_F(OwnAddressTest, IsInNumbersWhateverIsSet) {
  EXPECT_TRUE(is_numbers(own_address())) << own_address();
  ::setenv("MASTER_ADDR", "no such machine.invalid", 1);
  EXPECT_TRUE(is_numbers(own_address())) << own_address();
  ::setenv("GLOO_SOCKET_IFNAME", "none", 1);
  EXPECT_TRUE(is_numbers(own_address())) << own_address();
}

TEST_F(OwnAddressTest, TheInterfaceThatIsNamedCounts) {
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  ::setenv("MASTER_ADDR", "192.0.2.1", 1);
  EXPECT_THAT(own_address(), testing::AnyOf("127.0.0.1", "::1"));
}

TEST_F(OwnAddressTest, OwnOnesAreKnown) {
  for (const char* own : {"127.0.0.1", "127.0.1.1", "localhost"}) {
    EXPECT_TRUE(is_own_address(own)) << own;
  }
  EXPECT_TRUE(is_own_address(own_address()));
  for (const char* other : {"192.0.2.1", "2001:db8::1", "nobody.invalid", ""}) {
    EXPECT_FALSE(is_own_address(other)) << other;
  }
}

TEST_F(OwnAddressTest, ALoopbackAddressIsListenedAtAlone) {
  for (const std::string address : {"127.0.0.1", "127.0.1.1", "::1"}) {
    const Socket socket = listen_at(address, 0);
    if (!socket.is_open() && address == "::1")
      GTEST_SKIP() << "needs IPv6; skipped because this machine has none";
    EXPECT_EQ(address_of(socket), address);
  }
}

TEST_F(OwnAddressTest, TheNetworkIsOneForAllProcessesOfTheMachine) {
  const std::string network = own_network();
  if (network.empty())
    GTEST_SKIP() << "needs the network in /proc; skipped because it is not shown there";
  EXPECT_EQ(network, own_network());
  EXPECT_THAT(network, testing::HasSubstr("net:["));
  EXPECT_FALSE(own_host_name().empty());
}

}  // namespace
}  // namespace shardwise::detail
