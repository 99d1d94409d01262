// The constructor starts libpmix as a server, publish_job() tells it the maps of nodes and ranks and the data
// of each rank, and the ranks of this node are registered: only then can environment_of() be asked. From then
// on libpmix calls the functions of upcalls(), in its own thread. A fence and a question about a rank of
// another node go to PmixRequests, and are answered when other nodes have answered; all other calls are
// answered at once. An abort is only logged, since the rank ends itself and its agent sees that.
//
// libpmix passes no object, so `job` and `requests` are pointers of this file, and there is one server in a
// process. A call that fails in the constructor or in environment_of() throws Error (check()). What ranks
// have published is opaque: it is copied, and answer_by() keeps the copy until libpmix releases it.
#include "launcher/pmix/pmix_server.hpp"

#include <fmt/format.h>
#include <pmix.h>
#include <pmix_server.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

const int PmixServer::too_much = PMIX_ERR_OUT_OF_RESOURCE;

namespace {

static_assert(PmixServer::ok == PMIX_SUCCESS);

// libpmix calls functions without an object, in a thread of its own.
const PmixJob* job = nullptr;
const PmixRequests* requests = nullptr;

void check(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED)
    throw Error(Exit::runtime, std::string("the PMIx server cannot start: ") + what,
                PMIx_Error_string(status));
}

/// Keys and values for libpmix. It copies the values, but not the array, which must live through the call.
class Infos {
 public:
  Infos() = default;
  Infos(const Infos&) = delete;
  Infos& operator=(const Infos&) = delete;
  ~Infos() {
    for (auto& info : all_) PMIX_INFO_DESTRUCT(&info);
  }
  void text(const char* key, const std::string& value) { put(key, value.c_str(), PMIX_STRING); }
  void u16(const char* key, int value) { number<std::uint16_t>(key, value, PMIX_UINT16); }
  void u32(const char* key, int value) { number<std::uint32_t>(key, value, PMIX_UINT32); }
  void rank(const char* key, int value) { number<pmix_rank_t>(key, value, PMIX_PROC_RANK); }
  void flag(const char* key, bool value) { put(key, &value, PMIX_BOOL); }
  void map(const char* key, const char* value) { put(key, value, PMIX_REGEX); }
  void list(const char* key, Infos& inner) {
    const pmix_data_array_t array{PMIX_INFO, inner.size(), inner.data()};
    put(key, &array, PMIX_DATA_ARRAY);
  }
  pmix_info_t* data() { return all_.data(); }
  std::size_t size() const { return all_.size(); }

 private:
  void put(const char* key, const void* value, pmix_data_type_t type) {
    PMIX_INFO_LOAD(&all_.emplace_back(), key, const_cast<void*>(value), type);
  }
  template <class Number>
  void number(const char* key, int value, pmix_data_type_t type) {
    const auto as_wanted = static_cast<Number>(value);
    put(key, &as_wanted, type);
  }

  std::vector<pmix_info_t> all_;
};

pmix_proc_t process(int rank) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, job->name.c_str(), static_cast<pmix_rank_t>(rank));
  return proc;
}

/// A name for a set of ranks, the same on every node, and how many nodes have some of them.
struct RankSet {
  std::string name;
  int nodes = 0;
};
RankSet set_of(const pmix_proc_t* procs, std::size_t count) {
  std::set<int> nodes;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (procs[i].rank == PMIX_RANK_WILDCARD) return {"all", static_cast<int>(job->nodes.size())};
    nodes.insert(static_cast<int>(procs[i].rank) / job->ranks_per_node);
    hash = mix64(hash ^ (procs[i].rank + digest_offset));
  }
  return {fmt::format("{:016x}", hash), static_cast<int>(nodes.size())};
}

/// libpmix reads what it is given until it calls back.
PmixRequests::Answer answer_by(pmix_modex_cbfunc_t callback, void* object) {
  return [callback, object](int status, std::string published) {
    auto* kept = new std::string(std::move(published));
    callback(
        status, kept->empty() ? nullptr : kept->data(), kept->size(), object,
        [](void* text) { delete static_cast<std::string*>(text); }, kept);
  };
}

/// The functions that libpmix copies: as many as *it* knows, and a newer one knows more than our header has.
/// It finds nulls there.
struct Upcalls {
  pmix_server_module_t known{};
  void* later[32]{};
};

