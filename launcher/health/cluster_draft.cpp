// draft_cluster() chooses the partition, and choose_nodes() its most common shape of node; nodes of other
// shapes are left out and named in a comment. A Writer then writes the tables in the order of the file. Where
// the facts do not have a value, its functions guess it, and tell check_this() in a sentence what is to be
// checked; so the head of the file, which lists these sentences, is written last.
//
// Facts of the local machine count for what SLURM does not know: the memory of GPUs, NICs, /dev/shm, the
// network interface. On a login node they are no facts of a node, and /dev/shm and the interface are then
// marked as guesses. GPUs that SLURM lists and no driver on the node reports make gpu = "none", which must be
// checked. Text of other programs gets into the file only through toml_text(), plain() or comment_text(), so
// it cannot break a line.
#include "launcher/health/cluster_draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "slurm/hostlist.hpp"
#include "slurm/replies.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/config/toml_document.hpp"

namespace holdfast::launcher {
namespace {

constexpr int ranks_without_gpus = 8;  ///< a proposal; plans need a number

struct KnownGpu {
  const char* name;
  std::int64_t memory_bytes;
};
// From the manufacturers; the number of the driver is preferred.
constexpr std::array known_gpus = {KnownGpu{"h100", 80000000000}, KnownGpu{"h200", 141000000000},
                                   KnownGpu{"b200", 180000000000}, KnownGpu{"v100", 32000000000}};

std::string toml_text(const std::string& text) { return config::spell(config::Value(text)); }

/// For a file name and for plans: only letters, digits, '-' and '_' are kept.
std::string plain(const std::string& text) {
  std::string out;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0 || c == '-' || c == '_') out += static_cast<char>(c);
  return out.empty() ? "cluster" : out;
}

/// Text from other programs for a comment: one line of printable characters.
std::string comment_text(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) out += std::isprint(c) != 0 ? static_cast<char>(c) : ' ';
  return out;
}

const slurm::Partition& choose_partition(const slurm::SiteFacts& site, const std::string& wanted) {
  if (site.partitions.empty())
    throw Error(Exit::runtime, "SLURM names no partition", "its tools list none",
                "Is this user allowed to see one?");
  std::vector<std::string> names;
  for (const auto& partition : site.partitions) {
    if (partition.name == wanted) return partition;
    names.push_back(partition.name);
  }
  if (!wanted.empty()) {
    const auto near = nearest_name(wanted, names);
    throw Error(Exit::usage, "there is no partition called '" + wanted + "'",
                fmt::format("there are {}", fmt::join(names, ", ")),
                near.empty() ? "" : "Did you mean " + near + "?");
  }
  for (const auto& partition : site.partitions)
    if (partition.is_default) return partition;
  return *std::max_element(site.partitions.begin(), site.partitions.end(),
                           [](const auto& a, const auto& b) { return a.nodes.size() < b.nodes.size(); });
}

struct Chosen {
  slurm::NodeShape shape;           ///< the most common one, with the least memory of its nodes
  std::vector<std::string> nodes;   ///< of that shape
  std::vector<std::string> others;  ///< of other shapes
};

Chosen choose_nodes(const slurm::SiteFacts& site, const slurm::Partition& partition) {
  std::vector<slurm::NodeShape> there;
  for (const auto& name : partition.nodes)
    for (const auto& node : site.nodes)
      if (node.name == name) there.push_back(node);
  if (there.empty())
    throw Error(Exit::runtime, "the partition " + partition.name + " has no nodes", "its tools list none",
                "Choose another with --partition?");
  Chosen best;
  for (const auto& candidate : there) {
    Chosen chosen{candidate, {}, {}};
    for (const auto& node : there) {
      const bool same = node.same_shape(candidate);
      (same ? chosen.nodes : chosen.others).push_back(node.name);
      if (same) chosen.shape.memory_bytes = std::min(chosen.shape.memory_bytes, node.memory_bytes);
    }
    if (chosen.nodes.size() > best.nodes.size()) best = std::move(chosen);
  }
  return best;
}

std::vector<slurm::ScalableUnit> units_of(const slurm::SiteFacts& site, const Chosen& chosen) {
  std::set<std::string> left(chosen.nodes.begin(), chosen.nodes.end());
  std::vector<slurm::ScalableUnit> units;
  for (const auto& unit : site.scalable_units) {
    slurm::ScalableUnit mine{plain(unit.name), {}};
    for (const auto& node : unit.nodes)
      if (left.erase(node) > 0) mine.nodes.push_back(node);
    if (!mine.nodes.empty()) units.push_back(std::move(mine));
  }
  slurm::ScalableUnit rest{units.empty() ? "su1" : "rest", {}};
  for (const auto& node : chosen.nodes)
    if (left.contains(node)) rest.nodes.push_back(node);
  if (!rest.nodes.empty()) units.push_back(std::move(rest));
  return units;
}

