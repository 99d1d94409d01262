/* Just enough JSON: one object of a line is read, and text is written. */
#ifndef HOLDFAST_CLIENT_JSON_H
#define HOLDFAST_CLIENT_JSON_H

#include <stddef.h>
#include <stdint.h>

/* The value of a field of the outermost object. 0: `line` is no object, or has no such field of that type.
 * Text is cut to what fits `size` with its NUL; a surrogate pair becomes two '?'. */
int hfc_json_text(const char* line, size_t length, const char* name, char* out, size_t size);
int hfc_json_integer(const char* line, size_t length, const char* name, int64_t* out);
int hfc_json_bool(const char* line, size_t length, const char* name, int* out);

/* It is UTF-8 without control characters. */
int hfc_json_is_plain(const char* text);

/* `text` as a JSON string with its quotes, NUL-terminated; at most `most` bytes of it are taken, and what is
 * not UTF-8 becomes '?'. `out` has 6 * most + 3 bytes. */
void hfc_json_quote(const char* text, size_t most, char* out);

#endif
