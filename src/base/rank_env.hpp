#pragma once
// The contract between launcher and rank: the names of the variables and the struct they fill.
// `holdfast-train` is one such rank; `[rank] command` may name any other program, which also gets torch's
// names.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/base/start_state.hpp"

namespace holdfast {

/// What a rank knows about its place. All of it belongs to the logical slot, never to the host.
struct RankEnv {
  int rank = 0;                   ///< HOLDFAST_RANK, RANK
  int world = 1;                  ///< HOLDFAST_WORLD, WORLD_SIZE
  int local_rank = 0;             ///< HOLDFAST_LOCAL_RANK, LOCAL_RANK: GPU index on the node
  int ranks_per_node = 1;         ///< HOLDFAST_RANKS_PER_NODE, LOCAL_WORLD_SIZE
  int term = 0;                   ///< HOLDFAST_TERM: of the leader that started this attempt
  int attempt = 0;                ///< HOLDFAST_ATTEMPT: counts from 1 over the life of the run directory
  std::string node;               ///< HOLDFAST_NODE: the host, for logs only
  std::filesystem::path run_dir;  ///< HOLDFAST_RUN_DIR
  std::filesystem::path
      agent_socket;  ///< HOLDFAST_AGENT_SOCKET: the agent's Unix socket on this node; empty: bare mode
  /// HOLDFAST_KEY_FILE: 64 hex digits, mode 0600: the key by which this rank proves to its agent who it is
  std::filesystem::path key_file;
  /// HOLDFAST_HEARTBEAT_FILE: a program without the client may touch it to show that it lives
  std::filesystem::path heartbeat_file;
  std::string master_address;  ///< MASTER_ADDR: host of rank 0
  int master_port = 0;         ///< MASTER_PORT
  /// HOLDFAST_TRUSTED_STEP; HOLDFAST_DURABLE_STEPS, "300,200"; and HOLDFAST_SEALED, "STEP ATTEMPT LEVEL" or
  /// empty, which our trainer does not use.
  StartState from = {};
  std::filesystem::path local_level = {};  ///< HOLDFAST_LOCAL_LEVEL: its folder here; empty: there is none
  /// Of snapshot buffers (client/buffers.c), which our trainer does not use. HOLDFAST_BUFFERS: this rank's
  /// folder; empty: there are none. HOLDFAST_BUFFERS_LIMIT: bytes of a generation.
  std::filesystem::path buffers = {};
  std::int64_t buffers_limit = 0;
  bool buffers_copied = false;  ///< HOLDFAST_BUFFERS_COPIED: "1": each seal is copied to another node
};

/// "NAME=value" for the rank, both spellings.
std::vector<std::string> to_variables(const RankEnv& place);
/// The value of HOLDFAST_DURABLE_STEPS.
std::string text_of_steps(const std::vector<std::int64_t>& steps);
/// Nothing when HOLDFAST_RUN_DIR is unset: the program was not started by an agent.
std::optional<RankEnv> rank_env_from_environment();

}  // namespace holdfast