class Writer {
 public:
  Writer(const slurm::SiteFacts& site, const LocalSite& local, const slurm::Partition& partition)
      : site_(site), local_(local), partition_(partition), chosen_(choose_nodes(site, partition)) {}

  Draft write() {
    draft_.name = plain(lower(site_.setting("ClusterName")));
    std::string body = cluster();  // one after the other: each may add something to check
    body += storage();
    body += units();
    body += gpus();
    draft_.text = head() + body;
    return std::move(draft_);
  }

 private:
  void check_this(const std::string& sentence) { draft_.to_check.push_back(sentence); }

  /// Does SLURM list GPUs on this node that no driver reports?
  bool only_slurm_sees_gpus() const {
    return chosen_.shape.gpus > 0 && !local_.node.empty() && local_.gpus == 0;
  }
  bool with_gpus() const { return (chosen_.shape.gpus > 0 || local_.gpus > 0) && !only_slurm_sees_gpus(); }
  int gpus_per_node() const {
    if (chosen_.shape.gpus > 0) return chosen_.shape.gpus;
    return local_.gpus > 0 ? local_.gpus : ranks_without_gpus;
  }

  std::string head() const {
    std::string out = fmt::format(
        "# {}: {} nodes of the partition {}, as SLURM {} describes them. Written by `holdfast init`.\n",
        comment_text(draft_.name), chosen_.nodes.size(), comment_text(partition_.name),
        comment_text(site_.version));
    if (!draft_.to_check.empty()) out += "#\n# Check these points, and correct what is wrong:\n";
    for (const auto& sentence : draft_.to_check) out += "#   - " + comment_text(sentence) + "\n";
    out += "#\n# Found:\n";
    const auto found = [&](const std::string& what, const std::string& value) {
      if (!value.empty()) out += "#   " + what + ": " + comment_text(value) + "\n";
    };
    found("time limit", partition_.time_limit);
    found("SlurmdTimeout", site_.setting("SlurmdTimeout"));
    found("requeue allowed (JobRequeue)", site_.setting("JobRequeue"));
    found("preemption", site_.setting("PreemptMode"));
    found("tasks are confined by", site_.setting("TaskPlugin"));
    found("topology", site_.setting("TopologyPlugin"));
    found("MPI plugins", fmt::format("{}", fmt::join(site_.mpi, ", ")));
    found("MPI here", local_.mpi);
    found("GPU here", local_.gpu_name);
    found("RDMA devices that are not nearest to any GPU",
          fmt::format("{}", fmt::join(local_.other_nics, ", ")));
    for (const auto& folder : local_.shared)
      found("shared file system", folder.path + " (" + folder.type + ")");
    if (!chosen_.others.empty()) found("left out, of another shape", slurm::compress(chosen_.others));
    return out;
  }

  std::string cluster() {
    const std::string model = lower(chosen_.shape.gpu_model);
    std::string out = "\n[cluster]\nname = " + toml_text(draft_.name) + "\n";
    out += "description = " +
           toml_text(fmt::format("{} nodes of partition {}", chosen_.nodes.size(), partition_.name)) + "\n";
    if (with_gpus()) {
      std::string name = model;
      if (name.empty()) {
        name = "gpu";
        check_this("SLURM does not name the GPU's model: cluster.gpu is a placeholder.");
      }
      out += "gpu = " + toml_text(name) + "\n";
    } else {
      out += "gpu = \"none\"  # ranks compute on the CPU\n";
      if (only_slurm_sees_gpus())
        check_this(fmt::format("SLURM lists {} on {}, but no NVIDIA driver answers: gpu = \"none\".",
                               chosen_.shape.gres, local_.node));
    }
    out += fmt::format("gpus_per_node = {}{}\n", gpus_per_node(),
                       with_gpus() ? "" : "  # the number of ranks, not of devices");
    out += memory();
    out += fmt::format("cpus_per_node = {}  # {} sockets of {} cores\n", std::max(1, chosen_.shape.cores()),
                       chosen_.shape.sockets, chosen_.shape.cores_per_socket);
    if (chosen_.shape.memory_bytes > 0)
      out += fmt::format("node_memory_bytes = {}  # RealMemory, from SLURM\n", chosen_.shape.memory_bytes);
    out += shm();
    out += interface();
    if (with_gpus())
      out +=
          "# nic_bytes_s = 50000000000  # of one GPU's NIC, if you know it: `plan` foresees steps of several "
          "nodes "
          "by it\n";
    out +=
        "# node_mttf_hours = 6300  # mean time to failure of one node, if you know it: checkpoint intervals "
        "follow from it\n";
    out += "# ledger = \"/shared/holdfast-ledger\"  # folder where failures of nodes are kept across jobs\n";
    return out + environment();
  }

