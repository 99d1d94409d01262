// probe_site() cannot do without a version, partitions and nodes: if one of these questions fails, it throws.
// Settings, topology and MPI plugins are asked for after them, and a failure there is only a sentence in
// `unknown`.
//
// The functions that read replies leave out a line that they cannot read. SLURM prints a partition once for
// each state of its nodes, and a node once for each of its partitions; both are put together here, and the
// nodes of a partition are sorted by number (dgx2 before dgx10). Older releases print the MPI plugins on
// stderr, so mpi_plugins() reads both outputs.
//
// lack_of_nodes() and asked_partitions() judge a job before it is submitted. Whatever they cannot tell is no
// reason to refuse it.
#include "slurm/site.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "slurm/asking.hpp"
#include "slurm/commands.hpp"
#include "slurm/replies.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::slurm {
namespace {

using std::chrono::milliseconds;

template <class Number>
Number at_least(std::string_view text) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value);  // "65536+"
  return value;
}

/// dgx2 before dgx10.
bool before(const std::string& a, const std::string& b) {
  const auto stem = [](const std::string& name) {
    return std::string_view(name).substr(0, name.find_last_not_of("0123456789") + 1);
  };
  if (stem(a) != stem(b)) return stem(a) < stem(b);
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::map<std::string, std::string> ask_settings(milliseconds limit) {
  return read_settings(answer({"scontrol", "show", "config"}, limit));
}

}  // namespace

std::string SiteFacts::setting(const std::string& name) const {
  const auto it = settings.find(name);
  return it == settings.end() ? "" : it->second;
}

std::vector<Partition> read_partitions(std::string_view out) {
  std::vector<Partition> partitions;
  for (const auto line : split(out, '\n')) {
    const auto fields = split(trimmed(line), '|');
    if (fields.size() != 5 || fields[0].empty()) continue;
    std::string name(fields[0]);
    const bool is_default = name.ends_with('*');
    if (is_default) name.pop_back();
    // A partition has a line for each state of its nodes.
    auto it =
        std::find_if(partitions.begin(), partitions.end(), [&](const auto& p) { return p.name == name; });
    if (it == partitions.end())
      it = partitions.insert(it, {name, is_default, fields[1] == "up", std::string(fields[2]), {}});
    for (auto& node : names_in(fields[4]))
      if (std::find(it->nodes.begin(), it->nodes.end(), node) == it->nodes.end())
        it->nodes.push_back(std::move(node));
  }
  for (auto& partition : partitions) std::sort(partition.nodes.begin(), partition.nodes.end(), before);
  return partitions;
}

std::string asked_partitions(const std::vector<std::string>& arguments) {
  std::string asked = env::get_or("SBATCH_PARTITION", "");
  for (const std::string& argument : arguments)  // the last one counts
    if (argument.starts_with("--part"))
      asked = argument.substr(std::min(argument.size(), argument.find('=') + 1));
    else if (argument.starts_with("-p"))
      asked = argument.substr(2);
  return asked;
}

std::string lack_of_nodes(const std::vector<Partition>& all, const std::string& asked, int nodes) {
  std::vector<std::string> too_small;
  for (const auto name : split(asked, ',')) {
    const auto found = std::ranges::find_if(
        all, [&](const Partition& one) { return asked.empty() ? one.is_default : one.name == name; });
    if (found == all.end() || std::ssize(found->nodes) >= nodes) return "";
    too_small.push_back(fmt::format("partition {} has {}", found->name, found->nodes.size()));
  }
  return fmt::format("it asks for {} nodes, and {}", nodes, fmt::join(too_small, ", "));
}

