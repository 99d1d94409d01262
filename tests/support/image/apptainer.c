// A stand-in for `apptainer exec [--bind=LIST] [--pwd=DIR] [--writable-tmpfs] [--nv] IMAGE COMMAND...`: an image that is
// a folder, entered without privileges, in a user namespace. As Apptainer does, it waits for the command and passes
// signals on to it.
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "enter_image.h"

static pid_t command;

static void pass_on(int signal) {
  if (command > 0) kill(command, signal);
}

static int write_text(const char *path, const char *text) {
  const int file = open(path, O_WRONLY);
  if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) return failed("write", path);
  return close(file);
}

// In a new user namespace: `inside` there is `outside` here.
static int map_user(uid_t inside, uid_t outside, gid_t group_inside, gid_t group_outside) {
  char text[64];
  if (unshare(CLONE_NEWUSER) != 0) return failed("unshare", "users");
  snprintf(text, sizeof text, "%u %u 1", inside, outside);
  if (write_text("/proc/self/uid_map", text) != 0 || write_text("/proc/self/setgroups", "deny") != 0) return -1;
  snprintf(text, sizeof text, "%u %u 1", group_inside, group_outside);
  return write_text("/proc/self/gid_map", text);
}

int main(int argc, char **argv) {
  const char *mounts = "", *workdir = "/";
  int writable = 0, at = 2;
  if (argc < 4 || strcmp(argv[1], "exec") != 0) return fprintf(stderr, "apptainer: exec IMAGE COMMAND\n"), 255;
  for (; at < argc && strncmp(argv[at], "--", 2) == 0; ++at) {
    if (strncmp(argv[at], "--bind=", 7) == 0)
      mounts = argv[at] + 7;
    else if (strncmp(argv[at], "--pwd=", 6) == 0)
      workdir = argv[at] + 6;
    else if (strcmp(argv[at], "--writable-tmpfs") == 0)
      writable = 1;
    else if (strcmp(argv[at], "--nv") != 0)
      return fprintf(stderr, "apptainer: unknown option %s\n", argv[at]), 255;
  }
  if (at + 1 >= argc) return fprintf(stderr, "apptainer: no image or no command\n"), 255;
  const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGCONT};
  for (unsigned i = 0; i < sizeof signals / sizeof *signals; ++i) signal(signals[i], pass_on);
  command = fork();
  if (command == 0) {
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; ++i) signal(signals[i], SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const uid_t user = getuid();
    const gid_t group = getgid();
    // Root of a namespace may mount; the command is the user again.
    if (map_user(0, user, 0, group) != 0 || enter_image(argv[at], mounts, writable, 0, ",userxattr") != 0) _exit(255);
    if (map_user(user, 0, group, 0) != 0 || chdir(workdir) != 0) _exit(255);
    execvp(argv[at + 1], argv + at + 1);
    failed("exec", argv[at + 1]);
    _exit(255);
  }
  int status = 0;
  while (waitpid(command, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
