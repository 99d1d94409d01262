/* A rank that does what it reads: one call of the client for each line of its input, and a line of answer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/holdfast.h"

static enum hf_phase phase_called(const char* name) {
  static const char* const names[] = {"starting",   "restoring", "data",       "forward",   "backward",
                                      "collective", "optimizer", "checkpoint", "finishing", "paused"};
  for (int i = 0; i < 10; ++i)
    if (strcmp(names[i], name) == 0) return (enum hf_phase)i;
  return HF_STARTING;
}

static int sealed;
static void* seal_aside(void* step) {
  sealed = hf_seal(*(const long long*)step);
  return NULL;
}

int main(void) {
  pthread_t aside;
  char line[20000], word[64], text[16384];
  long long a = 0, b = 0, c = 0;
  double x = 0, y = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    text[0] = '\0';
    if (strcmp(line, "open") == 0) {
      printf("%d\n", hf_open());
      continue;
    } else if (sscanf(line, "at %lld %63s", &a, word) == 2) {
      hf_at(a, phase_called(word));
    } else if (sscanf(line, "metrics %lf %lld %lf", &x, &a, &y) == 3) {
      hf_metrics(x, a, y);
    } else if (sscanf(line, "restored %lld %63s", &a, word) == 2) {
      hf_restored(a, word);
    } else if (sscanf(line, "vote %lld %lld %lld %16383[^\n]", &a, &c, &b, text) == 4) {
      hf_vote(a, text, c, b);
    } else if (sscanf(line, "vote_file %lld %16383[^\n]", &a, text) == 2) {
      hf_vote_file(a, text);
    } else if (sscanf(line, "vote_failed %lld %16383[^\n]", &a, text) == 2) {
      hf_vote_failed(a, text);
    } else if (strcmp(line, "orders") == 0) {
      struct hf_order order;
      const int any = hf_orders(&order);
      printf("%d %d %d %d %.0f %s\n", any, order.save, order.stop, order.pause, order.seconds_left,
             order.reason);
      continue;
    } else if (sscanf(line, "outcome %lld", &a) == 1) {
      printf("%d\n", (int)hf_outcome(a));
      continue;
    } else if (sscanf(line, "buffer %63s %lld %16383s", word, &a, text) == 3) {
      void* at = hf_buffer(word, (size_t)a);
      if (at) memset(at, text[0], (size_t)a);
      puts(at ? "ok" : "none");
      continue;
    } else if (sscanf(line, "seal %lld", &a) == 1) {
      printf("%d\n", hf_seal(a));
      continue;
    } else if (sscanf(line, "seal_aside %lld", &b) == 1) {
      if (pthread_create(&aside, NULL, seal_aside, &b) != 0) return 1;
    } else if (strcmp(line, "join") == 0) {
      pthread_join(aside, NULL);
      printf("%d\n", sealed);
      continue;
    } else if (strcmp(line, "sealed") == 0) {
      printf("%lld\n", (long long)hf_sealed());
      continue;
    } else if (sscanf(line, "load %63s", word) == 1) {
      size_t bytes = 0;
      const char* at = hf_load(word, &bytes);
      if (at)
        printf("%zu %c%c\n", bytes, at[0], at[bytes - 1]);
      else
        puts("none");
      continue;
    } else if (strcmp(line, "newest") == 0) {
      printf("%lld\n", (long long)hf_newest());
      continue;
    } else if (sscanf(line, "finished %lld", &a) == 1) {
      hf_finished(a);
    } else if (sscanf(line, "failed %lld %16383[^\n]", &a, text) == 2) {
      hf_failed((int)a, text);
    } else if (strcmp(line, "fork") == 0) {
      fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        struct hf_order order;
        hf_at(99, HF_FORWARD);
        hf_vote(99, "child", 1, 1);
        hf_failed(1, "child");
        exit(hf_open() + hf_orders(&order));
      }
      int status = -1;
      waitpid(child, &status, 0);
      printf("%d\n", status);
      continue;
    } else if (strcmp(line, "close") == 0) {
      hf_close();
    } else if (sscanf(line, "exit %lld", &a) == 1) {
      return (int)a;
    } else {
      printf("what? %s\n", line);
      continue;
    }
    printf("ok\n");
  }
  return 0;
}
