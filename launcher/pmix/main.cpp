// holdfast-pmix: serves PMIx to the MPI ranks of one node in one attempt. Their agent starts it, passes its
// messages on, and ends it by a signal. It outlives the agent, since the end of its server ends the ranks.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "launcher/pmix/pmix_program.hpp"
#include "launcher/pmix/pmix_relay.hpp"
#include "src/base/as_size.hpp"
#include "src/base/bundle.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {

constexpr unsigned end_limit_s = 1;

int serve(int argc, char** argv) {
  CLI::App app{"Serves PMIx to the MPI ranks of a node. `holdfast agent` starts it."};
  PmixJob job;
  control::Hello hello;
  hello.role = control::Hello::Role::pmix;
  hello.pid = ::getpid();
  std::string socket, secret;
  app.add_option("--socket", socket, "the agent's socket")->required();
  app.add_option("--secret", secret, "the file with the run's secret")->required();
  app.add_option("--folder", job.folder, "for files of the ranks' MPI")->required();
  app.add_option("--nodes", job.nodes, "the nodes by slot")->required()->delimiter(',');
  app.add_option("--slot", job.slot, "of this node")->required();
  app.add_option("--ranks-per-node", job.ranks_per_node)->required();
  app.add_option("--term", hello.term)->required();
  app.add_option("--attempt", hello.attempt)->required();
  CLI11_PARSE(app, argc, argv);
  // SLURM and users signal every process of a step; a write to a rank that has just died must not end this
  // one.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_IGN);
  hello.node = job.nodes.at(as_size(job.slot));
  const control::Key key = control::read_secret(secret);
  // Ranks of other jobs on this machine do not know the secret, and so not the name.
  job.name =
      "holdfast." + control::to_hex(control::mac(key, "pmix " + std::to_string(hello.attempt))).substr(0, 32);
  std::filesystem::create_directories(job.folder);

  control::RealLoop loop;
  const auto signals = loop.on_signals({pmix_end_signal()}, [&](int) { loop.stop(); });
  {
    const PmixRelay relay(loop, job, socket, key, hello);
    loop.run();
    ::alarm(end_limit_s);  // its agent waits for it, and removes the folder too
  }
  std::error_code ignored;
  std::filesystem::remove_all(job.folder, ignored);
  return 0;
}

}  // namespace
}  // namespace holdfast::launcher

int main(int argc, char** argv) {
  holdfast::use_mpi_of_bundle();
  try {
    return holdfast::launcher::serve(argc, argv);
  } catch (const holdfast::Error& error) {
    std::fprintf(stderr, "holdfast-pmix: %s\n", error.what());
    return static_cast<int>(error.exit());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast-pmix: internal error (%s). Please report it\n", error.what());
    return static_cast<int>(holdfast::Exit::runtime);
  }
}
