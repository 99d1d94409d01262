// Commands that are launchers: what their ranks run, and which are refused.
#include "launcher/job/other_launchers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.hpp"
#include "src/base/shell_words.hpp"

namespace holdfast::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

/// Files by their paths; programs are in /env/bin.
Outside with(std::map<std::string, std::string> files = {}) {
  return {
      [files](const std::string& path) -> std::optional<std::string> {
        const auto found = files.find(path);
        return found == files.end() ? std::nullopt : std::optional(found->second);
      },
      [files](const std::string& program) {
        const std::string path = program.starts_with('/') ? program : "/env/bin/" + program;
        return files.contains(path) ? path : "";
      },
      [](const char* variable) -> std::string { return std::string(variable) == "HOME" ? "/home/mia" : ""; }};
}

std::string command_of(const std::string& typed, const Outside& outside = with()) {
  const auto found = launcher_in(shell_words(typed), outside);
  if (!found) return "";
  std::string out;
  for (const auto& word : found->command) out += (out.empty() ? "" : " ") + word;
  return out;
}

config::Loaded job(const std::string& typed, std::map<std::string, int> sets = {}) {
  config::Loaded loaded;
  loaded.config.rank.command = shell_words(typed);
  loaded.config.cluster.nodes = 1;
  loaded.config.cluster.ranks_per_node = 0;
  for (const auto& [key, value] : sets) {
    loaded.origin[key] = "flag";
    if (key == "cluster.nodes") loaded.config.cluster.nodes = value;
    if (key == "cluster.ranks_per_node") loaded.config.cluster.ranks_per_node = value;
  }
  return loaded;
}

