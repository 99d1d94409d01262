#pragma once
// The PMIx server of one node: what libpmix is told about the ranks of an attempt, and what it asks on their
// behalf. libpmix is one per process. Only pmix_server.cpp includes its headers.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace holdfast::launcher {

/// The ranks of an attempt: slot s runs `ranks_per_node` of them, from s * ranks_per_node.
struct PmixJob {
  std::string name;                ///< the namespace; who does not know it cannot speak for a rank
  std::vector<std::string> nodes;  ///< by slot
  int slot = 0, ranks_per_node = 1;
  std::filesystem::path folder;  ///< private; for files of libpmix and MPI
  int first_rank() const { return slot * ranks_per_node; }
  int world() const { return static_cast<int>(nodes.size()) * ranks_per_node; }
};

/// What libpmix asks, in its own thread. Each answer is called once, in any thread.
struct PmixRequests {
  using Answer = std::function<void(int status, std::string published)>;
  /// All ranks of this node that are in `set` have come to a fence, with what they published. Answered with
  /// what the ranks of all `nodes` nodes of the set published.
  std::function<void(std::string set, int nodes, std::string published, Answer)> fence;
  /// What has `rank`, on another node, published?
  std::function<void(int rank, Answer)> question;
};

class PmixServer {
 public:
  static constexpr int ok = 0;  ///< the status of success
  static const int too_much;    ///< ... of what no message has room for

  /// Throws Error when libpmix cannot start. `requests` must outlive this.
  PmixServer(const PmixJob& job, const PmixRequests& requests);
  /// Removes what libpmix and the ranks leave in the folder.
  ~PmixServer();
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

  /// The variables with which a rank of this node finds this server and its MPI starts: "NAME=value".
  std::vector<std::string> environment_of(int rank) const;
  /// What a rank of this node has published, once it has; in libpmix's thread, or at once.
  void published_by(int rank, PmixRequests::Answer answer) const;

 private:
  void publish_job() const;

  PmixJob job_;
};

}  // namespace holdfast::launcher
