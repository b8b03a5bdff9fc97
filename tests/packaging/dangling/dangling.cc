// Compiles as it is. With one of the DANGLING_ macros it takes a view of a Sample that is destroyed
// at the end of the line. This must not compile.

#include "shardwise/shardwise.h"

std::size_t use(const shardwise::Dataset& data) {
#if defined(DANGLING_FIELD)
  return data[42]["jpg"].size();
#elif defined(DANGLING_FIND)
  return data[42].find("jpg")->size();
#elif defined(DANGLING_KEY)
  return data[42].key().size();
#elif defined(DANGLING_NTH_FIELD)
  return data[42].field(0).bytes.size();
#elif defined(DANGLING_SHARD_PATH)
  return data[42].shard_path().size();
#else
  const shardwise::Sample sample = data[42];
  return sample["jpg"].size() + sample.find("jpg")->size() + sample.key().size() +
         sample.field(0).bytes.size() + sample.shard_path().size();
#endif
}