Upcalls upcalls() {
  Upcalls all;
  pmix_server_module_t& m = all.known;
  // The right answer is "done" from libpmix 4.2, which gives no callback, to 6, which does.
  m.client_connected2 = [](const pmix_proc_t*, void*, pmix_info_t*, std::size_t, pmix_op_cbfunc_t, void*) {
    return pmix_status_t{PMIX_OPERATION_SUCCEEDED};
  };
  m.client_finalized = [](const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
    return pmix_status_t{PMIX_OPERATION_SUCCEEDED};
  };
  m.abort = [](const pmix_proc_t* proc, void*, int status, const char* why, pmix_proc_t*, std::size_t,
               pmix_op_cbfunc_t, void*) {
    log::info("rank {} aborts with status {}: {}", proc->rank, status, why ? why : "");
    return pmix_status_t{PMIX_OPERATION_SUCCEEDED};  // it ends itself now, and its agent sees that
  };
  m.fence_nb = [](const pmix_proc_t* procs, std::size_t count, const pmix_info_t*, std::size_t, char* data,
                  std::size_t size, pmix_modex_cbfunc_t callback, void* object) {
    const RankSet set = set_of(procs, count);
    requests->fence(set.name, set.nodes, std::string(data ? data : "", data ? size : 0),
                    answer_by(callback, object));
    return pmix_status_t{PMIX_SUCCESS};
  };
  m.direct_modex = [](const pmix_proc_t* proc, const pmix_info_t*, std::size_t, pmix_modex_cbfunc_t callback,
                      void* object) {
    if (proc->rank >= static_cast<pmix_rank_t>(job->world())) return pmix_status_t{PMIX_ERR_NOT_FOUND};
    requests->question(static_cast<int>(proc->rank), answer_by(callback, object));
    return pmix_status_t{PMIX_SUCCESS};
  };
  // Without these, ranks that ask for them fail or hang. Without job_control libpmix does not note either
  // what ranks want removed at their end, such as Open MPI's segments in /dev/shm.
  m.job_control = [](const pmix_proc_t*, const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t,
                     pmix_info_cbfunc_t, void*) { return pmix_status_t{PMIX_ERR_NOT_SUPPORTED}; };
  m.register_events = [](pmix_status_t*, std::size_t, const pmix_info_t*, std::size_t, pmix_op_cbfunc_t,
                         void*) { return pmix_status_t{PMIX_OPERATION_SUCCEEDED}; };
  m.deregister_events = [](pmix_status_t*, std::size_t, pmix_op_cbfunc_t, void*) {
    return pmix_status_t{PMIX_OPERATION_SUCCEEDED};
  };
  m.notify_event = [](pmix_status_t, const pmix_proc_t*, pmix_data_range_t, pmix_info_t*, std::size_t,
                      pmix_op_cbfunc_t, void*) { return pmix_status_t{PMIX_OPERATION_SUCCEEDED}; };
  return all;
}

}  // namespace

PmixServer::PmixServer(const PmixJob& job, const PmixRequests& requests) : job_(job) {
  launcher::job = &job_;
  launcher::requests = &requests;
  Infos infos;
  infos.text(PMIX_SERVER_NSPACE, job_.name + ".server");
  infos.rank(PMIX_SERVER_RANK, job_.slot);
  infos.text(PMIX_SERVER_TMPDIR, job_.folder);
  infos.text(PMIX_SYSTEM_TMPDIR, job_.folder);
  infos.text(PMIX_HOSTNAME, job_.nodes[as_size(job_.slot)]);
  Upcalls functions = upcalls();
  check(PMIx_server_init(&functions.known, infos.data(), infos.size()), "initialization");
  publish_job();
  for (int i = 0; i < job_.ranks_per_node; ++i) {
    const pmix_proc_t proc = process(job_.first_rank() + i);
    check(PMIx_server_register_client(&proc, ::getuid(), ::getgid(), nullptr, nullptr, nullptr),
          "registration of a rank");
  }
}

PmixServer::~PmixServer() {
  PMIx_server_deregister_nspace(job_.name.c_str(), nullptr, nullptr);
  PMIx_server_finalize();
}

