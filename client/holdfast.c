/* The calls of a program, and the thread that speaks for it to the agent of its node.
 *
 * hf_at() and hf_metrics() write numbers into `slot`, without a lock; the thread sends them every 100 ms. All
 * other calls write into `state`, under `lock`, and wake the thread up. What has to reach the agent is a
 * notice. On each new connection the thread says who this is and what `slot` holds, then which orders the
 * program has taken, then every notice that has had no answer. What the agent says, take() writes into
 * `state`, where the program's next call finds it.
 * The thread alone uses the connection, and never waits with the lock held. Without an agent, in a child of
 * fork() and where another process speaks for the rank, `on` is 0 and no call does anything. */
#include "holdfast.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "buffers.h"
#include "files.h"
#include "json.h"
#include "link.h"
#include "sha512.h"
#include "trainer.h"

enum {
  stall_ms = 30000, /* hf_close() waits so long for files of which nothing is read */
  beat_ms = 100,
  redial_ms = 100,
  close_ms = 2000,
  copy_ms = 60000, /* a call waits so long for a copy of buffers */
  text_bytes = 4096,
  outcomes_kept = 64,
  message_bytes = 6 * text_bytes + 512
};

struct notice {
  struct notice* next;
  enum hfc_kind kind;
  int64_t step; /* of a vote, else 0 */
  int sent;     /* on this connection */
  char* line;
};

/* Written by the program without a lock, read by the thread. */
static struct {
  int64_t step, first_step, compute_us, moves;
  int phase;
  pthread_t speaker; /* the thread that called hf_at() last */
  unsigned sequence; /* of what follows: odd while it is written */
  int64_t metrics_step, tokens;
  double loss;
} slot;

/* The speaker waits for what another process or thread does. */
static struct {
  int on;
  int64_t polls;
} waiting;

static int on;                     /* an agent supervises this process, and it is not a fork */
static int asked;                  /* bits of what is ordered: a fast look for hf_orders() */
static volatile int fd_shown = -1; /* of the connection: a child of fork() closes it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* of the monotonic clock */
static struct {                /* under `lock` */
  struct notice* notices;      /* by kind, each kind in the order of the calls */
  int taken;                   /* the newest HFC_LAST */
  int heard_restored;
  int connected;
  char why_not[256]; /* it is not connected */
  struct hfc_listener listener;
  int stop, save, pause;
  int took, said_took;        /* bits of orders that the program has taken; those said on this connection */
  int heard_save, heard_stop; /* the newest drain, which a new agent repeats */
  char heard_reason[256];
  int64_t until;
  struct {
    int64_t step;
    enum hf_outcome outcome;
  } outcomes[outcomes_kept];
  int next_outcome;
  int closing, ended;
} state;

/* A vote whose files are to be read first. */
struct reading {
  struct reading* next;
  int64_t step;
  char* folder;
  struct hfc_name* names;
};
static struct {           /* under `lock` but for `bytes` */
  struct hfc_name* named; /* of steps that are not voted on yet */
  struct hfc_name** end;  /* of these */
  struct reading* first;  /* it may be in work */
  int runs;               /* the thread that reads */
  int64_t bytes;          /* that it has read */
} reader = {.end = &reader.named};

static struct hfc_place place;
static int says_state; /* the trainer does; of another program's state the client assumes what it can */
static int64_t newest = -1, sealed_step = -1;
static char sealed_level[16];
static int wake = -1;
static pthread_t thread;
static int opened, forked;
static int runs; /* the thread: hf_close() awaits its end */

enum { ask_save = 1, ask_stop = 2, ask_pause = 4 };

static int64_t monotonic_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Also for a wait on `changed`. */
static struct timespec moment_in(int64_t ms) {
  const int64_t at = monotonic_ms() + ms;
  return (struct timespec){at / 1000, at % 1000 * 1000000};
}

static void wake_up(void) {
  const uint64_t one = 1;
  if (wake >= 0 && write(wake, &one, sizeof one) < 0) return; /* it is awake */
}

/* Under the lock. */
static void forget(struct notice** at) {
  struct notice* n = *at;
  *at = n->next;
  free(n->line);
  free(n);
}

/* Under the lock: those of a kind and, of votes, of a step. */
static void forget_all(enum hfc_kind kind, int64_t step) {
  for (struct notice** at = &state.notices; *at;)
    if ((*at)->kind == kind && (*at)->step == step)
      forget(at);
    else
      at = &(*at)->next;
}

