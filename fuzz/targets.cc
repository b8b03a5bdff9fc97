#include "targets.h"

namespace shardwise::fuzz {

const std::vector<NamedTarget>& all_targets() {
  static const std::vector<NamedTarget> kTargets = {
      {"tar_scan", scan_tar_target, scan_tar_seeds},
      {"sparse_tar_image", sparse_tar_image_target, sparse_tar_image_seeds},
      {"offset_table", offset_table_target, offset_table_seeds},
      {"catalogue", catalogue_target, catalogue_seeds},
      {"side_tables", side_tables_target, side_tables_seeds},
      {"csv", csv_target, csv_seeds},
      {"descriptor", descriptor_target, descriptor_seeds},
      {"json_path", json_path_target, json_path_seeds},
      {"expand", expand_target, expand_seeds},
      {"checkpoint", checkpoint_target, checkpoint_seeds},
      {"rendezvous", rendezvous_target, rendezvous_seeds},
#ifdef SHARDWISE_FUZZ_IMAGES
      {"array", array_target, array_seeds},
      {"image", image_target, image_seeds},
      {"image_memory", image_memory_target, image_memory_seeds},
#endif
#ifdef SHARDWISE_WITH_VIDEO
      {"media", media_target, media_seeds},
#endif
  };
  return kTargets;
}

const NamedTarget& target_named(std::string_view name) {
  for (const NamedTarget& target : all_targets()) {
    if (target.name == name) return target;
  }
  throw std::invalid_argument("no such target: " + std::string(name));
}

}  // namespace shardwise::fuzz
