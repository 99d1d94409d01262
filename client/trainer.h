/* What Holdfast's own trainer asks of the client beside holdfast.h; not installed.
 * src/train/common/agent_link.cpp is the caller. Some of its messages no other program sends, or not with
 * these fields: it gives them as lines, encoded by the list of fields with which agents decode them. The
 * client sends and repeats them as its own. Any thread may make these calls, hfc_computed() as hf_metrics().
 */
#ifndef HOLDFAST_CLIENT_TRAINER_H
#define HOLDFAST_CLIENT_TRAINER_H

#include "holdfast.h"
#include "link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the environment says to other programs. */
struct hfc_place {
  struct hfc_identity who;
  char node[256];
  int term;
};

/* Gets every message of the agent, in the client's thread and under its lock: it must not call the client. It
 * is not called after hf_close(). */
struct hfc_listener {
  void (*hear)(void* self, const char* line, size_t length);
  void* self;
};

/* As hf_open(), and again after hf_close(). What the state is, only hfc_say() tells: the client concludes
 * nothing from the first step. 0: there is no thread for it. */
int hfc_open(const struct hfc_place* place, struct hfc_listener listener);
/* Waits at most `ms` for the agent. 0: it does not answer, and `why`, of `size` bytes, says why not. */
int hfc_wait_connected(int64_t ms, char* why, size_t size);

/* Seconds of this rank's own work in the newest step; a part of hf_metrics(). */
void hfc_computed(double seconds);

/* How long a message is repeated to each agent that replaces another one. They are sent in this order. */
enum hfc_kind {
  HFC_RESTORED, /* always; the first one counts */
  HFC_VOTE,     /* until the outcome of its step is heard */
  HFC_SEALED,   /* always; the newest one counts */
  HFC_ONCE,     /* never; dropped while there is no connection */
  HFC_LAST      /* always; the newest one counts. The agent answers */
};
/* `step`: of a vote, else 0. */
void hfc_say(enum hfc_kind kind, int64_t step, const char* line);
/* Waits at most `ms` for the answer to the newest HFC_LAST. 0: there is none. */
int hfc_wait_taken(int64_t ms);
/* hf_outcome(), awaited for at most `ms`. */
enum hf_outcome hfc_wait_outcome(int64_t step, int64_t ms);

#ifdef __cplusplus
}
#endif
#endif
