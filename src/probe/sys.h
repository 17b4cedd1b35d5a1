// SPDX-License-Identifier: Apache-2.0
// Small files of /proc and /sys, read below a root that tests may move (HONE_SYS_ROOT): a machine
// is text that can be recorded and put before the readers again.
#ifndef HN_PROBE_SYS_H
#define HN_PROBE_SYS_H
#include <sys/types.h>
#include "base/base.h"

#define HN_SYS_PATH_BYTES 512
// root + path formatted; false if it does not fit.
bool hn_sys_path(char out[HN_SYS_PATH_BYTES], const char *fmt, ...) HN_PRINTF(2, 3);
// Reads a small file into buf, terminated; the length, or -1 (errno tells why).
ssize_t hn_sys_read(const char *path, char *buf, size_t bytes);
// The same of an open file, from its start.
ssize_t hn_sys_reread(int fd, char *buf, size_t bytes);
// One line of a file without blanks at its ends, "" if it is not there; returns buf.
const char *hn_sys_line(const char *path, char *buf, size_t bytes);
bool hn_sys_i64(const char *path, int64_t *out);
// The number at the start of text (after blanks); the text behind it, or NULL if there is none.
const char *hn_sys_number(const char *text, int64_t *out);
// A CPU or node list ("0-3,8"): sets bits below `bits`, returns how many bits are set in all.
int hn_sys_list(const char *text, uint64_t *set, int bits);
// NVIDIA cards that the PCI bus shows, -1 = not to be seen.
int hn_sys_nvidia_cards(void);
#endif
