/* Reading works on the line itself: a reader is the place and the end of what is left, nothing is allocated,
 * and nothing behind the end is read. find() goes through the fields of the outermost object until it stands
 * before the value of the wanted one, and skip_value() passes over the others, objects and lists up to 32
 * deep. What stands behind that value is not looked at, and of a field that comes twice the first counts.
 *
 * A function for one type then reads the value. It returns 0 for a line or a value that it cannot read, and
 * the caller treats the message as one without this field.
 *
 * Writing is hfc_json_quote() alone: it puts a '?' for each byte that belongs to no UTF-8 character, so that
 * every text gives valid JSON. */
#include "json.h"

#include <string.h>

enum { deepest = 32 };

struct reader {
  const char *at, *end;
};

static void skip_space(struct reader* r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n')) ++r->at;
}

static int takes(struct reader* r, char c) {
  skip_space(r);
  if (r->at >= r->end || *r->at != c) return 0;
  ++r->at;
  return 1;
}

static int hex4(struct reader* r, unsigned* out) {
  *out = 0;
  for (int i = 0; i < 4; ++i, ++r->at) {
    if (r->at >= r->end) return 0;
    const char c = *r->at;
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return 0;
    *out = *out << 4 | (unsigned)digit;
  }
  return 1;
}

/* `out` may be null. */
struct sink {
  char* out;
  size_t size, used;
};
static void put(struct sink* s, const char* bytes, size_t count) {
  if (!s->out || s->used + count + 1 > s->size) {
    s->size = s->used + 1; /* nothing behind a gap */
    return;
  }
  memcpy(s->out + s->used, bytes, count);
  s->used += count;
}

static void put_code(struct sink* s, unsigned code) {
  char bytes[3];
  if (code < 0x80) {
    bytes[0] = (char)code;
    put(s, bytes, 1);
  } else if (code < 0x800) {
    bytes[0] = (char)(0xc0 | code >> 6);
    bytes[1] = (char)(0x80 | (code & 63));
    put(s, bytes, 2);
  } else if (code >= 0xd800 && code < 0xe000) {
    put(s, "?", 1);
  } else {
    bytes[0] = (char)(0xe0 | code >> 12);
    bytes[1] = (char)(0x80 | (code >> 6 & 63));
    bytes[2] = (char)(0x80 | (code & 63));
    put(s, bytes, 3);
  }
}

static int read_string(struct reader* r, char* out, size_t size) {
  struct sink s = {out, size, 0};
  if (!takes(r, '"')) return 0;
  while (r->at < r->end && *r->at != '"') {
    const char c = *r->at++;
    if ((unsigned char)c < 0x20) return 0;
    if (c != '\\') {
      put(&s, &c, 1);
      continue;
    }
    if (r->at >= r->end) return 0;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char escaped = *r->at++;
    const char* known = escaped ? strchr(from, escaped) : NULL;
    unsigned code;
    if (known)
      put(&s, to + (known - from), 1);
    else if (escaped == 'u' && hex4(r, &code))
      put_code(&s, code == 0 ? '?' : code);
    else
      return 0;
  }
  if (out && size > 0) out[s.used] = '\0';
  return takes(r, '"');
}

static int skip_value(struct reader* r, int depth) {
  skip_space(r);
  if (r->at >= r->end || depth > deepest) return 0;
  if (*r->at == '"') return read_string(r, NULL, 0);
  if (*r->at == '{' || *r->at == '[') {
    const int object = *r->at++ == '{';
    const char close = object ? '}' : ']';
    if (takes(r, close)) return 1;
    do {
      if (object && (!read_string(r, NULL, 0) || !takes(r, ':'))) return 0;
      if (!skip_value(r, depth + 1)) return 0;
    } while (takes(r, ','));
    return takes(r, close);
  }
  const char* begin = r->at;
  while (r->at < r->end && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *r->at) && *r->at) ++r->at;
  return r->at > begin;
}

/* Before the value of the field. */
static int find(struct reader* r, const char* name) {
  char key[64];
  if (!takes(r, '{')) return 0;
  do {
    if (!read_string(r, key, sizeof key) || !takes(r, ':')) return 0;
    if (strcmp(key, name) == 0) {
      skip_space(r);
      return r->at < r->end;
    }
    if (!skip_value(r, 0)) return 0;
  } while (takes(r, ','));
  return 0;
}

int hfc_json_text(const char* line, size_t length, const char* name, char* out, size_t size) {
  struct reader r = {line, line + length};
  if (size > 0) out[0] = '\0';
  return find(&r, name) && read_string(&r, out, size);
}

int hfc_json_integer(const char* line, size_t length, const char* name, int64_t* out) {
  struct reader r = {line, line + length};
  if (!find(&r, name)) return 0;
  const int negative = *r.at == '-';
  if (negative) ++r.at;
  uint64_t value = 0;
  const char* begin = r.at;
  for (; r.at < r.end && *r.at >= '0' && *r.at <= '9'; ++r.at) {
    if (r.at - begin >= 18) return 0;
    value = 10 * value + (uint64_t)(*r.at - '0');
  }
  if (r.at == begin || (r.at < r.end && strchr(".eE", *r.at) && *r.at)) return 0;
  *out = negative ? -(int64_t)value : (int64_t)value;
  return 1;
}

int hfc_json_bool(const char* line, size_t length, const char* name, int* out) {
  struct reader r = {line, line + length};
  if (!find(&r, name)) return 0;
  const size_t left = (size_t)(r.end - r.at);
  const int yes = left >= 4 && memcmp(r.at, "true", 4) == 0;
  if (!yes && !(left >= 5 && memcmp(r.at, "false", 5) == 0)) return 0;
  *out = yes;
  return 1;
}

/* Bytes of the UTF-8 character that begins here; 0: there is none. */
static size_t character(const unsigned char* at, size_t left) {
  const unsigned char c = at[0];
  const size_t size = c < 0x80                ? 1
                      : c >= 0xc2 && c < 0xe0 ? 2
                      : c >= 0xe0 && c < 0xf0 ? 3
                      : c >= 0xf0 && c < 0xf5 ? 4
                                              : 0;
  if (size == 0 || size > left) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((at[i] & 0xc0) != 0x80) return 0;
  if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) ||
      (c == 0xf4 && at[1] > 0x8f))
    return 0;
  return size;
}

int hfc_json_is_plain(const char* text) {
  const unsigned char* at = (const unsigned char*)text;
  for (size_t left = strlen(text), size; left > 0; at += size, left -= size) {
    size = character(at, left);
    if (size == 0 || *at < 0x20 || *at == 0x7f) return 0;
  }
  return 1;
}

void hfc_json_quote(const char* text, size_t most, char* out) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char* at = (const unsigned char*)text;
  size_t left = strnlen(text, most);
  *out++ = '"';
  while (left > 0) {
    const size_t size = character(at, left);
    if (size == 0) {
      *out++ = '?';
    } else if (*at == '"' || *at == '\\') {
      *out++ = '\\';
      *out++ = (char)*at;
    } else if (*at < 0x20) {
      memcpy(out, "\\u00", 4);
      out[4] = digits[*at >> 4];
      out[5] = digits[*at & 15];
      out += 6;
    } else {
      memcpy(out, at, size);
      out += size;
    }
    at += size == 0 ? 1 : size;
    left -= size == 0 ? 1 : size;
  }
  *out++ = '"';
  *out = '\0';
}
