#include "launcher/supervise/roster.hpp"

#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {
using nlohmann::json;

/// The fields of "work", for both directions.
void work_fields(auto& work, auto&& use) {
  use("restored_bytes", work.restored);
  use("saved_bytes", work.saved);
  use("token_bytes", work.tokens);
  use("sent_bytes", work.sent);
  use("state_bytes", work.state);
  use("operations", work.operations);
  use("peers", work.peers);
  use("read_bytes_s", work.read_s);
  use("write_bytes_s", work.written_s);
  use("gpu", work.gpu);
  use("patience_s", work.patience_s);
}

/// Those of a node. `past_failures` is absent in lists of older versions.
void node_fields(auto& node, auto&& use) {
  use("name", node.name);
  use("address", node.address);
  use("ip_addresses", node.ip_addresses);
  use("port", node.port);
  use("ports", node.ports);
  use("scalable_unit", node.scalable_unit);
}

auto into(json& object) {
  return [&object](const char* key, const auto& value) { object[key] = value; };
}
auto from(const json& object) {
  return [&object](const char* key, auto& value) { object.at(key).get_to(value); };
}
}  // namespace

std::string to_json_text(const Roster& roster) {
  json nodes = json::array(), work = json::object();
  for (const auto& n : roster.nodes) {
    json& node = nodes.emplace_back(json{{"past_failures", n.past_failures}});
    node_fields(n, into(node));
  }
  work_fields(roster.work, into(work));
  return json{{"schema_version", 1},
              {"job", roster.job},
              {"nodes", nodes},
              {"placement", roster.first_placement},
              {"candidates", roster.candidates},
              {"batch_host", roster.batch_host},
              {"ranks_per_node", roster.ranks_per_node},
              {"work", work}}
             .dump(1) +
         "\n";
}

Roster read_roster(const RunDir& run) {
  try {
    const json j = json_from(files::read_text(run.nodes()));
    Roster roster;
    roster.job = j.at("job").get<std::string>();
    for (const auto& n : j.at("nodes")) {
      Roster::Node& node = roster.nodes.emplace_back();
      node_fields(node, from(n));
      node.past_failures = typed<int>(n, "past_failures").value_or(0);
    }
    roster.first_placement = j.at("placement").get<std::vector<int>>();
    roster.candidates = j.at("candidates").get<std::vector<int>>();
    roster.batch_host = j.at("batch_host").get<int>();
    roster.ranks_per_node = j.at("ranks_per_node").get<int>();
    work_fields(roster.work, from(j.at("work")));
    const int count = static_cast<int>(roster.nodes.size());
    for (const int n : roster.first_placement)
      expects(n >= 0 && n < count, "a placement names nodes of the roster");
    for (const int n : roster.candidates) expects(n >= 0 && n < count, "candidates are nodes of the roster");
    expects(roster.ranks_per_node >= 1 && !roster.first_placement.empty(), "a roster has slots and ranks");
    return roster;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& damage) {
    throw Error(Exit::runtime, "the list of nodes " + run.nodes().string() + " is damaged", damage.what(),
                "Start the job again; `holdfast run` writes it again");
  }
}

}  // namespace holdfast::launcher