std::string refusal(const std::string& typed, std::map<std::string, int> sets = {},
                    const Outside& outside = with()) {
  auto loaded = job(typed, std::move(sets));
  try {
    take_launcher(loaded, outside);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "";
}

TEST(OtherLaunchers, BecomeWhatTheirRanksRun) {
  const std::pair<const char*, const char*> cases[] = {
      {"torchrun train.py --lr 1", "python3 -u train.py --lr 1"},
      {"torchrun --nproc-per-node 8 --nnodes=2 train.py --nnodes 5", "python3 -u train.py --nnodes 5"},
      {"torchrun --nproc_per_node=gpu --standalone -m pkg.train -m x", "python3 -u -m pkg.train -m x"},
      {"torchrun --no-python ./train --x", "./train --x"},
      {"torchrun --nproc 4 -- train.py", "python3 -u train.py"},
      {"torchrun -r3 -t 3 --log-dir=l train.py", "python3 -u train.py"},
      {"/opt/env/bin/torchrun train.py", "python3 -u train.py"},
      {"python3 -m torch.distributed.run --nproc-per-node=2 train.py", "python3 -u train.py"},
      {"/env/bin/python3.11 -u -X dev -m torch.distributed.run train.py a",
       "/env/bin/python3.11 -u train.py a"},
      {"python -m torch.distributed.launch --use_env --nproc_per_node 2 train.py", "python -u train.py"},
      {"python -m torch.distributed.launch --nproc_per_node 2 train.py --lr 1",
       "bash -c exec \"${0}\" \"${1}\" \"${2}\" --local-rank=\"$LOCAL_RANK\" \"${@:3}\" python -u train.py "
       "--lr 1"},
      {"accelerate launch train.py", "python3 -u train.py"},
      {"accelerate-launch --num_processes 4 --mixed_precision bf16 train.py", "python3 -u train.py"},
      {"python3 -m accelerate.commands.launch --multi_gpu train.py x", "python3 -u train.py x"},
      {"deepspeed --no_local_rank --num_gpus 8 train.py --deepspeed ds.json",
       "python3 -u train.py --deepspeed ds.json"},
      {"deepspeed train.py a",
       "bash -c exec \"${0}\" \"${1}\" \"${2}\" --local_rank=\"$LOCAL_RANK\" \"${@:3}\" python3 -u train.py "
       "a"},
      {"env A=b nohup torchrun train.py", "env A=b nohup python3 -u train.py"},
      {"A=b torchrun train.py", "env A=b python3 -u train.py"},
      {"exec torchrun train.py", "python3 -u train.py"},
      {"uv run --with deepspeed torchrun train.py", "uv run --with deepspeed python3 -u train.py"},
      {"conda run -n torchrun accelerate launch train.py", "conda run -n torchrun python3 -u train.py"},
  };
  for (const auto& [typed, command] : cases) EXPECT_EQ(command_of(typed), command) << typed;
}

TEST(OtherLaunchers, OtherCommandsStay) {
  for (const char* typed :
       {"python3 train.py --launcher torchrun", "./train", "accelerate config", "python3 -m pkg.torchrun",
        "flux", "env A=b python3 srun.py", "bash train.sh srun", "python3 -m train accelerate launch"}) {
    auto loaded = job(typed);
    EXPECT_THAT(take_launcher(loaded, with()), IsEmpty()) << typed;
    EXPECT_EQ(loaded.config.rank.command, shell_words(typed));
  }
}

TEST(OtherLaunchers, AnInstalledOneNamesItsInterpreter) {
  EXPECT_EQ(
      command_of("torchrun train.py", with({{"/env/bin/torchrun", "#!/env/bin/python3.12\nimport x\n"}})),
      "/env/bin/python3.12 -u train.py");
  EXPECT_EQ(command_of("/v/bin/torchrun train.py", with({{"/v/bin/torchrun", "#!/v/bin/python\n"}})),
            "/v/bin/python -u train.py");
  EXPECT_EQ(command_of("uv run torchrun train.py", with({{"/env/bin/torchrun", "#!/env/bin/python3.12\n"}})),
            "uv run python3 -u train.py")
      << "another environment";
  auto loaded = job("torchrun train.py");
  loaded.config.container.image = "pytorch.sqsh";
  take_launcher(loaded, with({{"/env/bin/torchrun", "#!/env/bin/python3.12\n"}}));
  EXPECT_EQ(loaded.config.rank.command.front(), "python3") << "the image has one of its own";
  for (const char* other : {"#!/bin/sh\n", "#!/usr/bin/env python3\n",
                            "\x7f"
                            "ELF",
                            ""})
    EXPECT_EQ(command_of("torchrun train.py", with({{"/env/bin/torchrun", other}})), "python3 -u train.py");
}

TEST(OtherLaunchers, SetTheSizeOfTheJob) {
  auto loaded = job("torchrun --nnodes=1:4 --nproc-per-node 8 --rdzv-backend c10d --max_restarts=3 train.py");
  const auto said = take_launcher(loaded, with());
  EXPECT_EQ(loaded.config.cluster.nodes, 4);
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 8);
  EXPECT_EQ(loaded.config.supervise.min_nodes, 1);
  EXPECT_EQ(loaded.origin["cluster.nodes"], "torchrun");
  EXPECT_THAT(said,
              ElementsAre("Holdfast takes the place of torchrun: 8 ranks on each of 4 nodes run python3 -u "
                          "train.py",
                          HasSubstr("--rdzv-backend of torchrun is left out: agents find each other"),
                          HasSubstr("--max_restarts of torchrun is left out: supervise.max_restarts")));

  loaded = job("torchrun train.py", {{"cluster.nodes", 2}});
  EXPECT_THAT(take_launcher(loaded, with()).front(),
              AllOf(HasSubstr("one rank on each of 2 nodes runs"), HasSubstr("--nproc-per-node=gpu")));
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 1) << "as torchrun does";
  loaded = job("torchrun train.py", {{"cluster.ranks_per_node", 4}});
  take_launcher(loaded, with());
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 4);
  loaded = job("torchrun --nproc-per-node=auto train.py");
  EXPECT_THAT(take_launcher(loaded, with()).front(), HasSubstr("a rank for each GPU of 1 node runs"));
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 0);
  loaded = job("accelerate launch --num_processes 16 --num_machines 2 --gpu_ids all train.py");
  take_launcher(loaded, with());
  EXPECT_EQ(loaded.config.cluster.nodes, 2);
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 8);
  loaded = job("deepspeed --num_nodes 2 --num_gpus=4 --no_local_rank train.py", {{"cluster.nodes", 2}});
  take_launcher(loaded, with());
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 4);

  loaded = job("deepspeed train.py --lr 1");
  EXPECT_THAT(take_launcher(loaded, with()).front(),
              HasSubstr("runs python3 -u train.py --local_rank=N --lr 1"));

  EXPECT_THAT(refusal("torchrun --nproc-per-node 4 train.py", {{"cluster.ranks_per_node", 8}}),
              HasSubstr("torchrun says 4, and cluster.ranks_per_node is 8"));
  EXPECT_THAT(refusal("torchrun --nnodes 2 train.py", {{"cluster.nodes", 4}}),
              HasSubstr("torchrun says 2, and cluster.nodes is 4"));
  EXPECT_THAT(refusal("accelerate launch --num_processes 9 train.py", {{"cluster.nodes", 2}}),
              HasSubstr("9 processes in all"));
}

