#include "launcher/agent/ranks/rank_shim.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "launcher/agent/ranks/children.hpp"
#include "launcher/agent/ranks/log_spool.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/rank_env.hpp"
#include "src/config/load.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {

constexpr Millis agent_redial_pause{100};
constexpr int cannot_start = 127;  // as in shells
constexpr Millis signals_apart{500};
constexpr Millis report_limit{3000};  // an agent that does not acknowledge the exit within this time is gone

class Shim {
 public:
  Shim(RankEnv place, const RunDir& settings)
      : place_(std::move(place)), secret_(read_secret(settings.secret())), children_(loop_) {}

  int run(const config::Rank& what) {
    Command rank;
    rank.argv = rank_command(what);
    rank.block_sigterm = own_trainer(what);
    rank.environment = env::without(
        {"HOLDFAST_RANK=", "HOLDFAST_WORLD=", "HOLDFAST_LOCAL_RANK=", "RANK=", "WORLD_SIZE=", "LOCAL_RANK=",
         "LOCAL_WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT=", "HOLDFAST_RANKS_PER_NODE=", "HOLDFAST_TERM=",
         "HOLDFAST_ATTEMPT=", "HOLDFAST_NODE=", "HOLDFAST_RUN_DIR=", "HOLDFAST_AGENT_SOCKET=",
         "HOLDFAST_TRUSTED_STEP=", "HOLDFAST_DURABLE_STEPS="});
    for (const auto& variable : to_variables(place_)) rank.environment->push_back(variable);
    rank.die_with_parent = true;
    block_sigterm_ = rank.block_sigterm;
    try {
      const RunDir run{place_.run_dir};
      rank.output = spooled(scratch_of(run, place_.node), run, rank_log(run, place_.attempt, place_.rank));
      pid_ = children_.start(rank, [this](int status) { ended(status); });
    } catch (const Error& error) {
      log::error("{}", error.what());
      refused_ = error.what();
      ended(cannot_start);
    }
    const auto signals = loop_.on_signals({SIGTERM, SIGINT, SIGUSR1}, [this](int signal) {
      if (signal != SIGTERM) {
        if (pid_ > 0) ::kill(pid_, signal);
        return;
      }
      // Our own trainer is told to end by its agent, and has a checkpoint to write first. Another program got
      // the signal itself: SLURM and mpirun signal the children of a shim, too.
      if (!block_sigterm_) asked_ = true;
    });
    connect();
    loop_.run();
    return status_;
  }

 private:
  void connect() {
    channel_ = dial(
        loop_, place_.agent_socket, secret_, Millis(2000),
        {[this] {
           channel_->send(
               encode(Hello{Hello::Role::shim, place_.node, place_.term, place_.attempt, place_.rank, pid_}));
           if (over_) tell_end();
         },
         [this](std::string_view line) {
           std::string why;
           const auto message = decode<AgentToRank>(line, why);
           if (!message) return;
           if (std::holds_alternative<Drain>(*message)) ask_to_end();
           if (!over_ || !std::holds_alternative<Taken>(*message)) return;
           // The sender of the SIGTERM that ended the rank may be about to signal this process, too.
           if (status_ == 128 + SIGTERM)
             limit_ = loop_.after(signals_apart, [this] { leave(); });
           else
             leave();
         },
         [this](const std::string&) { retry_ = loop_.after(agent_redial_pause, [this] { connect(); }); }});
  }
  void ended(int status) {
    status_ = status;
    over_ = true;
    tell_end();
    limit_ = loop_.after(report_limit, [this] { leave(); });
  }
  /// Does not end when the ranks are told to end: mpirun would end those that still save. The agent ends this
  /// process when no rank is left.
  void leave() {
    if (!asked_) loop_.stop();
  }
  void ask_to_end() {
    if (!std::exchange(asked_, true) && !over_) ::kill(pid_, SIGTERM);
  }
  void tell_end() {
    if (!channel_ || !channel_->open()) return;
    if (!refused_.empty()) channel_->send(encode(RankFailed{place_.rank, place_.attempt, status_, refused_}));
    channel_->send(encode(RankExited{place_.rank, place_.attempt, status_}));
  }

  RankEnv place_;
  Key secret_;
  Loop loop_;
  Children children_;
  ChannelPtr channel_;
  Loop::Handle retry_, limit_;
  pid_t pid_ = 0;
  int status_ = 0;
  std::string refused_;  ///< why the program could not be started; "": it was
  bool over_ = false, block_sigterm_ = false;
  bool asked_ = false;  ///< to end: the rank has been sent SIGTERM
};

}  // namespace

int start_rank() {
  // mpirun sets the rank number only; the rest comes from the agent.
  const auto number = env::get_integer("OMPI_COMM_WORLD_RANK");
  const auto per_node = env::get_integer("HOLDFAST_RANKS_PER_NODE");
  if (!number || !per_node || *per_node < 1)
    throw Error(Exit::usage, "`holdfast start-rank` is started by Holdfast's own mpirun",
                "OMPI_COMM_WORLD_RANK or HOLDFAST_RANKS_PER_NODE is not set");
  // The world of this attempt: the run may have shrunk since the daemons' environment was made.
  if (const auto world = env::get_integer("OMPI_COMM_WORLD_SIZE"))
    env::set("HOLDFAST_WORLD", std::to_string(*world));
  env::set("HOLDFAST_RANK", std::to_string(*number));
  env::set("HOLDFAST_LOCAL_RANK", std::to_string(*number % *per_node));
  auto place = rank_env_from_environment();
  if (!place)
    throw Error(Exit::usage, "`holdfast start-rank` is started by Holdfast's own mpirun",
                "HOLDFAST_RUN_DIR is not set");
  const RunDir run{place->run_dir}, settings = settings_of(scratch_of(run, place->node), run);
  const auto config = config::load(settings.config()).config;
  return Shim(std::move(*place), settings).run(config.rank);
}

}  // namespace holdfast::launcher
