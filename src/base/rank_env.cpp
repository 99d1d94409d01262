#include "src/base/rank_env.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast {

namespace {

std::vector<std::int64_t> steps_from_text(const std::string& text) {
  std::vector<std::int64_t> steps;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    std::int64_t step = 0;
    const auto [next, error] = std::from_chars(at, end, step);
    if (error != std::errc() || (next < end && *next != ','))
      throw Error(Exit::usage, "the environment variable HOLDFAST_DURABLE_STEPS is no list of steps", text);
    steps.push_back(step);
    at = next;
  }
  return steps;
}

}  // namespace

std::vector<std::string> to_variables(const RankEnv& p) {
  const auto text = [](int value) { return std::to_string(value); };
  const int on_node = std::max(p.ranks_per_node, 1), nodes = p.world / on_node;
  const std::string node = text(p.rank / on_node);
  return {"HOLDFAST_RANK=" + text(p.rank),
          "HOLDFAST_WORLD=" + text(p.world),
          "HOLDFAST_LOCAL_RANK=" + text(p.local_rank),
          "HOLDFAST_RANKS_PER_NODE=" + text(p.ranks_per_node),
          "HOLDFAST_TERM=" + text(p.term),
          "HOLDFAST_ATTEMPT=" + text(p.attempt),
          "HOLDFAST_NODE=" + p.node,
          "HOLDFAST_RUN_DIR=" + p.run_dir.string(),
          "HOLDFAST_AGENT_SOCKET=" + p.agent_socket.string(),
          "HOLDFAST_KEY_FILE=" + p.key_file.string(),
          "HOLDFAST_HEARTBEAT_FILE=" + p.heartbeat_file.string(),
          "RANK=" + text(p.rank),
          "WORLD_SIZE=" + text(p.world),
          "LOCAL_RANK=" + text(p.local_rank),
          "LOCAL_WORLD_SIZE=" + text(p.ranks_per_node),
          "GROUP_RANK=" + node,
          "NODE_RANK=" + node,
          "GROUP_WORLD_SIZE=" + text(nodes),
          "ROLE_RANK=" + text(p.rank),
          "ROLE_WORLD_SIZE=" + text(p.world),
          "ROLE_NAME=default",
          "MASTER_ADDR=" + p.master_address,
          "MASTER_PORT=" + text(p.master_port),
          "TORCHELASTIC_RESTART_COUNT=" + text(p.attempt - 1),
          "TORCHELASTIC_MAX_RESTARTS=" + text(std::numeric_limits<int>::max()),
          "TORCHELASTIC_RUN_ID=" + p.run_dir.filename().string(),
          "HOLDFAST_TRUSTED_STEP=" + std::to_string(p.trusted_step),
          "HOLDFAST_DURABLE_STEPS=" + text_of_steps(p.durable_steps),
          "HOLDFAST_LOCAL_LEVEL=" + p.local_level.string(),
          "HOLDFAST_BUFFERS=" + p.buffers.string(),
          "HOLDFAST_BUFFERS_LIMIT=" + std::to_string(p.buffers_limit),
          std::string("HOLDFAST_BUFFERS_COPIED=") + (p.buffers_copied ? "1" : "0"),
          "HOLDFAST_SEALED=" + p.sealed};
}

std::string text_of_steps(const std::vector<std::int64_t>& steps) {
  std::string text;
  for (const std::int64_t step : steps) text += (text.empty() ? "" : ",") + std::to_string(step);
  return text;
}

std::optional<RankEnv> rank_env_from_environment() {
  const auto run_dir = env::get("HOLDFAST_RUN_DIR");
  if (!run_dir) return std::nullopt;
  auto number = [](const char* name) {
    const auto value = env::get_integer(name);
    if (!value)
      throw Error(Exit::usage, std::string("the environment variable ") + name + " is missing",
                  "HOLDFAST_RUN_DIR is set, so an agent should have set it");
    return static_cast<int>(*value);
  };
  RankEnv p;
  p.rank = number("HOLDFAST_RANK");
  p.world = number("HOLDFAST_WORLD");
  p.local_rank = number("HOLDFAST_LOCAL_RANK");
  p.ranks_per_node = number("HOLDFAST_RANKS_PER_NODE");
  p.term = number("HOLDFAST_TERM");
  p.attempt = number("HOLDFAST_ATTEMPT");
  p.node = env::get_or("HOLDFAST_NODE", "");
  p.run_dir = *run_dir;
  p.agent_socket = env::get_or("HOLDFAST_AGENT_SOCKET", "");
  p.key_file = env::get_or("HOLDFAST_KEY_FILE", "");
  p.heartbeat_file = env::get_or("HOLDFAST_HEARTBEAT_FILE", "");
  p.master_address = env::get_or("MASTER_ADDR", ""),
  p.master_port = static_cast<int>(env::get_integer("MASTER_PORT").value_or(0));
  p.trusted_step = env::get_integer("HOLDFAST_TRUSTED_STEP").value_or(-1);
  p.durable_steps = steps_from_text(env::get_or("HOLDFAST_DURABLE_STEPS", ""));
  p.local_level = env::get_or("HOLDFAST_LOCAL_LEVEL", "");
  return p;
}

}  // namespace holdfast
