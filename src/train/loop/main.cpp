// holdfast-train: one rank of a training run. Links MPI and HDF5, and nothing of SLURM.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <thread>
#include <utility>

#include "src/base/bundle.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lock_pages.hpp"
#include "src/base/log.hpp"
#include "src/base/parallel.hpp"
#include "src/comm/mpi_session.hpp"
#include "src/config/choices.hpp"
#include "src/device/load.hpp"
#include "src/flight/stack_dump.hpp"
#include "src/train/common/agent_link.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/engine/probe.hpp"
#include "src/train/local/local_level.hpp"
#include "src/train/loop/result.hpp"
#include "src/train/loop/token_data.hpp"
#include "src/train/loop/trainer.hpp"

namespace holdfast::train {
namespace {

Place find_place(const comm::MpiSession& session, const std::optional<RankEnv>& agent) {
  if (!agent) return {session.rank(), session.size(), session.ranks_on_this_node(), std::nullopt};
  if (agent->rank != session.rank() || agent->world != session.size())
    throw Error(Exit::runtime, "MPI started this rank in another place than was planned",
                fmt::format("planned: rank {} of {}; MPI: rank {} of {}", agent->rank, agent->world,
                            session.rank(), session.size()));
  return {agent->rank, agent->world, agent->ranks_per_node, agent};
}

/// Threads of one rank: what the environment says, else its share of the cores it may use.
int threads_of(const Place& place) {
  if (env::get("OMP_NUM_THREADS")) return 0;
  return std::max(1, usable_cores() / place.ranks_per_node);
}

constexpr Millis last_lines{2000};  // to write them, before this process ends

/// Says why this rank fails, once; of a GPU before anything is torn down, since that may hang.
class FailureReport {
 public:
  explicit FailureReport(comm::MpiSession& session) : session_(session) {}
  std::unique_ptr<control::RankLink> link;

  /// Returns the exit code.
  int say(const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const int code = static_cast<int>(known ? known->exit() : Exit::runtime);
    if (std::exchange(said_, true)) return code;
    const std::string why = known ? error.what() : fmt::format("internal error: {}", error.what());
    const bool one_log = !(link && link->supervised());
    // What fails on all ranks alike should be said once: rank 0 speaks first and ends the others.
    if (one_log && session_.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (!one_log || !dynamic_cast<const OnAnotherRank*>(&error)) log::error("{}", why);
    log::flush(last_lines);
    if (link) link->failed(code, why);
    return code;
  }

 private:
  comm::MpiSession& session_;
  bool said_ = false;
};

/// A GPU that hangs does not give its memory back, and has no deadline of its own. A save that is being
/// written may still be finished in that time.
void leave_within(std::chrono::seconds limit, int code, const device::Device& device) {
  if (device.is_host()) return;
  std::thread([limit, code] {
    std::this_thread::sleep_for(limit);
    log::error("the GPU is not given back within {} s; this rank leaves it", limit.count());
    log::flush(last_lines);
    std::_Exit(code);
  }).detach();
}

/// For the agent. Where it cannot be recorded, and without agents, this process alone can read its record.
void record_flight(comm::MpiSession& session, const RankEnv& agent) {
  try {
    session.record_flight(agent.agent_socket.parent_path() /
                          flight_record_file(agent.attempt, session.rank()));
  } catch (const std::exception& error) {
    log::warn("the collectives of this rank cannot be shown if it hangs: {}", error.what());
  }
}

void train(const Arguments& arguments, comm::MpiSession& session, const std::optional<RankEnv>& agent,
           FailureReport& report) {
  control::RankLink& link = *report.link;
  const auto start = Clock::now();
  Setup setup = read_setup(arguments, find_place(session, agent));
  settle_length(setup);
  // Longer than the supervisor waits, so that it names the rank that hangs before its peers give up.
  const auto& limits = setup.config;
  if (limits.trace.flight_recorder && agent && !agent->agent_socket.empty()) record_flight(session, *agent);
  const std::chrono::seconds limit(2 * limits.supervise.step_s + limits.checkpoint.commit_s);
  auto host = session.world({.limit = limit, .explain = !agent});  // an agent reads the record itself
  const Place& place = setup.place;
  const auto device = device::open_device(config::name_of(limits.train.device),
                                          {.local_rank = place.rank % place.ranks_per_node,
                                           .local_ranks = place.ranks_per_node,
                                           .threads = threads_of(place),
                                           .deterministic = limits.train.deterministic,
                                           .limit = limit,
                                           .recorder = &session.flight(),
                                           .explain = !agent});
  settle_arithmetic(setup, !device->is_host());
  const auto world = device->communicator(std::move(host));
  claim_run_directory(setup, *world);
  const std::chrono::seconds to_leave(limits.checkpoint.commit_s + 10);
  lock_code_on_shared_storage();
  Trainer trainer(setup, *device, *world, &session.flight(), link);
  const control::FinalState final_state = [&] {
    try {
      return trainer.run();
    } catch (const Error& error) {
      device->give_up(error);  // while its communicators are there
      if (!device->is_host()) report.say(error);
      leave_within(to_leave, static_cast<int>(error.exit()), *device);
      throw;
    }
  }();
  if (!link.supervised() && session.rank() == 0) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    write_result(setup.dir.result(), final_state, trainer.seconds_in_steps() / seconds,
                 setup.config.eval.keep_best ? checkpoint::best_of(setup.dir.checkpoints()) : std::nullopt);
    log::info("training is done at step {}, loss {:.4f}, state {}", final_state.step, final_state.loss,
              final_state.state_digest);
  }
  link.finished(session.rank() == 0 ? std::optional(final_state) : std::nullopt);
  world->barrier();  // nobody leaves while another may still fail
  if (!link.supervised()) remove_local_folder(setup);
  leave_within(to_leave, 0, *device);
}

/// The one place where failures become exit codes.
int run(const Arguments& arguments, comm::MpiSession& session) {
  FailureReport report(session);
  int code = 0;
  try {
    const auto agent = rank_env_from_environment();
    report.link = make_rank_link(agent);
    report.link->progress(0, control::Phase::starting);
    train(arguments, session, agent, report);
    return 0;
  } catch (const std::exception& error) {
    code = report.say(error);
  }
  if (session.size() > 1) session.abort(code);
  return code;
}

}  // namespace
}  // namespace holdfast::train

int main(int argc, char** argv) {
  holdfast::use_mpi_of_bundle();
  holdfast::train::Arguments arguments;
  CLI::App app(
      "One rank of a training run. Start it with holdfast submit, or by itself: srun -n8 holdfast-train "
      "job.toml");
  app.add_option("job", arguments.job,
                 "job file (TOML); under an agent the run directory's settings are used");
  app.add_option("--set", arguments.sets, "table.key=value, over the job file's value")
      ->allow_extra_args(false);
  app.add_option("--run-dir", arguments.run_dir, "run directory, over run.dir");
  bool probe = false;
  app.add_flag("--probe", probe,
               "print a digest of what this machine's CPU kernels compute, and their identity; no training");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(holdfast::Exit::usage);
  }
  holdfast::flight::dump_stacks_on_signal();
  if (probe) {
    fmt::print("{}\n", holdfast::train::probe_line(*holdfast::kernels::make_cpu_kernels()));
    return 0;
  }
  holdfast::comm::MpiSession session(&argc, &argv);
  holdfast::log::start_in_background(session.size() > 1 ? fmt::format("rank {}", session.rank())
                                                        : "holdfast-train");
  return holdfast::train::run(arguments, session);
}