std::vector<NodeShape> read_shapes(std::string_view out) {
  constexpr std::int64_t mib = 1 << 20;
  std::vector<NodeShape> nodes;
  for (const auto line : split(out, '\n')) {
    const auto fields = split(trimmed(line), '|');
    if (fields.size() != 8 || fields[0].empty()) continue;
    // A node is listed once for each of its partitions.
    if (std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) { return node.name == fields[0]; }))
      continue;
    NodeShape node;
    node.name = fields[0];
    node.sockets = at_least<int>(fields[2]);
    node.cores_per_socket = at_least<int>(fields[3]);
    node.threads_per_core = at_least<int>(fields[4]);
    node.memory_bytes = at_least<std::int64_t>(fields[5]) * mib;
    node.gres = fields[6] == "(null)" ? "" : std::string(fields[6]);
    node.gpus = gpus_in(node.gres);
    node.gpu_model = gpu_model_in(node.gres);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<ScalableUnit> read_topology(std::string_view out) {
  std::vector<ScalableUnit> units;
  for (const auto line : split(out, '\n')) {
    std::optional<std::string_view> name;
    for (const auto* kind : {"SwitchName", "BlockName", "RingName", "TorusName"})
      if (!name) name = value_of(line, kind);
    if (!name || value_of(line, "Level").value_or("0") != "0") continue;  // switches above the leaves
    auto nodes = names_in(value_of(line, "Nodes").value_or(""));
    if (!nodes.empty()) units.push_back({std::string(*name), std::move(nodes)});
  }
  return units;
}

std::map<std::string, std::string> read_settings(std::string_view out) {
  std::map<std::string, std::string> settings;
  for (const auto line : split(out, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const auto value = trimmed(line.substr(equals + 1));
    settings.emplace(trimmed(line.substr(0, equals)), value == "(null)" ? std::string_view() : value);
  }
  return settings;
}

std::vector<std::string> read_mpi_plugins(std::string_view out) {
  std::vector<std::string> plugins;
  for (auto line : split(out, '\n')) {
    line = trimmed(line);
    if (line.starts_with("srun: ")) line = trimmed(line.substr(6));  // until 21.08, on stderr
    // "specific pmix plugin versions available: pmix_v4"
    if (const auto colon = line.rfind(':'); colon != std::string_view::npos && line.starts_with("specific"))
      for (const auto name : split(line.substr(colon + 1), ',')) plugins.emplace_back(trimmed(name));
    const bool a_name = !line.empty() && std::all_of(line.begin(), line.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    if (a_name && line != "none") plugins.emplace_back(line);
  }
  return plugins;
}

std::string gpu_model_in(std::string_view gres) {
  while (!gres.empty()) {
    // Commas in brackets belong to the sockets of one entry: "gpu:h100:8(S:0,2)".
    std::size_t end = 0;
    for (int depth = 0; end < gres.size() && (depth > 0 || gres[end] != ','); ++end)
      depth += gres[end] == '(' ? 1 : gres[end] == ')' ? -1 : 0;
    const auto words = split(gres.substr(0, std::min(end, gres.find('('))), ':');
    if (words.size() == 3 && words[0] == "gpu") return std::string(words[1]);
    gres.remove_prefix(std::min(end + 1, gres.size()));
  }
  return {};
}

void need_step_option(const std::string& option, const std::string& plugin, milliseconds limit) {
  if (answer(step_help_argv(), limit).find(option) == std::string::npos)
    throw Error(Exit::usage, "no step can be started with " + option, "srun does not know it",
                "Has this cluster " + plugin + "?");
}

std::vector<std::string> mpi_plugins(milliseconds limit) {
  const Finished done = ask({"srun", "--mpi=list"}, limit);
  return read_mpi_plugins(done.out + "\n" + done.err);
}

std::string cluster_name(milliseconds limit) {
  const auto settings = ask_settings(limit);
  const auto name = settings.find("ClusterName");
  return name == settings.end() ? "" : name->second;
}

std::vector<Partition> partitions(milliseconds limit) {
  return read_partitions(answer({"sinfo", "--noheader", "--all", "--format=%P|%a|%l|%D|%N"}, limit));
}

SiteFacts probe_site(milliseconds limit) {
  SiteFacts site;
  site.version = read_version(answer(version_argv(), limit));
  site.partitions = partitions(limit);
  site.nodes = read_shapes(
      answer({"sinfo", "--noheader", "--all", "--Node", "--format=%N|%P|%X|%Y|%Z|%m|%G|%T"}, limit));
  const auto try_to = [&](const char* what, const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      site.unknown.push_back(std::string(what) + ": " + error.what());
    }
  };
  try_to("settings", [&] { site.settings = ask_settings(limit); });
  try_to("topology", [&] {
    site.scalable_units = read_topology(answer({"scontrol", "show", "topology"}, limit));
  });
  try_to("MPI plugins", [&] { site.mpi = mpi_plugins(limit); });
  return site;
}

}  // namespace holdfast::slurm
