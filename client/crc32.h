/* CRC-32 as in zlib and Ethernet (reflected polynomial 0xedb88320). */
#ifndef HOLDFAST_CLIENT_CRC32_H
#define HOLDFAST_CLIENT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* `crc`: of what comes before; 0: nothing does. */
uint32_t hfc_crc32(uint32_t crc, const void* data, size_t bytes);

#endif
