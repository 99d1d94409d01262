// A stand-in for pyxis: the same options, for an image that is a folder. Each task gets the image as its root. With
// sbatch the option puts the batch script into the image, as pyxis does.
#include <slurm/spank.h>

#include "enter_image.h"

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, MOUNTS, WORKDIR, WRITABLE };
static char image[PATH_MAX], mounts[16 * PATH_MAX], workdir[PATH_MAX];
static int writable;

static int take(int option, const char *value, int remote) {
  (void)remote;
  if (option == IMAGE) snprintf(image, sizeof image, "%s", value);
  if (option == MOUNTS) snprintf(mounts, sizeof mounts, "%s", value);
  if (option == WORKDIR) snprintf(workdir, sizeof workdir, "%s", value);
  if (option == WRITABLE) writable = 1;
  return 0;
}

static struct spank_option options[] = {
    {"container-image", "PATH", "the image to use for the container filesystem", 1, IMAGE, take},
    {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "bind mounts inside the container", 1, MOUNTS, take},
    {"container-workdir", "PATH", "working directory inside the container", 1, WORKDIR, take},
    {"container-writable", NULL, "make the container filesystem writable", 0, WRITABLE, take}};

int slurm_spank_init(spank_t sp, int argc, char **argv) {
  (void)argc, (void)argv;
  for (unsigned i = 0; i < sizeof options / sizeof *options; ++i)
    if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS) return -1;
  return 0;
}

int slurm_spank_task_init_privileged(spank_t sp, int argc, char **argv) {
  (void)sp, (void)argc, (void)argv;
  return *image ? enter_image(image, mounts, writable, 1, "") : 0;
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv) {
  (void)sp, (void)argc, (void)argv;
  return *image && *workdir && chdir(workdir) != 0 ? failed("chdir", workdir) : 0;
}
