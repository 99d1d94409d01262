/* The client of Holdfast for any training program: a rank says where it is, hears orders, and votes on what
 * it has written. docs/manual/any-program.md shows how to use it.
 *
 * Nothing is to be configured: the agent that starts a rank says in its environment where it listens. Without
 * an agent every call does nothing. A thread of this library speaks to the agent; no call waits for it but
 * hf_close(), hf_buffer() and hf_seal() wait for copies, and no call ends the program. hf_at() and
 * hf_metrics() take well under a microsecond: no lock and no system call.
 *
 * One process is one rank. hf_at() and hf_metrics() are for one thread at a time, the others for any, and
 * none for the handler of a signal. A child of fork() has no client: every call in it does nothing. */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library serves every header of its own version or an older one. */
#define HF_ABI 2

#if defined(__GNUC__)
#define HF_API __attribute__((visibility("default")))
#else
#define HF_API
#endif

/* What a rank is doing. A rank that stays in one of them for much longer than before is taken for hung and
 * its attempt ends, so report at least each step; HF_PAUSED is no hang. */
enum hf_phase {
  HF_STARTING,
  HF_RESTORING,
  HF_DATA,
  HF_FORWARD,
  HF_BACKWARD,
  HF_COLLECTIVE,
  HF_OPTIMIZER,
  HF_CHECKPOINT,
  HF_FINISHING,
  HF_PAUSED
};

/* Connects in the background to the agent of this node. 1: an agent has started this process. 0: there is
 * none, or a client of this process is open already closed or forked, or the library is older than the
 * header. */
HF_API int hf_open_abi(int abi);
static inline int hf_open(void) { return hf_open_abi(HF_ABI); }

/* Ends the connection. Waits at most 2 s until the agent has the votes and the last words; before that, while
 * named files are read. Also done at exit(). */
HF_API void hf_close(void);

/* `step`: optimizer steps done, -1 before that is known. */
HF_API void hf_at(int64_t step, enum hf_phase phase);

/* Of the newest step. `loss`: may be NaN. `tokens`: consumed by the run so far. `compute_s`: seconds of this
 * rank's own work in that step, without waiting for others; 0: not known. */
HF_API void hf_metrics(double loss, int64_t tokens, double compute_s);

/* Orders in force. Ask after each step on one rank and tell the others, so that all ranks do the same. */
struct hf_order {
  int save;            /* save now. Once for each order */
  int stop;            /* save now and end with exit code 75 (HF_EXIT_STOPPED); stays */
  int pause;           /* hold: report HF_PAUSED and ask again; stays until it is over */
  double seconds_left; /* of stop: until the ranks are killed; negative: no deadline is known */
  char reason[256];    /* of save and stop */
};
#define HF_EXIT_STOPPED 75

/* 1: there is one of them. `size`: sizeof(struct hf_order) of the caller. */
HF_API int hf_orders_sized(struct hf_order* order, size_t size);
static inline int hf_orders(struct hf_order* order) { return hf_orders_sized(order, sizeof *order); }

/* Once, when the state is loaded: steps done in it, and where it came from, "shared" (storage), "local" (the
 * memory of this node), "peer" (of another), or "fresh" (a new start). Left out, the first hf_at() stands for
 * it. */
HF_API void hf_restored(int64_t step, const char* level);

/* The newest step that all ranks had voted for when this attempt was started, and whose files, where they
 * were named, are not proven damaged; -1: there is none. */
HF_API int64_t hf_newest(void);

/* What this rank has written of the checkpoint of `step` is complete and synced: `files` of `bytes` together,
 * below `path`. Every rank votes, also one that has written nothing (0 files). The checkpoint is durable once
 * all ranks have voted for it. */
HF_API void hf_vote(int64_t step, const char* path, int64_t files, int64_t bytes);
/* It could not be written. */
HF_API void hf_vote_failed(int64_t step, const char* why);

enum hf_outcome { HF_UNDECIDED, HF_DURABLE, HF_DROPPED };
/* What became of a checkpoint that this attempt has voted on; it may take as long as the slowest rank. */
HF_API enum hf_outcome hf_outcome(int64_t step);

/* --- since ABI 2: the files of a checkpoint by name --- */

/* Before hf_vote(): a file of this rank's part of the checkpoint of `step`, complete and synced; `name` is
 * relative to that call's `path`; links in that are followed at that call. Once for each. hf_vote() then
 * leaves `files` and `bytes` to the library: a thread of its own reads the named files and computes their
 * digests, and the vote is cast when it is through. hf_close() waits for that thread as long as it reads on.
 * All ranks that have files must name them; then the checkpoint has a manifest, which holdfast ckpt shows and
 * verifies, and an attempt does not begin from one whose files are damaged. They lie on storage that all
 * nodes see, and are not written again: of a file that the next checkpoint overwrites nothing is known then.
 * Where one is not below `path`, or its name is not UTF-8 without control characters, the files are only
 * counted, and stderr says so. */
HF_API void hf_vote_file(int64_t step, const char* name);

/* --- since ABI 2: buffers in the memory of the node, for a state that is not to be read from storage after a
 * failure ---
 *
 * They outlive the process, and are copied to another node. There are two generations: one is written while
 * the other one is whole. The first hf_buffer() after hf_seal() gives up the older one: ranks that wait for
 * each other between these two calls, as a collective of the next step does, always have a state in common.
 * Where a call cannot be carried out it says why on stderr. */

/* Memory for `bytes` of the next generation: ask anew after each seal, for every buffer. What is in it is not
 * defined. Waits up to 60 s while this generation is being copied to another node. `name`: 1 to 64 letters,
 * digits, '.', '_', '-'. NULL: without an agent, or with less memory than that. */
HF_API void* hf_buffer(const char* name, size_t bytes);

/* All buffers hold the state of `step`, optimizer steps done; no byte changes afterwards. Reads all of it,
 * for its checksums, and waits until it is copied to another node, or cannot be: 60 s at most. That is no
 * hang; a thread that waits for another one's hf_seal() reports HF_PAUSED. 0: the state before remains the
 * newest. */
HF_API int hf_seal(int64_t step);

/* The step of the sealed state from which all ranks of this attempt start; -1: there is none, or hf_newest()
 * is newer. */
HF_API int64_t hf_sealed(void);

/* A buffer of that state, whose checksum holds, to be read until the first hf_seal(). Says hf_restored(),
 * too. NULL: it has no such buffer, or is damaged: then end with hf_failed(), and a later attempt starts from
 * another one: the next, if it is damaged, else the one after two that ended so. */
HF_API const void* hf_load(const char* name, size_t* bytes);

/* --- to the end --- */

/* The rank has done all its steps; the process then ends with 0. */
HF_API void hf_finished(int64_t step);
/* The rank gives up; the process then ends with `exit_code`. `text` is what people are shown. */
HF_API void hf_failed(int exit_code, const char* text);

#ifdef __cplusplus
}
#endif
#endif
