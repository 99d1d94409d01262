#pragma once
// What the parts of ShardedWeights work with. Everything outlives them.
#include "src/kernels/kernels.hpp"
#include "src/shard/mesh.hpp"
#include "src/tensor/arena.hpp"

namespace holdfast::shard {

struct Resources {
  const Groups& groups;
  kernels::Kernels& kernels;  ///< for the compute stream
  kernels::Kernels&
      reduce_kernels;  ///< for the communicators' streams; on the host an instance of its own, of one thread
  tensor::Stream& stream;
  tensor::Arena& symmetric;  ///< committed onto Communicator::symmetric_memory()
  tensor::Arena& own;
  tensor::Arena* parameters = nullptr;  ///< of the fp32 master alone, which may move; null: in `own`
};

}  // namespace holdfast::shard
