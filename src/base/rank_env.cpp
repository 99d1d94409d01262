#include "src/base/rank_env.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast {

namespace {

using std::filesystem::path;

std::string text_of(int value) { return std::to_string(value); }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(const std::string& value) { return value; }
std::string text_of(const path& value) { return value.string(); }
std::string text_of(const std::vector<std::int64_t>& steps) { return text_of_steps(steps); }

void read(const char* name, const std::string&, int& value) {
  value = static_cast<int>(env::get_integer(name).value_or(value));
}
void read(const char* name, const std::string&, std::int64_t& value) {
  value = env::get_integer(name).value_or(value);
}
void read(const char*, const std::string& text, std::string& value) { value = text; }
void read(const char*, const std::string& text, path& value) { value = text; }
void read(const char* name, const std::string& text, std::vector<std::int64_t>& steps) {
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    std::int64_t step = 0;
    const auto [next, error] = std::from_chars(at, end, step);
    if (error != std::errc() || (next < end && *next != ','))
      throw Error(Exit::usage, std::string("the environment variable ") + name + " is no list of steps",
                  text);
    steps.push_back(step);
    at = next;
  }
}

enum class Need { always, perhaps };

/// The variables that a rank reads back, each once.
template <class Place, class Use>
void for_each_variable(Place& p, Use&& use) {
  use("HOLDFAST_RANK", p.rank, Need::always);
  use("HOLDFAST_WORLD", p.world, Need::always);
  use("HOLDFAST_LOCAL_RANK", p.local_rank, Need::always);
  use("HOLDFAST_RANKS_PER_NODE", p.ranks_per_node, Need::always);
  use("HOLDFAST_TERM", p.term, Need::always);
  use("HOLDFAST_ATTEMPT", p.attempt, Need::always);
  use("HOLDFAST_NODE", p.node, Need::perhaps);
  use("HOLDFAST_RUN_DIR", p.run_dir, Need::always);
  use("HOLDFAST_AGENT_SOCKET", p.agent_socket, Need::perhaps);
  use("HOLDFAST_KEY_FILE", p.key_file, Need::perhaps);
  use("HOLDFAST_HEARTBEAT_FILE", p.heartbeat_file, Need::perhaps);
  use("MASTER_ADDR", p.master_address, Need::perhaps);
  use("MASTER_PORT", p.master_port, Need::perhaps);
  use("HOLDFAST_TRUSTED_STEP", p.from.trusted_step, Need::perhaps);
  use("HOLDFAST_DURABLE_STEPS", p.from.durable_steps, Need::perhaps);
  use("HOLDFAST_LOCAL_LEVEL", p.local_level, Need::perhaps);
}

std::string sealed_text(const StartState& from) {
  if (from.sealed_step < 0) return "";
  return text_of(from.sealed_step) + " " + text_of(from.sealed_attempt) + " " + from.sealed_level;
}

}  // namespace

std::vector<std::string> to_variables(const RankEnv& p) {
  const int on_node = std::max(p.ranks_per_node, 1), nodes = p.world / on_node;
  const std::string node = text_of(p.rank / on_node);
  std::vector<std::string> out = {"RANK=" + text_of(p.rank),
                                  "WORLD_SIZE=" + text_of(p.world),
                                  "LOCAL_RANK=" + text_of(p.local_rank),
                                  "LOCAL_WORLD_SIZE=" + text_of(p.ranks_per_node),
                                  "GROUP_RANK=" + node,
                                  "NODE_RANK=" + node,
                                  "GROUP_WORLD_SIZE=" + text_of(nodes),
                                  "ROLE_RANK=" + text_of(p.rank),
                                  "ROLE_WORLD_SIZE=" + text_of(p.world),
                                  "ROLE_NAME=default",
                                  "TORCHELASTIC_RESTART_COUNT=" + text_of(p.attempt - 1),
                                  "TORCHELASTIC_MAX_RESTARTS=" + text_of(std::numeric_limits<int>::max()),
                                  "TORCHELASTIC_RUN_ID=" + p.run_dir.filename().string(),
                                  "HOLDFAST_BUFFERS=" + p.buffers.string(),
                                  "HOLDFAST_BUFFERS_LIMIT=" + text_of(p.buffers_limit),
                                  std::string("HOLDFAST_BUFFERS_COPIED=") + (p.buffers_copied ? "1" : "0"),
                                  "HOLDFAST_SEALED=" + sealed_text(p.from)};
  for_each_variable(p, [&](const char* name, const auto& value, Need) {
    out.push_back(std::string(name) + "=" + text_of(value));
  });
  return out;
}

std::string text_of_steps(const std::vector<std::int64_t>& steps) {
  std::string text;
  for (const std::int64_t step : steps) text += (text.empty() ? "" : ",") + std::to_string(step);
  return text;
}

std::optional<RankEnv> rank_env_from_environment() {
  if (!env::get("HOLDFAST_RUN_DIR")) return std::nullopt;
  RankEnv p;
  for_each_variable(p, [](const char* name, auto& value, Need need) {
    const auto text = env::get(name);
    if (!text && need == Need::always)
      throw Error(Exit::usage, std::string("the environment variable ") + name + " is missing",
                  "HOLDFAST_RUN_DIR is set, so an agent should have set it");
    if (text) read(name, *text, value);
  });
  return p;
}

}  // namespace holdfast