/// All that Open MPI 4 and 5 ask about the job.
void PmixServer::publish_job() const {
  const int local = job_.ranks_per_node, world = job_.world();
  std::string names, places, peers;
  for (int node = 0; node < static_cast<int>(job_.nodes.size()); ++node) {
    names += (node ? "," : "") + job_.nodes[as_size(node)];
    places += node ? ";" : "";
    for (int i = 0; i < local; ++i) places += fmt::format("{}{}", i ? "," : "", node * local + i);
  }
  for (int i = 0; i < local; ++i) peers += fmt::format("{}{}", i ? "," : "", job_.first_rank() + i);
  char *node_map = nullptr, *process_map = nullptr;
  check(PMIx_generate_regex(names.c_str(), &node_map), "the map of nodes");
  check(PMIx_generate_ppn(places.c_str(), &process_map), "the map of ranks");

  Infos infos;
  infos.text(PMIX_JOBID, job_.name);
  infos.map(PMIX_NODE_MAP, node_map);
  infos.map(PMIX_PROC_MAP, process_map);
  for (const char* key : {PMIX_JOB_SIZE, PMIX_UNIV_SIZE, PMIX_MAX_PROCS, PMIX_APP_SIZE})
    infos.u32(key, world);
  infos.u32(PMIX_NUM_NODES, static_cast<int>(job_.nodes.size()));
  infos.u32(PMIX_JOB_NUM_APPS, 1);
  infos.rank(PMIX_APPLDR, 0);
  for (const char* key : {PMIX_LOCAL_SIZE, PMIX_NODE_SIZE}) infos.u32(key, local);
  infos.text(PMIX_LOCAL_PEERS, peers);
  infos.rank(PMIX_LOCALLDR, job_.first_rank());
  infos.flag(PMIX_SPAWNED, false);
  infos.text(PMIX_TMPDIR, job_.folder);
  infos.text(PMIX_NSDIR, job_.folder / "job");
  infos.flag(PMIX_TDIR_RMCLEAN, true);
  std::deque<Infos> ranks;
  for (int rank = 0; rank < world; ++rank) {
    const int node = rank / local;
    Infos& one = ranks.emplace_back();
    one.rank(PMIX_RANK, rank);
    one.u32(PMIX_APPNUM, 0);
    for (const char* key : {PMIX_APP_RANK, PMIX_GLOBAL_RANK}) one.rank(key, rank);
    for (const char* key : {PMIX_LOCAL_RANK, PMIX_NODE_RANK}) one.u16(key, rank % local);
    one.u32(PMIX_NODEID, node);
    one.text(PMIX_HOSTNAME, job_.nodes[as_size(node)]);
    if (node == job_.slot) {
      const auto folder = job_.folder / "job" / std::to_string(rank);
      std::filesystem::create_directories(folder);
      one.text(PMIX_PROCDIR, folder);
    }
    infos.list(PMIX_PROC_DATA, one);
  }
  check(PMIx_server_register_nspace(job_.name.c_str(), local, infos.data(), infos.size(), nullptr, nullptr),
        "registration of the job");
  std::free(node_map), std::free(process_map);
}

std::vector<std::string> PmixServer::environment_of(int rank) const {
  const pmix_proc_t proc = process(rank);
  char** theirs = nullptr;
  check(PMIx_server_setup_fork(&proc, &theirs), "the environment of a rank");
  // Open MPI 4.1 takes itself for the only rank where it sees no launcher that it knows, PMIx or not. Without
  // this component it does not.
  std::vector<std::string> out = {"OMPI_MCA_schizo=^orte"};
  // The segments by which ranks of a node talk, of Open MPI 4 and 5: by themselves they lie in /dev/shm,
  // where those of ranks that were killed together with this process would stay.
  for (const char* part : {"vader", "sm"})
    out.push_back(fmt::format("OMPI_MCA_btl_{}_backing_directory={}", part, job_.folder.string()));
  for (char** entry = theirs; entry && *entry; ++entry) {
    out.emplace_back(*entry);
    std::free(*entry);
  }
  std::free(theirs);
  // What mpirun sets, and programs read.
  out.push_back(fmt::format("OMPI_COMM_WORLD_RANK={}", rank));
  out.push_back(fmt::format("OMPI_COMM_WORLD_SIZE={}", job_.world()));
  out.push_back(fmt::format("OMPI_COMM_WORLD_LOCAL_RANK={}", rank % job_.ranks_per_node));
  out.push_back(fmt::format("OMPI_COMM_WORLD_LOCAL_SIZE={}", job_.ranks_per_node));
  return out;
}

void PmixServer::published_by(int rank, PmixRequests::Answer answer) const {
  const pmix_proc_t proc = process(rank);
  auto* kept = new PmixRequests::Answer(std::move(answer));
  const auto status = PMIx_server_dmodex_request(
      &proc,
      [](pmix_status_t result, char* data, std::size_t size, void* object) {
        const auto* waiting = static_cast<PmixRequests::Answer*>(object);
        (*waiting)(result, std::string(data ? data : "", data ? size : 0));
        delete waiting;
      },
      kept);
  if (status == PMIX_SUCCESS) return;
  (*kept)(status, "");
  delete kept;
}

}  // namespace holdfast::launcher