TEST(OtherLaunchers, PassOnWhatAccelerateSaysByVariables) {
  auto loaded =
      job("accelerate launch --mixed_precision=bf16 --dynamo_backend inductor --cpu --gpu_ids 0,1 "
          "--num_cpu_threads_per_process 3 train.py");
  loaded.config.rank.environment = {"OMP_NUM_THREADS=9"};
  const auto said = take_launcher(loaded, with());
  EXPECT_THAT(loaded.config.rank.environment,
              ElementsAre("OMP_NUM_THREADS=9", "ACCELERATE_MIXED_PRECISION=bf16",
                          "ACCELERATE_DYNAMO_BACKEND=INDUCTOR", "ACCELERATE_USE_CPU=True",
                          "CUDA_VISIBLE_DEVICES=0,1"))
      << "what the job says itself stays";
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 2);
  EXPECT_THAT(said[1], HasSubstr("ranks get, as from accelerate launch: ACCELERATE_MIXED_PRECISION=bf16"));
}

TEST(OtherLaunchers, ReadTheFileOfAccelerate) {
  const std::string text =
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: MULTI_GPU\ndowncast_bf16: 'no'\n"
      "gpu_ids: all\nmachine_rank: 0\nmain_training_function: main\nmixed_precision: 'bf16'\nnum_machines: "
      "2\n"
      "num_processes: 8\nrdzv_backend: static\nsame_network: true\ntpu_env: []\nuse_cpu: false\n";
  const std::string usual = "/home/mia/.cache/huggingface/accelerate/default_config.yaml";
  auto loaded = job("accelerate launch train.py");
  take_launcher(loaded, with({{usual, text}}));
  EXPECT_EQ(loaded.config.cluster.nodes, 2);
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 4);
  EXPECT_THAT(loaded.config.rank.environment, ElementsAre("ACCELERATE_MIXED_PRECISION=bf16"));
  loaded = job("accelerate launch --config_file mine.yaml --mixed_precision no --num_processes 2 train.py");
  take_launcher(loaded, with({{"mine.yaml", text}}));
  EXPECT_EQ(loaded.config.cluster.ranks_per_node, 1);
  EXPECT_THAT(loaded.config.rank.environment, ElementsAre("ACCELERATE_MIXED_PRECISION=no"));
  std::string some = text;
  some.replace(some.find("gpu_ids: all"), 12, "gpu_ids: 0,1");
  loaded = job("accelerate launch --gpu_ids 2,3 --num_machines 1 train.py");
  take_launcher(loaded, with({{usual, some}}));
  EXPECT_THAT(loaded.config.rank.environment, testing::Contains("CUDA_VISIBLE_DEVICES=2,3"));
  EXPECT_THAT(loaded.config.rank.environment, testing::Not(testing::Contains("CUDA_VISIBLE_DEVICES=0,1")));
  const std::string fsdp = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n";
  EXPECT_THAT(refusal("accelerate launch train.py", {}, with({{usual, fsdp}})),
              AllOf(HasSubstr("distributed_type of " + usual), HasSubstr("it is FSDP")));
  const std::string compiled = "distributed_type: NO\ndynamo_config:\n  dynamo_backend: INDUCTOR\n";
  EXPECT_THAT(refusal("accelerate launch train.py", {}, with({{usual, compiled}})),
              HasSubstr("dynamo_config of"));
  EXPECT_THAT(refusal("accelerate launch --config_file gone.yaml train.py"), HasSubstr("gone.yaml"));
}

