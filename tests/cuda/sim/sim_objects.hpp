#pragma once
// What the simulator's handles stand for. Only for its own files.
#include <deque>
#include <optional>

#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::sim {

enum class What { kernel, copy, zero, host, polling, write_word, wait_word, record, wait_event };

/// One event_record().
struct SimRuntime::Record {
  bool passed = false;
  Clock clock;  ///< what had happened by then
};

struct SimRuntime::Operation {
  What what = What::host;
  std::shared_ptr<const std::string> name;
  std::vector<Access> accesses;
  std::function<bool()> run;         ///< false: not yet
  std::vector<std::byte> arguments;  ///< for audits
  std::shared_ptr<Record> record;
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;
  Clock host;  ///< what the thread that enqueued it knew
};

struct SimRuntime::Graph {
  std::vector<Operation> operations;
};

struct SimRuntime::SimStream {
  static constexpr std::uint64_t valid = 0x73696d5f73747265;
  std::uint64_t magic = valid;
  SimRuntime* runtime = nullptr;
  std::uint32_t line = 0;
  std::deque<Operation> queue;
  Clock clock;  ///< what has happened before its next operation
  std::optional<std::string> declared;
  std::vector<Access> declared_accesses;
  std::unique_ptr<Graph> capture;
  std::thread::id capturing;
  bool destroyed = false;
};

struct SimRuntime::SimEvent {
  std::shared_ptr<Record> latest;
};

}  // namespace holdfast::cuda::sim