void hfc_say(enum hfc_kind kind, int64_t step, const char* line) {
  if (!__atomic_load_n(&on, __ATOMIC_RELAXED)) return;
  struct notice* n = calloc(1, sizeof *n);
  if (!n || !(n->line = strdup(line))) {
    free(n);
    return;
  }
  n->kind = kind;
  n->step = step;
  pthread_mutex_lock(&lock);
  if (kind == HFC_SEALED || kind == HFC_LAST) forget_all(kind, step);
  if (kind == HFC_LAST) state.taken = 0;
  struct notice** at = &state.notices;
  while (*at && (*at)->kind <= kind) at = &(*at)->next;
  n->next = *at;
  *at = n;
  if ((kind == HFC_RESTORED && state.heard_restored) || (kind == HFC_ONCE && !state.connected)) forget(at);
  if (kind == HFC_RESTORED) state.heard_restored = 1;
  pthread_mutex_unlock(&lock);
  wake_up();
}

/* --- the thread --- */

/* "1.5", whatever the locale; JSON has no numbers that are not finite. */
static void number_text(double value, char out[32]) {
  if (!isfinite(value)) {
    strcpy(out, "null");
    return;
  }
  snprintf(out, 32, "%.17g", value);
  for (char* c = out; *c; ++c)
    if (*c == ',') *c = '.';
}

static const char* phase_name(int phase) {
  static const char* const names[] = {"starting",   "restoring", "data",       "forward",   "backward",
                                      "collective", "optimizer", "checkpoint", "finishing", "paused"};
  return names[phase < 0 || phase > HF_PAUSED ? HF_STARTING : phase];
}

static int say_hello(struct hfc_link* link) {
  char name[6 * 256 + 3], text[message_bytes];
  hfc_json_quote(place.node, 256, name);
  snprintf(
      text, sizeof text,
      "{\"m\":\"hello\",\"role\":\"rank\",\"node\":%s,\"term\":%d,\"attempt\":%d,\"rank\":%d,\"pid\":%d}",
      name, place.term, place.who.attempt, place.who.rank, (int)getpid());
  return hfc_send(link, text);
}

static int say_progress(struct hfc_link* link) {
  char text[512];
  /* As our own trainer says it that waits for storage: no hang, nor are those that wait for this rank hung,
   * and the leader learns nothing from how long it takes. */
  const int phase = __atomic_load_n(&waiting.on, __ATOMIC_RELAXED)
                        ? HF_FINISHING
                        : __atomic_load_n(&slot.phase, __ATOMIC_RELAXED);
  snprintf(
      text, sizeof text,
      "{\"m\":\"progress\",\"rank\":%d,\"attempt\":%d,\"step\":%lld,\"phase\":\"%s\",\"compute_us\":%lld,"
      "\"moves\":%lld}",
      place.who.rank, place.who.attempt, (long long)__atomic_load_n(&slot.step, __ATOMIC_RELAXED),
      phase_name(phase), (long long)__atomic_load_n(&slot.compute_us, __ATOMIC_RELAXED),
      (long long)(__atomic_load_n(&slot.moves, __ATOMIC_RELAXED) +
                  __atomic_load_n(&waiting.polls, __ATOMIC_RELAXED)));
  return hfc_send(link, text);
}

