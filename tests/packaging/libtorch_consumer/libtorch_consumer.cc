// Makes tensors and values from bytes, with only the installed package.

#include <shardwise/libtorch.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

namespace sl = shardwise::libtorch;

int main() {
  const nlohmann::json value = sl::decode_json(std::string_view(R"({"label": 3})"), {}, "a test");
  const torch::Tensor ones = torch::ones({2, 3});
  bool caught = false;
  try {
    sl::decode_npy(std::string_view("no npy"), "a test");
  } catch (const shardwise::BadField&) {
    caught = true;
  }
  std::printf("label %d, sum %g, caught %d\n", value["label"].get<int>(), ones.sum().item<double>(),
              caught);
  return value["label"] == 3 && caught ? 0 : 1;
}
