/* hfc_connect() opens the socket of the agent and calls shake(). The agent sends its versions and a nonce.
 * This side answers with rank, attempt, a nonce of its own and a proof, which is the MAC of both nonces under
 * the key of the rank; the agent must send a proof in return. After that both know the same session key. A
 * failure up to here closes the connection, with a sentence for the user in `why`.
 *
 * From then on each line ends with a seal: the MAC, under the session key, of the direction, a running number
 * and the text. A line that is altered, lost or sent twice thus ends the connection. hfc_read() collects what
 * has arrived without waiting, and hfc_next() gives out one line at a time. Both only report that a
 * connection is of no use any more; the caller then calls hfc_disconnect() and connects again. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "sha512.h"

enum { patience_ms = 5000, seal_size = 65 };

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* 0: not within the time. */
static int wait_for(int fd, short what, int64_t deadline) {
  for (;;) {
    const int64_t left = deadline - now_ms();
    if (left <= 0) return 0;
    struct pollfd p = {fd, what, 0};
    const int ready = poll(&p, 1, (int)left);
    if (ready > 0) return 1;
    if (ready < 0 && errno != EINTR) return 0;
  }
}

static int send_all(int fd, const char* bytes, size_t count) {
  const int64_t deadline = now_ms() + patience_ms;
  while (count > 0) {
    const ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes += n;
      count -= (size_t)n;
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline)) return 0;
    } else if (errno != EINTR) {
      return 0;
    }
  }
  return 1;
}

void hfc_disconnect(struct hfc_link* link) {
  if (link->fd >= 0) close(link->fd);
  free(link->input);
  memset(link, 0, sizeof *link);
  link->fd = -1;
}

int hfc_read(struct hfc_link* link) {
  for (;;) {
    if (link->room - link->filled < 4096) {
      if (link->filled >= hfc_line_limit) return 0; /* no message to a rank is so long */
      char* more = realloc(link->input, link->room + 16384);
      if (!more) return 0;
      link->input = more;
      link->room += 16384;
    }
    const ssize_t n = recv(link->fd, link->input + link->filled, link->room - link->filled, MSG_DONTWAIT);
    if (n > 0) {
      link->filled += (size_t)n;
      if (memchr(link->input, '\n', link->filled)) return 1;
    } else if (n == 0) {
      return 0;
    } else if (errno == EAGAIN) {
      return 1;
    } else if (errno != EINTR) {
      return 0;
    }
  }
}

static int handshake_line(struct hfc_link* link, int64_t deadline, char line[512], size_t* length) {
  char* end;
  while (link->filled == 0 || !(end = memchr(link->input, '\n', link->filled)))
    if (link->filled > 511 || !wait_for(link->fd, POLLIN, deadline) || !hfc_read(link)) return 0;
  *length = (size_t)(end - link->input);
  if (*length > 511) return 0;
  memcpy(line, link->input, *length);
  link->filled -= *length + 1;
  memmove(link->input, end + 1, link->filled);
  return 1;
}

static void mac_of(const unsigned char key[32], const char* what, const char* server, const char* client,
                   unsigned char out[32]) {
  struct hfc_mac mac;
  hfc_mac_begin(&mac, key);
  hfc_mac_add(&mac, what, strlen(what));
  hfc_mac_add(&mac, server, 64);
  hfc_mac_add(&mac, client, 64);
  hfc_mac_end(&mac, out);
}

static int refuse(struct hfc_link* link, char* why, size_t size, const char* text) {
  snprintf(why, size, "%s", text);
  hfc_disconnect(link);
  return 0;
}

