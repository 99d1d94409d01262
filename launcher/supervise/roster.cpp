#include "launcher/supervise/roster.hpp"

#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {
using nlohmann::json;

json to_json(const RankWork& w) {
  return {{"restored_bytes", w.restored},
          {"saved_bytes", w.saved},
          {"token_bytes", w.tokens},
          {"sent_bytes", w.sent},
          {"state_bytes", w.state},
          {"operations", w.operations},
          {"peers", w.peers},
          {"read_bytes_s", w.read_s},
          {"write_bytes_s", w.written_s},
          {"gpu", w.gpu},
          {"patience_s", w.patience_s}};
}

RankWork work_from(const json& j) {
  RankWork w;
  j.at("restored_bytes").get_to(w.restored);
  j.at("saved_bytes").get_to(w.saved);
  j.at("token_bytes").get_to(w.tokens);
  j.at("sent_bytes").get_to(w.sent);
  j.at("state_bytes").get_to(w.state);
  j.at("operations").get_to(w.operations);
  j.at("peers").get_to(w.peers);
  j.at("read_bytes_s").get_to(w.read_s);
  j.at("write_bytes_s").get_to(w.written_s);
  j.at("gpu").get_to(w.gpu);
  j.at("patience_s").get_to(w.patience_s);
  return w;
}
}  // namespace

std::string to_json_text(const Roster& roster) {
  json nodes = json::array();
  for (const auto& n : roster.nodes)
    nodes.push_back({{"name", n.name},
                     {"address", n.address},
                     {"ip_addresses", n.ip_addresses},
                     {"port", n.port},
                     {"ports", n.ports},
                     {"scalable_unit", n.scalable_unit},
                     {"past_failures", n.past_failures}});
  return json{{"schema_version", 1},
              {"job", roster.job},
              {"nodes", nodes},
              {"placement", roster.first_placement},
              {"candidates", roster.candidates},
              {"batch_host", roster.batch_host},
              {"ranks_per_node", roster.ranks_per_node},
              {"work", to_json(roster.work)}}
             .dump(1) +
         "\n";
}

Roster read_roster(const RunDir& run) {
  try {
    const json j = json_from(files::read_text(run.nodes()));
    Roster roster;
    roster.job = j.at("job").get<std::string>();
    for (const auto& n : j.at("nodes"))
      roster.nodes.push_back({n.at("name").get<std::string>(), n.at("address").get<std::string>(),
                              n.at("port").get<int>(), n.at("scalable_unit").get<std::string>(),
                              typed<int>(n, "past_failures").value_or(0), n.at("ports").get<int>(),
                              n.at("ip_addresses").get<std::vector<std::string>>()});
    roster.first_placement = j.at("placement").get<std::vector<int>>();
    roster.candidates = j.at("candidates").get<std::vector<int>>();
    roster.batch_host = j.at("batch_host").get<int>();
    roster.ranks_per_node = j.at("ranks_per_node").get<int>();
    roster.work = work_from(j.at("work"));
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
