#include "launcher/job/container.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/config/scratch.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using config::ContainerRuntime;
using test::refusal_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class InImage : public ::testing::Test {
 protected:
  InImage() {
    config.run.dir = folder("runs/a").string();
    config.container.image = "/images/pytorch.sqsh";
    request.job = 1;
    request.nodes = {"dgx001"};
    request.command = {program.string(), "agent", config.run.dir};
  }
  fs::path folder(const std::string& name) const {
    fs::create_directories(scratch.path() / name);
    return scratch.path() / name;
  }
  std::string file(const std::string& name) const {
    const fs::path path = scratch.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path.string();
  }
  std::string same(const std::string& name) const {
    return (scratch.path() / name).string() + ":" + (scratch.path() / name).string();
  }
  std::vector<std::string> mounts() const { return mounts_of(config, {}, {config.run.dir}, program); }

  test::Scratch scratch;
  fs::path program = file("apps/holdfast/bin/holdfast");
  config::RunConfig config;
  slurm::StepRequest request;
};

TEST_F(InImage, what_agents_need_of_the_node_is_mounted) {
  config.data.tokens = file("data/tokens.bin");
  EXPECT_THAT(mounts(),
              ElementsAre(same("apps/holdfast"), same("runs/a"), "/dev/shm:/dev/shm", same("data")));
  config.container.mounts = {"/home/me:/workspace:ro"};
  EXPECT_EQ(mounts().back(), "/home/me:/workspace:ro");
}

TEST_F(InImage, each_folder_is_mounted_once_and_no_absent_one) {
  config.data.mixture = {file("runs/tokens.bin") + " 1", file("runs/b/tokens.bin") + " 1"};
  config.supervise.ledger = (scratch.path() / "no ledger").string();
  EXPECT_THAT(mounts(), ElementsAre(same("apps/holdfast"), "/dev/shm:/dev/shm", same("runs")));
}

TEST_F(InImage, what_links_name_comes_along) {
  // As in Hugging Face's cache: a snapshot's files are links to blobs.
  file("hub/blobs/1234");
  fs::create_symlink("../../blobs/1234", folder("hub/snapshots/main") / "model.safetensors");
  config.model.weights = (scratch.path() / "hub/snapshots/main").string();
  file("far/tokens.bin");
  fs::create_symlink(scratch.path() / "far/tokens.bin", folder("data") / "tokens.bin");
  config.data.tokens = (scratch.path() / "data/tokens.bin").string();
  EXPECT_THAT(mounts(), ElementsAre(same("apps/holdfast"), same("runs/a"), "/dev/shm:/dev/shm", same("data"),
                                    same("far"), same("hub/snapshots/main"), same("hub/blobs")));
}

TEST_F(InImage, the_lease_on_a_checkpoint_can_be_written) {
  config.run.resume = (folder("runs/b/checkpoints/step-00000010") / "").string();
  EXPECT_THAT(mounts(), ElementsAre(same("apps/holdfast"), same("runs/a"), "/dev/shm:/dev/shm",
                                    same("runs/b/checkpoints")));
}

TEST_F(InImage, pyxis_gets_options_of_srun) {
  config.container.writable = true;
  config.container.extra = {"--no-container-mount-home"};
  run_in_image(request, config, {"/a:/a", "/b:/c:ro"});
  EXPECT_THAT(request.options,
              ElementsAre("--container-image=/images/pytorch.sqsh", "--container-mounts=/a:/a,/b:/c:ro",
                          "--container-workdir=" + config.run.dir, "--container-writable",
                          "--no-container-mount-home"));
  EXPECT_THAT(request.command, ElementsAre(program.string(), "agent", config.run.dir));
}