static int shake(struct hfc_link* link, const struct hfc_identity* who, char* why, size_t size) {
  const int64_t deadline = now_ms() + patience_ms;
  char line[512], theirs[65], mine[65], proof[65], said[65], text[512];
  unsigned char bytes[32], given[32];
  size_t length;
  int64_t version, oldest;
  if (!handshake_line(link, deadline, line, &length))
    return refuse(link, why, size, "the agent does not answer");
  if (!hfc_json_integer(line, length, "holdfast", &version) ||
      !hfc_json_text(line, length, "nonce", theirs, sizeof theirs) ||
      !hfc_from_hex(theirs, strlen(theirs), bytes))
    return refuse(link, why, size, "what listens there is no agent");
  if (!hfc_json_integer(line, length, "oldest", &oldest)) oldest = version;
  if (version < hfc_oldest_version || oldest > hfc_version) {
    snprintf(text, sizeof text, "the agent speaks version %lld of the protocol, and this client %d to %d",
             (long long)version, hfc_oldest_version, hfc_version);
    return refuse(link, why, size, text);
  }
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
    return refuse(link, why, size, "there are no random numbers");
  hfc_to_hex(bytes, mine);
  mac_of(who->key, "client", theirs, mine, bytes);
  hfc_to_hex(bytes, proof);
  snprintf(text, sizeof text,
           "{\"holdfast\":%d,\"rank\":%d,\"attempt\":%d,\"nonce\":\"%s\",\"proof\":\"%s\"}\n", hfc_version,
           who->rank, who->attempt, mine, proof);
  if (!send_all(link->fd, text, strlen(text)) || !handshake_line(link, deadline, line, &length))
    return refuse(link, why, size, "the agent does not take the key of this rank");
  mac_of(who->key, "server", theirs, mine, bytes);
  if (!hfc_json_text(line, length, "proof", said, sizeof said) || !hfc_from_hex(said, strlen(said), given) ||
      !hfc_same(given, bytes))
    return refuse(link, why, size, "what listens there does not know the key of this rank");
  mac_of(who->key, "session", theirs, mine, link->session);
  return 1;
}

int hfc_connect(struct hfc_link* link, const struct hfc_identity* who, volatile int* shown, char* why,
                size_t size) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memset(link, 0, sizeof *link);
  memcpy(address.sun_path, who->socket, sizeof address.sun_path);
  link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  *shown = link->fd;
  if (link->fd < 0) return refuse(link, why, size, strerror(errno));
  /* A Unix socket is connected at once, or its queue is full. */
  if (connect(link->fd, (struct sockaddr*)&address, sizeof address) != 0)
    return refuse(link, why, size, strerror(errno));
  return shake(link, who, why, size);
}

static void seal_of(const struct hfc_link* link, char direction, uint64_t number, const char* text,
                    size_t length, unsigned char out[32]) {
  char head[32];
  struct hfc_mac mac;
  snprintf(head, sizeof head, "%c%llu ", direction, (unsigned long long)number);
  hfc_mac_begin(&mac, link->session);
  hfc_mac_add(&mac, head, strlen(head));
  hfc_mac_add(&mac, text, length);
  hfc_mac_end(&mac, out);
}

int hfc_send(struct hfc_link* link, const char* message) {
  const size_t size = strlen(message);
  char* line = malloc(size + seal_size + 2);
  if (!line) return 0;
  unsigned char seal[32];
  seal_of(link, 'c', link->sent++, message, size, seal);
  memcpy(line, message, size);
  line[size] = '\t';
  hfc_to_hex(seal, line + size + 1);
  line[size + 65] = '\n';
  const int sent = send_all(link->fd, line, size + 66);
  free(line);
  return sent;
}

int hfc_next(struct hfc_link* link, const char** line, size_t* length) {
  char* end;
  if (link->given > 0) {
    link->filled -= link->given;
    memmove(link->input, link->input + link->given, link->filled);
    link->given = 0;
  }
  if (link->filled == 0 || !(end = memchr(link->input, '\n', link->filled))) return 0;
  const size_t whole = (size_t)(end - link->input);
  unsigned char wanted[32], given[32];
  if (whole < seal_size || link->input[whole - seal_size] != '\t' ||
      !hfc_from_hex(link->input + whole - 64, 64, given))
    return -1;
  seal_of(link, 's', link->received++, link->input, whole - seal_size, wanted);
  if (!hfc_same(wanted, given)) return -1;
  link->given = whole + 1;
  *line = link->input;
  *length = whole - seal_size;
  return 1;
}
