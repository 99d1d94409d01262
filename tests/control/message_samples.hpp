#pragma once
// One of every message, for the test of the codec and for the fuzzers, which start from them.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/control/message.hpp"

namespace holdfast::control {

inline flight::FlightGroup group_of(std::uint64_t key, const char* name, flight::Collective operation) {
  flight::FlightGroup g;
  g.key = key;
  g.queued = 814;
  g.started = 812;
  g.finished = 811;
  g.size = 4;
  g.member = 3;
  g.operation = operation;
  std::copy_n(name, std::string_view(name).size(), g.name);
  return g;
}

/// Every message, with its JSON text. A change here is a change of the protocol: other versions of
/// Holdfast do not understand it.
inline const std::vector<std::pair<Message, std::string>>& samples() {
  static const std::vector<std::pair<Message, std::string>> all = {
      {Hello{Hello::Role::rank, "dgx001", 3, 7, 11, 4242},
       R"({"m":"hello","role":"rank","node":"dgx001","term":3,"attempt":7,"rank":11,"pid":4242})"},
      {RankStarted{5, 2, 99}, R"({"m":"rank_started","rank":5,"attempt":2,"pid":99})"},
      {RankProgress{5, 2, -1, Phase::collective},
       R"({"m":"progress","rank":5,"attempt":2,"step":-1,"phase":"collective","compute_us":0,"moves":0})"},
      {RankMetrics{0, 2, 8, 2.5, 1000},
       R"({"m":"metrics","rank":0,"attempt":2,"step":8,"loss":2.5,"tokens":1000})"},
      {RankMetrics{0, 2, 9, std::nan(""), 1000},
       R"({"m":"metrics","rank":0,"attempt":2,"step":9,"loss":null,"tokens":1000})"},
      {RankWaits{5, 2, {40, 2500000, 3, 8000, {{8, 90000}, {0, 8000}, {12, 7000}}}},
       R"({"m":"waits","rank":5,"attempt":2,"step":40,"window_us":2500000,"nodes":3,"median_us":8000,"longest":[{"rank":8,"us":90000},{"rank":0,"us":8000},{"rank":12,"us":7000}]})"},
      {RankRestored{0, 2, {400, "shared", "00ff", "step 500 is damaged"}},
       R"({"m":"restored","rank":0,"attempt":2,"step":400,"level":"shared","digest":"00ff","note":"step 500 is damaged"})"},
      {RankVote{1, 2, 400, true, R"({"a":"b\n"})", 1500},
       R"({"m":"vote","rank":1,"attempt":2,"step":400,"ok":true,"stall_us":1500})"
       "\t"
       R"({"a":"b\n"})"},
      {NodeVotes{2, 400, {{8, true, 8, 1500}, {9, false, 8}}, R"({"a": 1}no space)"},
       R"({"m":"node_votes","attempt":2,"step":400,"votes":[{"rank":8,"ok":true,"bytes":8,"stall_us":1500},{"rank":9,"ok":false,"bytes":8,"stall_us":0}]})"
       "\t"
       R"({"a": 1}no space)"},
      {RankSealed{1, 2, 400}, R"({"m":"sealed","rank":1,"attempt":2,"step":400})"},
      {FetchState{3, 400, 2, {{7, "dgx004", 40123}}},
       R"({"m":"fetch_state","attempt":3,"step":400,"of_attempt":2,"from":[{"rank":7,"node":"dgx004","port":40123}]})"},
      {StateFetched{3, 400, 2, -1, ""},
       R"({"m":"state_fetched","attempt":3,"step":400,"of_attempt":2,"rank":-1,"why":"","no_room":false})"},
      {StateFetched{3, 400, 2, 7, "it is not here"},
       R"({"m":"state_fetched","attempt":3,"step":400,"of_attempt":2,"rank":7,"why":"it is not here","no_room":false})"},
      {StateFetched{3, 400, 2, 7, "no memory", true},
       R"({"m":"state_fetched","attempt":3,"step":400,"of_attempt":2,"rank":7,"why":"no memory","no_room":true})"},
      {RankFinished{1, 2, std::nullopt}, R"({"m":"finished","rank":1,"attempt":2,"state":null})"},
      {RankFinished{0, 2, FinalState{9, 1000, 2.5, "ab"}},
       R"({"m":"finished","rank":0,"attempt":2,"state":{"step":9,"tokens":1000,"loss":2.5,"digest":"ab"}})"},
      {RankFinished{0, 2, FinalState{9, 1000, std::nan(""), "ab"}},
       R"({"m":"finished","rank":0,"attempt":2,"state":{"step":9,"tokens":1000,"loss":null,"digest":"ab"}})"},
      {RankFailed{3, 2, 93, "no such file"},
       R"({"m":"failed","rank":3,"attempt":2,"exit_code":93,"why":"no such file"})"},
      {RankExited{3, 2, 137}, R"({"m":"rank_exited","rank":3,"attempt":2,"status":137})"},
      {RankFlight{3, 2, 1500, {group_of(UINT64_MAX, "shard group 0", flight::Collective::all_gather)}},
       R"({"m":"flight","rank":3,"attempt":2,"silent_ms":1500,"groups":[{"key":18446744073709551615,"name":"shard group 0","operation":"all_gather","queued":814,"started":812,"finished":811,"size":4,"member":3}]})"},
      {RankSeen{3, 2, 1500, "network", 97, "R"},
       R"({"m":"seen","rank":3,"attempt":2,"still_ms":1500,"sign":"network","cpu_percent":97,"state":"R"})"},
      {RankHeard{3, 2, RankHeard::What::stop}, R"({"m":"heard","rank":3,"attempt":2,"what":"stop"})"},
      {Taken{}, R"({"m":"taken"})"},
      {NotSpeaker{"process 7 speaks for rank 3"},
       R"({"m":"not_speaker","why":"process 7 speaks for rank 3"})"},
      {CommitOutcome{2, 400, false, "rank 3: disk full"},
       R"({"m":"commit_outcome","attempt":2,"step":400,"durable":false,"why":"rank 3: disk full"})"},
      {RankProgress{5, 2, 8, Phase::paused, 1500, 41},
       R"({"m":"progress","rank":5,"attempt":2,"step":8,"phase":"paused","compute_us":1500,"moves":41})"},
      {RankDoubt{0, 2, 400, {8, 9}, "replicas", "the digest of rank 8 differs"},
       R"({"m":"doubt","rank":0,"attempt":2,"step":400,"accused":[8,9],"check":"replicas","why":"the digest of rank 8 differs"})"},
      {Pause{true}, R"({"m":"pause","on":true})"},
      {Inject{"stall", 5, 2.5, 77}, R"({"m":"inject","fault":"stall","rank":5,"seconds":2.5,"seed":77})"},
      {NodeSigns{{{"xid", 3, 79, 1200, "GPU has fallen off the bus", 2}, {"oom_kill", -1, 9, 0, ""}}},
       R"({"m":"signs","signs":[{"kind":"xid","rank":3,"code":79,"age_ms":1200,"text":"GPU has fallen off the bus","attempt":2},{"kind":"oom_kill","rank":-1,"code":9,"age_ms":0,"text":"","attempt":0}]})"},
      {NodeHealth{NodeHealth::Fitness::critical,
                  "7 of 8 GPUs",
                  "00ff",
                  {{"gpu.count", NodeHealth::Fitness::critical, "7 of 8 GPUs"}}},
       R"({"m":"health","fitness":"critical","why":"7 of 8 GPUs","numerics":"00ff","findings":[{"check":"gpu.count","fitness":"critical","says":"7 of 8 GPUs"}]})"},
      {CheckNode{false}, R"({"m":"check_node","numerics":false})"},
      {DumpStacks{2, 5}, R"({"m":"dump_stacks","attempt":2,"rank":5})"},
      {Stacks{2, 5, "#0 read"}, R"({"m":"stacks","attempt":2,"rank":5,"text":"#0 read"})"},
      {Order{"7f", Order::Verb::evict, "dgx003", "ada@login"},
       R"({"m":"order","id":"7f","verb":"evict","node":"dgx003","by":"ada@login"})"},
      {OrderTaken{"7f", false, "no spare is left"},
       R"({"m":"order_taken","id":"7f","taken":false,"says":"no spare is left","again":false})"},
      {Heartbeat{"dgx002", 2, {{4, 2, 17, Phase::forward}, {5, 2, 17, Phase::data}}, "it does not answer"},
       R"({"m":"beat","node":"dgx002","attempt":2,"ranks":[{"rank":4,"attempt":2,"step":17,"phase":"forward","compute_us":0,"moves":0},{"rank":5,"attempt":2,"step":17,"phase":"data","compute_us":0,"moves":0}],"copies_off":"it does not answer"})"},
      {LeaderHeartbeat{3}, R"({"m":"leader_beat","term":3})"},
      {Clear{3, 2}, R"({"m":"clear","term":3,"attempt":2})"},
      {Cleared{2, 29502, 40123, {{7, 400, 2, 16, true}}},
       R"({"m":"cleared","attempt":2,"free_port":29502,"mover":40123,"sealed":[{"rank":7,"step":400,"attempt":2,"world":16,"copy":true}]})"},
      {ProcessesLeft{2, "2 processes have not ended"},
       R"({"m":"processes_left","attempt":2,"why":"2 processes have not ended"})"},
      {StartRanks{3,
                  2,
                  1,
                  8,
                  29501,
                  "10.0.0.1",
                  {"dgx001", "dgx004"},
                  {0, 40123},
                  {-1, {400, 350}, 410, 1, "partner"}},
       R"({"m":"start_ranks","term":3,"attempt":2,"slot":1,"ranks_per_node":8,"master_port":29501,"master":"10.0.0.1","nodes":["dgx001","dgx004"],"trusted_step":-1,"durable_steps":[400,350],"movers":[0,40123],"sealed_step":410,"sealed_attempt":1,"sealed_level":"partner"})"},
      {PmixRank{5, 2, {"PMIX_RANK=5"}},
       R"({"m":"pmix_rank","rank":5,"attempt":2,"environment":["PMIX_RANK=5"]})"},
      {PmixFence{2, "all", 3, 4, false, std::string("\0\n\t", 3)},
       R"({"m":"pmix_fence","attempt":2,"set":"all","number":3,"nodes":4,"waits":false})"
       "\t"
       "AAoJ"},
      {PmixFenced{2, "all", 3, true, ""},
       R"({"m":"pmix_fenced","attempt":2,"set":"all","number":3,"ok":true})"
       "\t"},
      {PmixQuestion{2, 5, -1}, R"({"m":"pmix_question","attempt":2,"rank":5,"asker":-1})"},
      {PmixPublished{2, 5, 3, -46, "ab"},
       R"({"m":"pmix_published","attempt":2,"rank":5,"asker":3,"status":-46})"
       "\t"
       "YWI="},
      {PmixRepeat{}, R"({"m":"pmix_repeat"})"},
      {Drain{true, "SIGTERM", 1764086400},
       R"({"m":"drain","stop":true,"reason":"SIGTERM","until":1764086400})"},
      {Finish{5}, R"({"m":"finish","exit_code":5})"},
      {Answer{true, 3, 2400}, R"({"m":"answer","grant":true,"term":3,"leader_age_ms":2400})"},
  };
  return all;
}

}  // namespace holdfast::control