TEST_F(InImage, apptainer_starts_the_agent) {
  config.container.runtime = ContainerRuntime::apptainer;
  config.container.workdir = "/workspace";
  config.container.extra = {"--no-home"};
  request.gpus = 8;
  run_in_image(request, config, {"/a:/a", "/b:/c:ro"});
  EXPECT_THAT(request.options, IsEmpty());
  EXPECT_THAT(request.command,
              ElementsAre("apptainer", "exec", "--bind=/a:/a,/b:/c:ro", "--pwd=/workspace", "--nv",
                          "--no-home", "/images/pytorch.sqsh", program.string(), "agent", config.run.dir));
}

TEST_F(InImage, without_an_image_nothing_changes) {
  config.container = {};
  run_in_image(request, config, mounts());
  EXPECT_THAT(request.options, IsEmpty());
  EXPECT_EQ(request.command.front(), program.string());
  EXPECT_THAT(check_image(config, {config.run.dir}, "/usr/bin/holdfast"), IsEmpty());
}

TEST_F(InImage, sbatchs_flags_become_settings) {
  config.container = {};
  config.slurm.extra = {"--exclude",
                        "dgx004",
                        "--container-image",
                        "nvcr.io#nvidia/pytorch:25.05-py3",
                        "--container-mounts=/a:/a,/b:/c",
                        "--container-writable",
                        "--container-workdir",
                        "/w",
                        "--no-container-mount-home",
                        "--container-name=x"};
  take_container_options(config);
  EXPECT_THAT(config.slurm.extra, ElementsAre("--exclude=dgx004"));
  EXPECT_EQ(config.container.image, "nvcr.io#nvidia/pytorch:25.05-py3");
  EXPECT_THAT(config.container.mounts, ElementsAre("/a:/a", "/b:/c"));
  EXPECT_TRUE(config.container.writable);
  EXPECT_EQ(config.container.workdir, "/w");
  EXPECT_THAT(config.container.extra, ElementsAre("--no-container-mount-home", "--container-name=x"));
  config.container.runtime = ContainerRuntime::apptainer;
  config.slurm.extra = {"--container-image=x"};
  EXPECT_THAT(refusal_of([&] { take_container_options(config); }).text,
              HasSubstr("it is an option of pyxis"));
}

TEST_F(InImage, an_installation_that_would_hide_the_image_is_refused) {
  const RunDir run{config.run.dir};
  EXPECT_THAT(refusal_of([&] { check_image(config, run, "/usr/bin/holdfast"); }).text,
              HasSubstr("/usr would hide the image's own /usr"));
  EXPECT_THAT(check_image(config, run, program), Contains(HasSubstr("no bundle")));
  file("apps/holdfast/share/holdfast/bundle");
  EXPECT_THAT(check_image(config, run, program), ElementsAre(HasSubstr("is not on this machine")));
  config.container.image = "ubuntu:24.04";
  EXPECT_THAT(check_image(config, run, program), IsEmpty());
  config.slurm.bundle = "/shared/holdfast.tar.gz";  // unpacked on each node
  EXPECT_THAT(check_image(config, run, "/usr/bin/holdfast"), IsEmpty());
}

TEST_F(InImage, a_path_that_mounts_cannot_name_is_refused) {
  const RunDir run{"/runs/a,b"};
  EXPECT_THAT(refusal_of([&] { check_image(config, run, program); }).text, HasSubstr("a comma or a colon"));
  config.data.tokens = "/data/a:b";
  EXPECT_THAT(refusal_of([&] { check_image(config, {"/runs/a"}, program); }).text,
              HasSubstr("a token file cannot be mounted into the image: /data/a:b"));
}

TEST_F(InImage, of_two_agents_one_may_be_stuck) {
  file("apps/holdfast/share/holdfast/bundle");
  config.container.image = "ubuntu:24.04";
  config.cluster.nodes = 1;
  config.cluster.spares = 1;
  EXPECT_THAT(check_image(config, {config.run.dir}, program), ElementsAre(HasSubstr("of two agents")));
}

}  // namespace
}  // namespace holdfast::launcher