/* Those of the newest step, once. */
static int say_metrics(struct hfc_link* link, unsigned* told) {
  unsigned before, after;
  int64_t step, tokens;
  double loss;
  int tries = 0;
  do {
    before = __atomic_load_n(&slot.sequence, __ATOMIC_ACQUIRE);
    __atomic_load(&slot.loss, &loss, __ATOMIC_RELAXED);
    step = __atomic_load_n(&slot.metrics_step, __ATOMIC_RELAXED);
    tokens = __atomic_load_n(&slot.tokens, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    after = __atomic_load_n(&slot.sequence, __ATOMIC_RELAXED);
  } while ((before != after || before % 2) && ++tries < 100);
  if (before == *told || before != after || before % 2 || step < 0) return 1;
  *told = before;
  char number[32], text[256];
  number_text(loss, number);
  snprintf(text, sizeof text,
           "{\"m\":\"metrics\",\"rank\":%d,\"attempt\":%d,\"step\":%lld,\"loss\":%s,\"tokens\":%lld}",
           place.who.rank, place.who.attempt, (long long)step, number, (long long)tokens);
  return hfc_send(link, text);
}

/* A program that steps without a word about its state has one: that of its first step. */
static void assume_restored(void) {
  const int64_t step = __atomic_load_n(&slot.first_step, __ATOMIC_RELAXED);
  pthread_mutex_lock(&lock);
  const int known = says_state || state.heard_restored;
  pthread_mutex_unlock(&lock);
  if (!known && step >= 0) hf_restored(step, step == 0 ? "fresh" : "shared");
}

/* Under the lock: the first that has not been sent on this connection. */
static struct notice** unsent(void) {
  struct notice** at = &state.notices;
  while (*at && (*at)->sent) at = &(*at)->next;
  return at;
}

static int say_notices(struct hfc_link* link) {
  for (;;) {
    char* line = NULL;
    int last = 0;
    pthread_mutex_lock(&lock);
    struct notice **at = unsent(), *n = *at;
    if (n) {
      n->sent = 1;
      last = n->kind == HFC_LAST;
      line = strdup(n->line);
      if (n->kind == HFC_ONCE) forget(at);
    }
    pthread_mutex_unlock(&lock);
    if (!n) return 1;
    /* The agent is to know how far the rank has come when it reads its last word. */
    const int sent = line && (!last || say_progress(link)) && hfc_send(link, line);
    free(line);
    pthread_cond_broadcast(&changed);
    if (!sent) return 0;
  }
}

/* The program has taken these orders. */
static int say_taken(struct hfc_link* link) {
  static const struct {
    int bit;
    const char* name;
  } orders[] = {{ask_save, "save"}, {ask_stop, "stop"}, {ask_pause, "pause"}};
  char text[128];
  pthread_mutex_lock(&lock);
  const int news = state.took & ~state.said_took;
  state.said_took |= news;
  pthread_mutex_unlock(&lock);
  for (size_t i = 0; i < sizeof orders / sizeof orders[0]; ++i) {
    if (!(news & orders[i].bit)) continue;
    snprintf(text, sizeof text, "{\"m\":\"heard\",\"rank\":%d,\"attempt\":%d,\"what\":\"%s\"}",
             place.who.rank, place.who.attempt, orders[i].name);
    if (!hfc_send(link, text)) return 0;
  }
  return 1;
}

static void forget_sent(void) {
  pthread_mutex_lock(&lock);
  state.said_took = 0;
  for (struct notice* n = state.notices; n; n = n->next) n->sent = 0;
  pthread_mutex_unlock(&lock);
}

static void take_outcome(const char* line, size_t length) {
  int64_t step, attempt;
  int durable;
  if (!hfc_json_integer(line, length, "step", &step) || !hfc_json_bool(line, length, "durable", &durable) ||
      !hfc_json_integer(line, length, "attempt", &attempt) || attempt != place.who.attempt)
    return;
  forget_all(HFC_VOTE, step);
  state.outcomes[state.next_outcome].step = step;
  state.outcomes[state.next_outcome].outcome = durable ? HF_DURABLE : HF_DROPPED;
  state.next_outcome = (state.next_outcome + 1) % outcomes_kept;
}

static void forget_taken(int bit) {
  state.took &= ~bit;
  state.said_took &= ~bit;
}

/* A new agent repeats the order, and after one to stop others change nothing. */
static void take_drain(const char* line, size_t length) {
  int stop;
  char reason[256];
  int64_t until;
  if (!hfc_json_bool(line, length, "stop", &stop)) return;
  hfc_json_text(line, length, "reason", reason, sizeof reason);
  if (!hfc_json_integer(line, length, "until", &until)) until = 0;
  const int same = state.heard_save && !stop && strcmp(reason, state.heard_reason) == 0;
  if (state.heard_stop || same) return;
  state.heard_save = 1;
  state.heard_stop = state.stop = stop;
  state.save = 1;
  forget_taken(ask_save);
  state.until = until;
  strcpy(state.heard_reason, reason);
}

/* Another process speaks for the rank: of the calls of this one nothing is left, as without an agent. */
static void be_mute(const char* line, size_t length) {
  char why[1024];
  __atomic_store_n(&on, 0, __ATOMIC_RELAXED);
  state.save = state.stop = state.pause = 0;
  while (state.notices) forget(&state.notices);
  state.closing = 1;
  if (hfc_json_text(line, length, "why", why, sizeof why) && *why) fprintf(stderr, "holdfast: %s\n", why);
}

static void take(const char* line, size_t length) {
  char name[64];
  int on_hold;
  if (!hfc_json_text(line, length, "m", name, sizeof name)) return;
  pthread_mutex_lock(&lock);
  if (state.listener.hear) state.listener.hear(state.listener.self, line, length);
  if (strcmp(name, "commit_outcome") == 0)
    take_outcome(line, length);
  else if (strcmp(name, "drain") == 0)
    take_drain(line, length);
  else if (strcmp(name, "pause") == 0 && hfc_json_bool(line, length, "on", &on_hold)) {
    state.pause = on_hold;
    if (!on_hold) forget_taken(ask_pause);
  } else if (strcmp(name, "not_speaker") == 0)
    be_mute(line, length);
  else if (strcmp(name, "taken") == 0)
    state.taken = 1;
  const int bits = (state.save ? ask_save : 0) | (state.stop ? ask_stop : 0) | (state.pause ? ask_pause : 0);
  __atomic_store_n(&asked, bits, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  pthread_cond_broadcast(&changed);
}

static void set_connected(int is) {
  pthread_mutex_lock(&lock);
  state.connected = is;
  pthread_mutex_unlock(&lock);
  pthread_cond_broadcast(&changed);
}

static int closing(void) {
  pthread_mutex_lock(&lock);
  const int is = state.closing;
  pthread_mutex_unlock(&lock);
  return is;
}

/* At most `ms`, until there is something to read or to say. */
static void rest(int fd, int64_t ms) {
  struct pollfd p[2] = {{wake, POLLIN, 0}, {fd, POLLIN, 0}};
  uint64_t count;
  if (ms > 0 && poll(p, fd < 0 ? 1 : 2, (int)ms) > 0 && p[0].revents && read(wake, &count, sizeof count) < 0)
    return;
}

static void talk(struct hfc_link* link) {
  unsigned told = 0;
  int64_t next = 0;
  forget_sent();
  if (!say_hello(link)) return;
  set_connected(1);
  while (!closing()) {
    const char* line;
    size_t length;
    int there;
    if (monotonic_ms() >= next) {
      next = monotonic_ms() + beat_ms;
      assume_restored();
      if (!say_progress(link) || !say_metrics(link, &told)) return;
    }
    if (!say_taken(link) || !say_notices(link) || !hfc_read(link)) return;
    while ((there = hfc_next(link, &line, &length)) > 0) take(line, length);
    if (there < 0) return;
    rest(link->fd, next - monotonic_ms());
  }
}

/* A run whose clients are of another version should show it, once for each process. */
static void cannot_connect(const char* why) {
  static int done;
  pthread_mutex_lock(&lock);
  snprintf(state.why_not, sizeof state.why_not, "%s", why);
  pthread_mutex_unlock(&lock);
  if (done || strstr(why, "version") == NULL) return;
  done = 1;
  fprintf(stderr,
          "holdfast: this rank cannot speak to its agent (%s). Install the client of the agent's release?\n",
          why);
}

static void* serve(void* unused) {
  (void)unused;
  struct hfc_link link = {.fd = -1};
  char why[256];
  while (!closing()) {
    if (hfc_connect(&link, &place.who, &fd_shown, why, sizeof why))
      talk(&link);
    else
      cannot_connect(why);
    set_connected(0);
    fd_shown = -1;
    hfc_disconnect(&link);
    if (!closing()) rest(-1, redial_ms);
  }
  pthread_mutex_lock(&lock);
  state.ended = 1;
  pthread_mutex_unlock(&lock);
  pthread_cond_broadcast(&changed);
  return NULL;
}

/* --- the program's calls --- */

static void in_child(void) {
  forked = 1;
  runs = 0;
  __atomic_store_n(&on, 0, __ATOMIC_RELAXED);
  if (fd_shown >= 0) close(fd_shown);
  if (wake >= 0) close(wake);
  fd_shown = wake = -1;
}

static int number_from(const char* name, int* out) {
  const char* text = getenv(name);
  char* end;
  if (!text || !*text) return 0;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (errno || *end || value < 0 || value > INT32_MAX) return 0;
  *out = (int)value;
  return 1;
}

/* 0: there is no agent. */
static int read_place(void) {
  const char *path = getenv("HOLDFAST_AGENT_SOCKET"), *key = getenv("HOLDFAST_KEY_FILE"), *steps;
  char text[65] = "";
  if (!path || !*path) return 0;
  if (!key || strlen(path) >= sizeof place.who.socket || !number_from("HOLDFAST_RANK", &place.who.rank) ||
      !number_from("HOLDFAST_ATTEMPT", &place.who.attempt) || !number_from("HOLDFAST_TERM", &place.term)) {
    fprintf(stderr,
            "holdfast: the environment of this rank is incomplete (HOLDFAST_KEY_FILE, HOLDFAST_RANK, "
            "HOLDFAST_ATTEMPT, HOLDFAST_TERM). Is its agent of an older release?\n");
    return 0;
  }
  FILE* file = fopen(key, "re");
  const int whole = file && fgets(text, sizeof text, file) && hfc_from_hex(text, strlen(text), place.who.key);
  if (file) fclose(file);
  if (!whole) {
    fprintf(stderr, "holdfast: the key of this rank cannot be read (%s). Does a container hide /dev/shm?\n",
            key);
    return 0;
  }
  strcpy(place.who.socket, path);
  snprintf(place.node, sizeof place.node, "%s", getenv("HOLDFAST_NODE") ? getenv("HOLDFAST_NODE") : "");
  steps = getenv("HOLDFAST_DURABLE_STEPS");
  newest = steps && *steps >= '0' && *steps <= '9' ? strtoll(steps, NULL, 10) : -1;
  return 1;
}

/* Only where the speaker waits: otherwise what it does is still what the rank does. */
static void awaited(int waits) {
  const int speaks = pthread_equal(pthread_self(), __atomic_load_n(&slot.speaker, __ATOMIC_RELAXED));
  if (waits && speaks) __atomic_fetch_add(&waiting.polls, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&waiting.on, waits && speaks, __ATOMIC_RELAXED);
}

/* After read_place(). */
static void open_buffers(void) {
  const char *folder = getenv("HOLDFAST_BUFFERS"), *limit = getenv("HOLDFAST_BUFFERS_LIMIT"),
             *copied = getenv("HOLDFAST_BUFFERS_COPIED"), *sealed = getenv("HOLDFAST_SEALED");
  struct hfc_place_of_buffers at = {.folder = folder ? folder : "",
                                    .limit = limit ? strtoll(limit, NULL, 10) : 0,
                                    .attempt = place.who.attempt,
                                    .sealed_step = -1,
                                    .waits = awaited,
                                    .copied = copied && strcmp(copied, "1") == 0,
                                    .patience_ms = copy_ms};
  long long step = -1;
  number_from("HOLDFAST_WORLD", &at.world);
  if (sealed && sscanf(sealed, "%lld %d %15s", &step, &at.sealed_attempt, sealed_level) == 3)
    at.sealed_step = sealed_step = step;
  hfc_buffers_open(&at);
}

/* For the whole process, once. */
static void prepare_process(void) {
  static int done;
  pthread_condattr_t monotonic;
  if (done) return;
  done = 1;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_atfork(NULL, NULL, in_child);
  atexit(hf_close);
}

/* 0: there is no thread. */
static int begin(struct hfc_listener listener) {
  sigset_t all, before;
  prepare_process();
  while (state.notices) forget(&state.notices);
  memset(&state, 0, sizeof state);
  state.listener = listener;
  strcpy(state.why_not, "no connection yet");
  for (int i = 0; i < outcomes_kept; ++i) state.outcomes[i].step = -1;
  memset(&slot, 0, sizeof slot);
  slot.step = slot.first_step = slot.metrics_step = -1;
  __atomic_store_n(&asked, 0, __ATOMIC_RELAXED);
  if (wake < 0) wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return 0;
  /* Signals are for the program's threads. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  __atomic_store_n(&on, 1, __ATOMIC_RELAXED); /* the thread may learn at once that another process speaks */
  runs = pthread_create(&thread, NULL, serve, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!runs) __atomic_store_n(&on, 0, __ATOMIC_RELAXED);
  return runs;
}

int hf_open_abi(int abi) {
  if (opened) return __atomic_load_n(&on, __ATOMIC_RELAXED);
  if (forked) return 0;
  if (abi > HF_ABI) {
    fprintf(stderr,
            "holdfast: this library has version %d of its interface, and the program was built with %d\n",
            HF_ABI, abi);
    return 0;
  }
  opened = 1;
  if (!read_place()) return 0;
  open_buffers();
  return begin((struct hfc_listener){NULL, NULL});
}

int hfc_open(const struct hfc_place* at, struct hfc_listener listener) {
  if (runs || forked || (state.closing && !state.ended)) return 0;
  opened = says_state = 1;
  place = *at;
  return begin(listener);
}

static int is_on(void) { return __atomic_load_n(&on, __ATOMIC_RELAXED); }

/* Under the lock: something that the agent would miss has not reached it. */
static int waits(void) {
  if (*unsent()) return 1;
  for (struct notice* n = state.notices; n; n = n->next)
    if (n->kind == HFC_LAST) return !state.taken;
  return 0;
}

/* While it reads on. */
static void await_reader(void) {
  int64_t seen = -1, since = 0;
  pthread_mutex_lock(&lock);
  while (reader.first) {
    const int64_t bytes = __atomic_load_n(&reader.bytes, __ATOMIC_RELAXED);
    if (bytes != seen) {
      seen = bytes;
      since = monotonic_ms();
      awaited(1);
    }
    if (monotonic_ms() - since >= stall_ms) break;
    const struct timespec moment = moment_in(1000);
    pthread_cond_timedwait(&changed, &lock, &moment);
  }
  pthread_mutex_unlock(&lock);
  if (seen >= 0) awaited(0);
}

void hf_close(void) {
  if (!runs) return;
  runs = 0;
  __atomic_store_n(&slot.speaker, pthread_self(), __ATOMIC_RELAXED);
  if (is_on()) await_reader();
  const struct timespec limit = moment_in(close_ms);
  wake_up();
  pthread_mutex_lock(&lock);
  while (waits() && pthread_cond_timedwait(&changed, &lock, &limit) != ETIMEDOUT) continue;
  state.closing = 1;
  pthread_mutex_unlock(&lock);
  wake_up();
  pthread_mutex_lock(&lock);
  while (!state.ended && pthread_cond_timedwait(&changed, &lock, &limit) != ETIMEDOUT) continue;
  const int ended = state.ended;
  state.listener.hear = NULL;
  pthread_mutex_unlock(&lock);
  if (ended)
    pthread_join(thread, NULL);
  else
    pthread_detach(thread);
  __atomic_store_n(&on, 0, __ATOMIC_RELAXED);
}

void hf_at(int64_t step, enum hf_phase phase) {
  if (!is_on()) return;
  if (step < -1) step = -1;
  if (step >= 0 && slot.first_step < 0) __atomic_store_n(&slot.first_step, step, __ATOMIC_RELAXED);
  __atomic_store_n(&slot.step, step, __ATOMIC_RELAXED);
  __atomic_store_n(&slot.phase, (int)phase, __ATOMIC_RELAXED);
  __atomic_store_n(&slot.moves, slot.moves + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&slot.speaker, pthread_self(), __ATOMIC_RELAXED);
}

void hf_metrics(double loss, int64_t tokens, double compute_s) {
  if (!is_on()) return;
  const unsigned sequence = slot.sequence;
  __atomic_store_n(&slot.sequence, sequence + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(&slot.metrics_step, slot.step, __ATOMIC_RELAXED);
  __atomic_store_n(&slot.tokens, tokens < 0 ? 0 : tokens, __ATOMIC_RELAXED);
  __atomic_store(&slot.loss, &loss, __ATOMIC_RELAXED);
  __atomic_store_n(&slot.sequence, sequence + 2, __ATOMIC_RELEASE);
  hfc_computed(compute_s);
}

void hfc_computed(double seconds) {
  const int64_t us = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e6) : 0;
  __atomic_store_n(&slot.compute_us, us, __ATOMIC_RELAXED);
}

int hf_orders_sized(struct hf_order* order, size_t size) {
  struct hf_order now;
  struct timespec clock;
  memset(&now, 0, sizeof now);
  now.seconds_left = -1;
  if (is_on() && __atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
    pthread_mutex_lock(&lock);
    now.save = state.save;
    now.stop = state.stop;
    now.pause = state.pause && !state.stop;
    if (now.save || now.stop) strcpy(now.reason, state.heard_reason);
    clock_gettime(CLOCK_REALTIME, &clock);
    if (now.stop && state.until > 0) {
      now.seconds_left = (double)(state.until - clock.tv_sec) - 1e-9 * (double)clock.tv_nsec;
      if (now.seconds_left < 0) now.seconds_left = 0;
    }
    state.save = 0;
    state.took |= (now.save ? ask_save : 0) | (now.stop ? ask_stop : 0) | (now.pause ? ask_pause : 0);
    const int news = state.took & ~state.said_took;
    __atomic_store_n(&asked, (state.stop ? ask_stop : 0) | (state.pause ? ask_pause : 0), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    if (news) wake_up();
  }
  memcpy(order, &now, size < sizeof now ? size : sizeof now);
  return now.save || now.stop || now.pause;
}

int64_t hf_newest(void) { return is_on() ? newest : -1; }

void hf_restored(int64_t step, const char* level) {
  char name[6 * 64 + 3], text[message_bytes];
  if (!is_on()) return;
  hfc_json_quote(level ? level : "", 64, name);
  snprintf(text, sizeof text,
           "{\"m\":\"restored\",\"rank\":%d,\"attempt\":%d,\"step\":%lld,\"level\":%s,\"digest\":\"\","
           "\"note\":\"\"}",
           place.who.rank, place.who.attempt, (long long)step, name);
  hfc_say(HFC_RESTORED, 0, text);
}

/* The payload follows the JSON as it is, in one line. */
static void vote(int64_t step, int ok, const char* payload) {
  char text[256];
  if (!is_on()) return;
  const int head =
      snprintf(text, sizeof text,
               "{\"m\":\"vote\",\"rank\":%d,\"attempt\":%d,\"step\":%lld,\"ok\":%s,\"stall_us\":0}\t",
               place.who.rank, place.who.attempt, (long long)step, ok ? "true" : "false");
  char* line = malloc((size_t)head + strlen(payload) + 1);
  if (!line) return;
  strcpy(line, text);
  strcpy(line + head, payload);
  for (char* c = line; *c; ++c)
    if (*c == '\n') *c = ' ';
  hfc_say(HFC_VOTE, step, line);
  free(line);
}

/* --- files by name: read by a thread of their own --- */

static void free_names(struct hfc_name* names) {
  while (names) {
    struct hfc_name* next = names->next;
    free(names->name);
    free(names);
    names = next;
  }
}

/* Takes those of a step out of the list; in the order of the calls. */
static struct hfc_name* take_names(int64_t step) {
  struct hfc_name *out = NULL, **end = &out, **at = &reader.named;
  pthread_mutex_lock(&lock);
  while (*at) {
    struct hfc_name* name = *at;
    if (name->step != step) {
      at = &name->next;
      continue;
    }
    *at = name->next;
    name->next = NULL;
    *end = name;
    end = &name->next;
  }
  reader.end = at;
  pthread_mutex_unlock(&lock);
  return out;
}

static void* read_named(void* unused) {
  (void)unused;
  for (;;) {
    char why[2 * text_bytes];
    pthread_mutex_lock(&lock);
    struct reading* now = reader.first;
    if (!now) reader.runs = 0;
    pthread_mutex_unlock(&lock);
    if (!now) return NULL;
    char* payload = hfc_files_payload(now->folder, now->names, &reader.bytes, why, sizeof why);
    vote(now->step, payload != NULL, payload ? payload : why);
    free(payload);
    pthread_mutex_lock(&lock);
    reader.first = now->next;
    pthread_mutex_unlock(&lock);
    pthread_cond_broadcast(&changed);
    free_names(now->names);
    free(now->folder);
    free(now);
  }
}

/* 0: there is no thread to read them. */
static int read_later(struct reading* what) {
  pthread_t reads;
  pthread_attr_t detached;
  sigset_t all, before;
  int failed = 0;
  pthread_mutex_lock(&lock);
  struct reading** end = &reader.first;
  while (*end) end = &(*end)->next;
  *end = what;
  if (!reader.runs) {
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&reads, &detached, read_named, NULL);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    reader.runs = !failed;
    if (failed) *end = NULL;
  }
  pthread_mutex_unlock(&lock);
  return !failed;
}

void hf_vote_file(int64_t step, const char* name) {
  if (!is_on() || !name) return;
  struct hfc_name* said = calloc(1, sizeof *said);
  if (!said || !(said->name = strdup(name))) {
    free(said);
    return;
  }
  said->step = step;
  pthread_mutex_lock(&lock);
  *reader.end = said;
  reader.end = &said->next;
  pthread_mutex_unlock(&lock);
}

static void vote_on_named(int64_t step, const char* path, struct hfc_name* names) {
  struct reading* what = calloc(1, sizeof *what);
  if (what) {
    what->step = step;
    what->names = names;
    what->folder = hfc_real_path(path);
    if (what->folder && read_later(what)) return;
    free(what->folder);
  }
  free(what);
  free_names(names);
  vote(step, 0, "there is no memory or no thread to read its files with");
}

void hf_vote(int64_t step, const char* path, int64_t files, int64_t bytes) {
  char quoted[6 * text_bytes + 3], text[message_bytes];
  if (!is_on()) return;
  struct hfc_name* names = take_names(step);
  if (names) {
    vote_on_named(step, path ? path : "", names);
    return;
  }
  hfc_json_quote(path ? path : "", text_bytes, quoted);
  snprintf(text, sizeof text, "{\"kind\":\"files\",\"path\":%s,\"files\":%lld,\"bytes\":%lld}", quoted,
           (long long)files, (long long)bytes);
  vote(step, 1, text);
}

void hf_vote_failed(int64_t step, const char* why) {
  char text[text_bytes];
  if (!is_on()) return;
  free_names(take_names(step));
  snprintf(text, sizeof text, "%s", why && *why ? why : "the program does not say why");
  vote(step, 0, text);
}

/* Under the lock. */
static enum hf_outcome known_outcome(int64_t step) {
  for (int i = 0; i < outcomes_kept; ++i)
    if (step >= 0 && state.outcomes[i].step == step) return state.outcomes[i].outcome;
  return HF_UNDECIDED;
}

enum hf_outcome hf_outcome(int64_t step) { return hfc_wait_outcome(step, 0); }

enum hf_outcome hfc_wait_outcome(int64_t step, int64_t ms) {
  enum hf_outcome outcome;
  if (!is_on()) return HF_UNDECIDED;
  const struct timespec limit = moment_in(ms);
  pthread_mutex_lock(&lock);
  while ((outcome = known_outcome(step)) == HF_UNDECIDED && !state.closing)
    if (pthread_cond_timedwait(&changed, &lock, &limit) == ETIMEDOUT) break;
  pthread_mutex_unlock(&lock);
  return outcome;
}

int hfc_wait_taken(int64_t ms) {
  const struct timespec limit = moment_in(ms);
  pthread_mutex_lock(&lock);
  while (!state.taken && !state.closing)
    if (pthread_cond_timedwait(&changed, &lock, &limit) == ETIMEDOUT) break;
  const int taken = state.taken;
  pthread_mutex_unlock(&lock);
  return taken;
}

int hfc_wait_connected(int64_t ms, char* why, size_t size) {
  const struct timespec limit = moment_in(ms);
  pthread_mutex_lock(&lock);
  while (!state.connected && !state.closing)
    if (pthread_cond_timedwait(&changed, &lock, &limit) == ETIMEDOUT) break;
  const int connected = state.connected;
  snprintf(why, size, "%s", state.why_not);
  pthread_mutex_unlock(&lock);
  return connected;
}

static void complain_of(const char* what, const char* why) {
  fprintf(stderr, "holdfast: %s: %s\n", what, why);
}

void* hf_buffer(const char* name, size_t bytes) {
  char why[512], what[128];
  if (!is_on()) return NULL;
  void* at = hfc_buffer(name, bytes, why, sizeof why);
  snprintf(what, sizeof what, "no buffer '%.64s'", name ? name : "");
  if (!at) complain_of(what, why);
  return at;
}

int hf_seal(int64_t step) {
  char why[512], text[256];
  if (!is_on()) return 0;
  if (!hfc_seal(step, why, sizeof why)) return complain_of("the buffers are not sealed", why), 0;
  snprintf(text, sizeof text, "{\"m\":\"sealed\",\"rank\":%d,\"attempt\":%d,\"step\":%lld}", place.who.rank,
           place.who.attempt, (long long)step);
  hfc_say(HFC_SEALED, 0, text);
  hfc_wait_for_copy(step);
  return 1;
}

int64_t hf_sealed(void) { return is_on() ? sealed_step : -1; }

const void* hf_load(const char* name, size_t* bytes) {
  char why[512], what[128];
  size_t count = 0;
  if (!is_on()) return NULL;
  const void* at = hfc_load(name, &count, why, sizeof why);
  if (at) {
    hf_restored(sealed_step, sealed_level);
    if (bytes) *bytes = count;
    return at;
  }
  snprintf(what, sizeof what, "the buffer '%.64s' cannot be loaded", name ? name : "");
  complain_of(what, why);
  return NULL;
}

void hf_finished(int64_t step) {
  char loss[32], text[512];
  if (!is_on()) return;
  number_text(slot.metrics_step < 0 ? (double)NAN : slot.loss, loss);
  int n =
      snprintf(text, sizeof text, "{\"m\":\"finished\",\"rank\":%d,\"attempt\":%d,\"state\":", place.who.rank,
               place.who.attempt);
  if (place.who.rank == 0)
    snprintf(text + n, sizeof text - (size_t)n,
             "{\"step\":%lld,\"tokens\":%lld,\"loss\":%s,\"digest\":\"\"}}", (long long)step,
             (long long)slot.tokens, loss);
  else
    snprintf(text + n, sizeof text - (size_t)n, "null}");
  hfc_say(HFC_LAST, 0, text);
}

void hf_failed(int exit_code, const char* text) {
  char quoted[6 * text_bytes + 3], message[message_bytes];
  if (!is_on()) return;
  hfc_json_quote(text ? text : "", text_bytes, quoted);
  snprintf(message, sizeof message,
           "{\"m\":\"failed\",\"rank\":%d,\"attempt\":%d,\"exit_code\":%d,\"why\":%s}", place.who.rank,
           place.who.attempt, exit_code < 0 || exit_code > 255 ? 1 : exit_code, quoted);
  hfc_say(HFC_LAST, 0, message);
}
