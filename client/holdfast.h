/* The client of Holdfast for any training program: a rank reports its progress, gets orders, and votes on the
 * checkpoint files that it has written. docs/manual/any-program.md shows how to use it.
 *
 * No configuration is needed: the agent that starts a rank puts its address into the rank's environment.
 * Without an agent every call does nothing. A thread of this library talks to the agent. Only hf_close()
 * waits for it; hf_buffer() and hf_seal() wait for copies; no call ends the program. hf_at() and hf_metrics()
 * take well under a microsecond: no lock and no system call.
 *
 * One process is one rank: the first that opens the client speaks for it. In its children, whether they come
 * from fork() or open the client themselves, and in other processes with the environment of the rank, every
 * call does nothing. hf_at() and hf_metrics() are for one thread at a time, the others for any, and none for
 * the handler of a signal. */
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

/* The activity of a rank. A rank that stays in one phase for much longer than before is taken for hung and
 * its attempt ends, so report at least each step; HF_PAUSED is never taken for a hang. */
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

/* Connects in the background to the agent of this node. Returns 1 if an agent has started this process. 0:
 * there is no agent; or the client of this process was closed, or this is a fork of it; or the library is
 * older than the header. */
HF_API int hf_open_abi(int abi);
static inline int hf_open(void) { return hf_open_abi(HF_ABI); }

/* Ends the connection. Waits while named files are read, and then at most 2 s until the agent has the votes
 * and hf_finished() or hf_failed(). exit() calls it, too. */
HF_API void hf_close(void);

/* `step`: optimizer steps done, -1 before that is known. */
HF_API void hf_at(int64_t step, enum hf_phase phase);

/* Metrics of the newest step. Of `loss`, which may be NaN, and `tokens`, only those of rank 0 are kept.
 * `tokens`: consumed by all ranks since step 0, not those of the step. `compute_s`: seconds of this rank's
 * own work in that step, without waiting for others, by which slow nodes are found; 0: not known. */
HF_API void hf_metrics(double loss, int64_t tokens, double compute_s);

/* Orders in force. Ask after each step on one rank and tell the others, so that all ranks do the same. */
struct hf_order {
  int save;            /* save now. Only in the first answer after an order */
  int stop;            /* save now and end with exit code 75 (HF_EXIT_STOPPED); stays.
                        * Also where only a node is to leave */
  int pause;           /* hold: report HF_PAUSED and ask again; stays until it is over */
  double seconds_left; /* of stop: until the ranks are killed; negative: no deadline is known */
  char reason[256];    /* of save and stop */
};
#define HF_EXIT_STOPPED 75

/* Returns 1 if there is an order. `size`: sizeof(struct hf_order) of the caller. */
HF_API int hf_orders_sized(struct hf_order* order, size_t size);
static inline int hf_orders(struct hf_order* order) { return hf_orders_sized(order, sizeof *order); }

/* To be called once, when the state is loaded. `step`: optimizer steps done in it. `level`: where it came
 * from, for people: "fresh" (a new start), "shared" (a checkpoint), "local" (the memory of this node),
 * "partner" or "peer" (of another). hf_load() calls it, too. Without this call, the first hf_at() counts
 * instead. */
HF_API void hf_restored(int64_t step, const char* level);

/* The newest step that all ranks had voted for when this attempt was started, and whose files, where they
 * were named, are not proven damaged; -1: there is none. */
HF_API int64_t hf_newest(void);

/* Reports that this rank's part of the checkpoint of `step` is complete and synced: `files` files, `bytes`
 * together, below `path`. Every rank votes, also one that has written nothing (0 files). The checkpoint is
 * durable once all ranks have voted for it. */
HF_API void hf_vote(int64_t step, const char* path, int64_t files, int64_t bytes);
/* Reports that this rank's part could not be written; the checkpoint is then dropped. */
HF_API void hf_vote_failed(int64_t step, const char* why);

enum hf_outcome { HF_UNDECIDED, HF_DURABLE, HF_DROPPED };
/* The outcome of a checkpoint on which this attempt has voted; it is undecided until all ranks have voted. */
HF_API enum hf_outcome hf_outcome(int64_t step);

/* --- since ABI 2: the files of a checkpoint by name --- */

/* Names a file of this rank's part of the checkpoint of `step`, complete and synced; to be called before
 * hf_vote(), once for each file. `name` is relative to the `path` of hf_vote(), which follows links in that
 * path. hf_vote() then ignores its `files` and `bytes`: a thread of the library reads the named files and
 * computes their digests, and then casts the vote. hf_close() waits for that thread as long as it reads on.
 * All ranks that have files must name them; then the checkpoint has a manifest, which holdfast ckpt shows and
 * verifies, and no attempt begins from one whose files are damaged. The files must be on storage that all
 * nodes see, and must not be written again: a checkpoint of which a file was overwritten cannot be checked.
 * If a file is not below `path`, or its name is not UTF-8 without control characters, the files are only
 * counted, and stderr says so. */
HF_API void hf_vote_file(int64_t step, const char* name);

/* --- since ABI 2: buffers in the memory of the node, for a state that is not to be read from storage after a
 * failure ---
 *
 * They outlive the process, and are copied to another node. There are two generations: one is written while
 * the other one is complete. The first hf_buffer() after hf_seal() gives up the older one: ranks that wait
 * for each other between these two calls, for example in a collective of the next step, always have a state
 * in common. A call that fails says why on stderr. */

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

/* A buffer of that state, with the right checksum, to be read until the first hf_seal(). Calls hf_restored(),
 * too. NULL: the state has no such buffer, or is damaged: then end with hf_failed(), and a later attempt
 * starts from another state: the next attempt if it is damaged, else the attempt after two that ended so. */
HF_API const void* hf_load(const char* name, size_t* bytes);

/* --- to the end --- */

/* The rank has done all its steps; the process then ends with 0. */
HF_API void hf_finished(int64_t step);
/* The rank gives up; the process then ends with `exit_code`. `text` is the reason, for people. With the codes
 * 2, 3, 4 and 93 the rank says that every further attempt would end so: the run then ends with that code. */
HF_API void hf_failed(int exit_code, const char* text);

#ifdef __cplusplus
}
#endif
#endif