TEST(OtherLaunchers, OptionsThatCannotBeKeptAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"torchrun --role trainer train.py", "--role trainer"},
      {"torchrun --numa-binding node train.py", "--numa-binding"},
      {"torchrun --signals-to-handle SIGUSR1 train.py", "--signals-to-handle"},
      {"torchrun --nproc-per-node cpu train.py", "--nproc-per-node cpu"},
      {"torchrun --frobnicate train.py", "--frobnicate"},
      {"torchrun --n train.py", "--n"},
      {"torchrun --nnodes two train.py", "--nnodes"},
      {"torchrun --nproc-per-node 2", "no script"},
      {"torchrun --nnodes", "no value"},
      {"accelerate launch --use_fsdp train.py", "--use_fsdp"},
      {"accelerate launch --fsdp_version 2 train.py", "--fsdp_version"},
      {"accelerate launch --use_deepspeed --zero_stage 3 train.py", "--use_deepspeed"},
      {"accelerate launch --mixed_precision fp8 train.py", "--mixed_precision fp8"},
      {"accelerate launch --tpu train.py", "--tpu"},
      {"deepspeed --include localhost:0,1 train.py", "--include"},
      {"deepspeed -i localhost:0,1 train.py", "-i"},
      {"deepspeed --autotuning run train.py", "--autotuning"},
      {"deepspeed --bind_cores_to_rank train.py", "--bind_cores_to_rank"},
  };
  for (const auto& [typed, named] : cases) EXPECT_THAT(refusal(typed), HasSubstr(named)) << typed;
}

TEST(OtherLaunchers, ThoseThatLeaveTheJobAreRefused) {
  for (const char* typed :
       {"srun python3 train.py", "/usr/bin/srun -n1 --mpi=pmix python3 train.py", "sbatch train.sh",
        "salloc -N 2 python3 train.py", "mpirun -n 8 python3 train.py", "mpiexec -np 2 ./a.out",
        "prterun -n 2 ./a.out", "flux run -n 2 ./a.out", "env A=b srun ./x", "timeout 1h srun ./x",
        "numactl -N 0 mpirun ./x", "bash -c 'srun python3 train.py'",
        "bash -lc 'module load cuda && mpirun -n 4 ./x'", "horovodrun -np 4 python3 t.py"})
    EXPECT_THAT(refusal(typed), HasSubstr("cannot be the program of the ranks")) << typed;
  EXPECT_THAT(refusal("srun -N2 --gpus 4 python3 train.py --lr 1"),
              HasSubstr("--command 'python3 train.py --lr 1'?"));
  EXPECT_THAT(refusal("srun train.py"), HasSubstr("--command 'python3 train.py'?"));
  EXPECT_THAT(refusal("mpirun -n 8 ./model"), HasSubstr("--command './model' --set rank.launch=mpi?"));
}

TEST(OtherLaunchers, ProgramsThatStartRanksByThemselvesAreRefused) {
  EXPECT_THAT(refusal("composer -n 8 train.py"), HasSubstr("--command 'python3 train.py'?"));
  EXPECT_THAT(refusal("fabric run train.py --devices 2"), HasSubstr("fabric run cannot be"));
  EXPECT_THAT(refusal("axolotl train c.yml"), HasSubstr("--launcher python"));
  EXPECT_EQ(refusal("axolotl train c.yml --launcher python"), "");
  EXPECT_THAT(refusal("tune run --nproc_per_node=8 full"),
              HasSubstr("tune run --nproc_per_node=8 cannot be"));
  EXPECT_EQ(refusal("tune run full --config c"), "");
  EXPECT_THAT(refusal("llamafactory-cli train c.yaml"), HasSubstr("llamafactory.launcher"));
}

TEST(OtherLaunchers, InAShellTheyAreFoundToo) {
  const char* shell = "bash -c 'source env/bin/activate && torchrun --nproc-per-node 8 train.py'";
  EXPECT_THAT(refusal(shell), HasSubstr("the shell of each rank would start torchrun"));
  EXPECT_EQ(refusal(shell, {{"cluster.ranks_per_node", 1}}), "") << "one on each node may be meant";
  EXPECT_EQ(refusal("bash -c 'echo torchrun; exec python3 train.py'"), "");
  auto loaded = job("bash train.sh --fast");
  const std::string script =
      "#!/bin/bash\n# srun would do\nset -e\nif true; then\n  exec \\\n  torchrun train.py\nfi\n";
  EXPECT_THAT(take_launcher(loaded, with({{"train.sh", script}})),
              ElementsAre(HasSubstr("train.sh has a line that starts torchrun")));
  loaded = job("./train.sh");
  EXPECT_THAT(take_launcher(loaded, with({{"./train.sh", "#!/bin/sh\nsrun ./x\n"}})),
              ElementsAre(HasSubstr("starts srun")));
  EXPECT_THAT(
      take_launcher(loaded, with({{"./train.sh", "#!/bin/sh\necho done # srun\npython3 torchrun.py\n"}})),
      IsEmpty());
}

}  // namespace
}  // namespace holdfast::launcher
