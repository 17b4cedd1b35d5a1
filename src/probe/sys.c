// SPDX-License-Identifier: Apache-2.0
// Readers of small system files: see sys.h.
#include "probe/sys.h"
#include "config/config.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

bool hn_sys_path(char out[HN_SYS_PATH_BYTES], const char *fmt, ...) {
    const char *root = hn_config_env("HONE_SYS_ROOT");
    int at = snprintf(out, HN_SYS_PATH_BYTES, "%s", root ? root : "");
    if (at < 0 || at >= HN_SYS_PATH_BYTES) return false;
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(out + at, (size_t)(HN_SYS_PATH_BYTES - at), fmt, args);
    va_end(args);
    return length >= 0 && length < HN_SYS_PATH_BYTES - at;
}

ssize_t hn_sys_reread(int fd, char *buf, size_t bytes) {
    size_t at = 0;
    while (at + 1 < bytes) {
        ssize_t got = pread(fd, buf + at, bytes - 1 - at, (off_t)at);
        if (got < 0) return -1;
        if (got == 0) break;
        at += (size_t)got;
    }
    buf[at] = '\0';
    return (ssize_t)at;
}

ssize_t hn_sys_read(const char *path, char *buf, size_t bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return -1;
    ssize_t length = hn_sys_reread(fd, buf, bytes);
    close(fd);
    return length;
}

const char *hn_sys_line(const char *path, char *buf, size_t bytes) {
    if (hn_sys_read(path, buf, bytes) < 0) {
        buf[0] = '\0';
        return buf;
    }
    buf[strcspn(buf, "\n")] = '\0';
    hn_slice trimmed = hn_slice_trim((hn_slice){buf, strlen(buf)});
    memmove(buf, trimmed.data, trimmed.length);
    buf[trimmed.length] = '\0';
    return buf;
}

bool hn_sys_i64(const char *path, int64_t *out) {
    char buf[64];
    hn_sys_line(path, buf, sizeof buf);
    return hn_parse_i64((hn_slice){buf, strlen(buf)}, out);
}

const char *hn_sys_number(const char *text, int64_t *out) {
    while (*text == ' ' || *text == '\t')
        text++;
    size_t length = *text == '-' ? 1 : 0;
    while (text[length] >= '0' && text[length] <= '9')
        length++;
    return hn_parse_i64((hn_slice){text, length}, out) ? text + length : NULL;
}

int hn_sys_list(const char *text, uint64_t *set, int bits) {
    int count = 0;
    memset(set, 0, (size_t)(bits + 63) / 64 * sizeof *set);
    while (*text) {
        int64_t first, last;
        const char *end = hn_sys_number(text, &first);
        if (!end) break;
        last = first;
        if (*end == '-' && !(end = hn_sys_number(end + 1, &last))) break;
        for (int64_t i = first < 0 ? 0 : first; i <= last && i < bits; i++)
            if (!((set[i / 64] >> (i % 64)) & 1)) set[i / 64] |= UINT64_C(1) << (i % 64), count++;
        if (*end != ',') break;
        text = end + 1;
    }
    return count;
}

// NVIDIA display controllers (classes 0300 and 0302) that the PCI bus shows: a card that fell off
// may be missing in the driver's count without any event.
int hn_sys_nvidia_cards(void) {
    char path[HN_SYS_PATH_BYTES], text[32];
    if (!hn_sys_path(path, "/sys/bus/pci/devices")) return -1;
    DIR *dir = opendir(path);
    if (!dir) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!hn_sys_path(path, "/sys/bus/pci/devices/%.64s/vendor", entry->d_name) ||
            strcmp(hn_sys_line(path, text, sizeof text), "0x10de") != 0)
            continue;
        hn_sys_path(path, "/sys/bus/pci/devices/%.64s/class", entry->d_name);
        hn_sys_line(path, text, sizeof text);
        count += strncmp(text, "0x0300", 6) == 0 || strncmp(text, "0x0302", 6) == 0;
    }
    closedir(dir);
    return count;
}
