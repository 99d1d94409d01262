// Into an image, for the stand-ins of pyxis and Apptainer: a mount namespace of its own whose root is the image, with
// what both runtimes show of the node, and with what the caller asks for.
#ifndef ENTER_IMAGE_H
#define ENTER_IMAGE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEW_ROOT "/mnt/root"

static int failed(const char *what, const char *on) {
  fprintf(stderr, "enter_image: %s %s: %s\n", what, on, strerror(errno));
  return -1;
}

// Every folder above `path`, and `path` itself as a folder or an empty file.
static int make_place(const char *path, int is_folder) {
  char part[PATH_MAX];
  snprintf(part, sizeof part, "%s", path);
  for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    if (mkdir(part, 0755) != 0 && errno != EEXIST) return failed("mkdir", part);
    *slash = '/';
  }
  if (is_folder) return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : failed("mkdir", path);
  const int file = open(path, O_WRONLY | O_CREAT, 0644);
  return file >= 0 ? close(file) : failed("open", path);
}

// Of `source` on the node, at `target` in the image.
static int bind_mount(const char *source, const char *target) {
  char place[PATH_MAX];
  struct stat facts;
  if (stat(source, &facts) != 0) return failed("stat", source);
  snprintf(place, sizeof place, NEW_ROOT "%s", target);
  if (make_place(place, S_ISDIR(facts.st_mode)) != 0) return -1;
  return mount(source, place, NULL, MS_BIND | MS_REC, NULL) == 0 ? 0 : failed("mount", target);
}

static int add_flags(const char *place, unsigned long flags) {
  struct statvfs now;  // what the mount has already must stay
  if (statvfs(place, &now) != 0) return failed("statvfs", place);
  if (now.f_flag & ST_NOSUID) flags |= MS_NOSUID;
  if (now.f_flag & ST_NODEV) flags |= MS_NODEV;
  if (now.f_flag & ST_NOEXEC) flags |= MS_NOEXEC;
  return mount(NULL, place, NULL, MS_REMOUNT | MS_BIND | flags, NULL) == 0 ? 0 : failed("remount", place);
}

// "SOURCE[:TARGET[:FLAGS]],...": of the flags "ro" counts.
static int bind_listed(const char *list) {
  char *all = strdup(list), *rest = all, *entry;
  while ((entry = strsep(&rest, ","))) {
    if (!*entry) continue;
    const char *source = strsep(&entry, ":"), *target = strsep(&entry, ":");
    if (!target || !*target) target = source;
    if (bind_mount(source, target) != 0) return -1;
    if (entry && strstr(entry, "ro")) {
      char place[PATH_MAX];
      snprintf(place, sizeof place, NEW_ROOT "%s", target);
      if (add_flags(place, MS_RDONLY) != 0) return -1;
    }
  }
  free(all);
  return 0;
}

// `strict`: as enroot, nothing in /dev is executed, and /tmp is empty. Needs CAP_SYS_ADMIN over the mounts.
static int change_root(const char *image, const char *mounts, int writable, int strict, const char *overlay_options) {
  char options[3 * PATH_MAX];
  if (unshare(CLONE_NEWNS) != 0) return failed("unshare", "mounts");
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return failed("make private", "/");
  if (mount("image", "/mnt", "tmpfs", 0, "mode=755") != 0) return failed("mount", "/mnt");
  if (mkdir("/mnt/upper", 0755) != 0 || mkdir("/mnt/work", 0755) != 0 || mkdir(NEW_ROOT, 0755) != 0)
    return failed("mkdir", "/mnt");
  snprintf(options, sizeof options, "lowerdir=%s,upperdir=/mnt/upper,workdir=/mnt/work%s", image, overlay_options);
  if (mount("image", NEW_ROOT, "overlay", 0, options) != 0) return failed("cannot use the image", image);
  const char *shown[] = {"/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"};
  for (unsigned i = 0; i < sizeof shown / sizeof *shown; ++i)
    if (access(shown[i], F_OK) == 0 && bind_mount(shown[i], shown[i]) != 0) return -1;
  if (strict) {
    if (add_flags(NEW_ROOT "/dev", MS_NOEXEC | MS_NOSUID) != 0) return -1;
    if (add_flags(NEW_ROOT "/dev/shm", MS_NOEXEC | MS_NOSUID | MS_NODEV) != 0) return -1;
    if (make_place(NEW_ROOT "/tmp", 1) != 0) return -1;
    if (mount("tmp", NEW_ROOT "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0) return failed("mount", "/tmp");
  } else if (bind_mount("/tmp", "/tmp") != 0) {
    return -1;
  }
  if (bind_listed(mounts) != 0) return -1;
  if (!writable && add_flags(NEW_ROOT, MS_RDONLY) != 0) return -1;
  if (chdir(NEW_ROOT) != 0) return failed("chdir", NEW_ROOT);
  if (syscall(SYS_pivot_root, ".", ".") != 0) return failed("pivot_root", NEW_ROOT);
  if (umount2(".", MNT_DETACH) != 0) return failed("umount", "the node's root");
  return chdir("/") == 0 ? 0 : failed("chdir", "/");
}

static int enter_image(const char *image, const char *mounts, int writable, int strict, const char *overlay_options) {
  const mode_t mask = umask(022);  // that of the job may close the folders that are made here
  const int result = change_root(image, mounts, writable, strict, overlay_options);
  umask(mask);
  return result;
}

#endif
