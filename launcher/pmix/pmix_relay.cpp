#include "launcher/pmix/pmix_relay.hpp"

#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis dial_limit{2000}, redial_pause{100};
constexpr Millis questions_period{1000};  // one may be lost where an agent is replaced
constexpr std::int64_t kept_fences = 2;
}  // namespace

PmixRelay::PmixRelay(Loop& loop, const PmixJob& job, const std::filesystem::path& socket, const Key& secret,
                     Hello hello)
    : loop_(loop),
      job_(job),
      socket_(socket),
      secret_(secret),
      hello_(std::move(hello)),
      requests_{[this](std::string set, int nodes, std::string published, PmixRequests::Answer answer) {
                  loop_.post([this, set = std::move(set), nodes, published = std::move(published),
                              answer = std::move(answer)] { come_to_fence(set, nodes, published, answer); });
                },
                [this](int rank, PmixRequests::Answer answer) {
                  loop_.post([this, rank, answer = std::move(answer)] { ask(rank, answer); });
                }},
      server_(job_, requests_) {
  asking_ = loop_.every(questions_period, [this] { ask_again(); });
  connect();
}

void PmixRelay::connect() {
  channel_ =
      dial(loop_, socket_, secret_, dial_limit,
           {[this] { greet(); },
            [this](std::string_view line) {
              std::string why;
              if (const auto message = decode<AgentToPmix>(line, why))
                hear(*message);
              else
                log::warn("a message of the agent was refused: {}", why);
            },
            [this](const std::string&) { redial_ = loop_.after(redial_pause, [this] { connect(); }); }});
}

void PmixRelay::greet() {
  say(hello_);
  for (int rank = job_.first_rank(); rank < job_.first_rank() + job_.ranks_per_node; ++rank)
    say(PmixRank{rank, hello_.attempt, server_.environment_of(rank)});
  repeat();
}

void PmixRelay::say(const Message& message) {
  if (channel_ && channel_->open()) channel_->send(encode(message));
}

void PmixRelay::repeat() {
  for (auto& [set, numbers] : fences_)
    for (auto& [number, fence] : numbers) say(fence.said);
  ask_again();
}

void PmixRelay::ask_again() {
  for (const auto& [rank, answer] : questions_) say(PmixQuestion{hello_.attempt, rank, -1});
}

void PmixRelay::come_to_fence(const std::string& set, int nodes, std::string published,
                              PmixRequests::Answer answer) {
  if (published.size() > max_published) return answer(PmixServer::too_much, "");
  auto& numbers = fences_[set];
  const std::int64_t number = numbers.empty() ? 1 : numbers.rbegin()->first + 1;
  numbers.erase(number - kept_fences);
  auto& fence = numbers[number];
  fence = {{hello_.attempt, set, number, nodes, true, std::move(published)}, std::move(answer)};
  say(fence.said);
}

void PmixRelay::ask(int rank, PmixRequests::Answer answer) {
  questions_.emplace(rank, std::move(answer));
  say(PmixQuestion{hello_.attempt, rank, -1});
}

void PmixRelay::hear(const AgentToPmix& message) {
  // What is late belongs to an attempt that is over.
  const bool old = std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.attempt; })
          return m.attempt != hello_.attempt;
        else
          return false;
      },
      message);
  if (old) return;
  std::visit(Overloaded{
                 [&](const PmixFenced& m) {
                   auto& numbers = fences_[m.set];
                   const auto fence = numbers.find(m.number);
                   if (fence == numbers.end()) return;
                   fence->second.said.waits = false;
                   if (const auto answer = std::exchange(fence->second.answer, nullptr))
                     answer(m.ok ? PmixServer::ok : PmixServer::too_much, m.published);
                 },
                 [&](const PmixQuestion& m) {
                   server_.published_by(m.rank, [this, m](int status, std::string published) {
                     const bool fits = published.size() <= max_published;
                     loop_.post([this, m, status = fits ? status : PmixServer::too_much,
                                 published = fits ? std::move(published) : ""] {
                       say(PmixPublished{m.attempt, m.rank, m.asker, status, published});
                     });
                   });
                 },
                 [&](const PmixPublished& m) {
                   for (auto waiting = questions_.extract(m.rank); waiting;
                        waiting = questions_.extract(m.rank))
                     waiting.mapped()(m.status, m.published);
                 },
                 [&](const PmixRepeat&) { repeat(); },
             },
             message);
}

}  // namespace holdfast::launcher