  std::string memory() {
    if (with_gpus()) {
      if (local_.gpu_memory_bytes > 0)
        return fmt::format("gpu_memory_bytes = {}  # from the driver\n", local_.gpu_memory_bytes);
      for (const auto& known : known_gpus)
        if (lower(chosen_.shape.gpu_model).starts_with(known.name)) {
          check_this("gpu_memory_bytes is the manufacturer's number for this model, not measured.");
          return fmt::format("gpu_memory_bytes = {}\n", known.memory_bytes);
        }
      check_this("gpu_memory_bytes is unknown: plans cannot say whether a model fits.");
      return "gpu_memory_bytes = 0  # unknown\n";
    }
    return fmt::format("gpu_memory_bytes = {}  # a rank's share of the node's memory\n",
                       chosen_.shape.memory_bytes / gpus_per_node());
  }

  /// Linux mounts /dev/shm with half of the node's memory, unless it is told otherwise.
  std::string shm() {
    if (!local_.node.empty() && local_.shm_bytes > 0)
      return fmt::format("node_shm_bytes = {}  # size of /dev/shm\n", local_.shm_bytes);
    if (chosen_.shape.memory_bytes == 0) return {};
    check_this("node_shm_bytes is a guess: run `df -B1 /dev/shm` on a node.");
    return fmt::format("node_shm_bytes = {}  # guess: half of the memory\n", chosen_.shape.memory_bytes / 2);
  }

  std::string interface() {
    if (local_.interface.empty()) {
      check_this("control_interface is a guess: no interface was found here.");
      return "control_interface = \"eth0\"  # guess\n";
    }
    if (!local_.node.empty()) return "control_interface = " + toml_text(local_.interface) + "\n";
    check_this("control_interface is that of this login node; the nodes may have another name for theirs.");
    return "control_interface = " + toml_text(local_.interface) + "  # guess\n";
  }

  std::string environment() const {
    if (with_gpus())
      return "environment = [\n"
             "  \"CUDA_DEVICE_ORDER=PCI_BUS_ID\",  # GPU i is the same device for CUDA, for SLURM and for "
             "this file\n"
             "  \"NCCL_DEBUG=WARN\",\n"
             "]\n";
    return "environment = [\"OMP_NUM_THREADS=1\"]  # raise it when a rank has several cores to itself\n";
  }

  std::string storage() const {
    return "\n# The folders that all nodes see, outside of which jobs are refused; and the rates of the "
           "shared "
           "file system as a whole, from which checkpoint times follow.\n"
           "# [storage]\n"
           "# shared = [\"/shared\", \"/home\"]\n"
           "# read_bytes_s = 100e9\n"
           "# write_bytes_s = 50e9\n";
  }

  std::string units() {
    std::string out =
        "\n# One [[unit]] is a scalable unit: nodes that are near each other. Neighbours in a ring are "
        "placed in the same one, spares are spread over all.\n";
    if (site_.scalable_units.empty())
      check_this(
          "SLURM knows no topology: all nodes form one scalable unit. Divide it by leaf switches or racks, "
          "if "
          "there are several.");
    for (const auto& unit : units_of(site_, chosen_))
      out += "[[unit]]\nname = " + toml_text(unit.name) +
             "\nnodes = " + toml_text(slurm::compress(unit.nodes)) + "\n";
    return out;
  }

  std::string gpus() {
    if (!with_gpus()) return {};
    const int count = gpus_per_node();
    const bool seen = static_cast<int>(local_.gpu_facts.size()) == count;
    std::string out =
        "\n# GPU i, the NIC on the same PCIe switch, and its rail: the leaf switch of the scalable unit that "
        "the NIC is connected to.\n";
    if (!seen)
      check_this(
          fmt::format("NICs are unknown, since this node does not have all {} GPUs: run `holdfast init` in a "
                      "step on one that does.",
                      count));
    else
      check_this(
          "Rails are numbered like GPUs: check that GPU i of every node is connected to the same leaf "
          "switch.");
    for (int i = 0; i < count; ++i) {
      out += fmt::format("[[gpu]]\ngpu = {}\n", i);
      if (seen) {
        const auto& gpu = local_.gpu_facts[i];
        if (!gpu.nic.empty()) out += "nic = " + toml_text(gpu.nic) + "\n";
        if (!gpu.netdev.empty()) out += "netdev = " + toml_text(gpu.netdev) + "\n";
        out += fmt::format("numa = {}\n", gpu.numa);
      }
      out += fmt::format("rail = {}\n", i);
    }
    return out;
  }

  const slurm::SiteFacts& site_;
  const LocalSite& local_;
  const slurm::Partition& partition_;
  const Chosen chosen_;
  Draft draft_;
};

}  // namespace

Draft draft_cluster(const slurm::SiteFacts& site, const LocalSite& local, const std::string& partition) {
  Draft draft = Writer(site, local, choose_partition(site, partition)).write();
  for (const auto& what : site.unknown) draft.text += "# SLURM did not report " + comment_text(what) + "\n";
  return draft;
}

}  // namespace holdfast::launcher
