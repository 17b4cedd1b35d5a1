// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: recordings, read row by row and through replay with a loop.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "probe/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", 0);
    char path[64], source[96];
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    snprintf(source, sizeof source, "replay:%s?speed=0&loop=1", path);
    hn_record *record;
    hn_record_kind kind = HN_RECORD_EVENT;
    int device;
    hn_sample sample;
    hn_event event;
    int64_t last_ns = 0;
    if (hn_record_open(NULL, path, &record) == HONE_OK) {
        while (hn_record_next(NULL, record, &kind, &device, &sample, &event) == HONE_OK && kind != HN_RECORD_END) {
            int64_t t_ns = kind == HN_RECORD_SAMPLE ? sample.t_ns : event.t_ns;
            if (kind == HN_RECORD_SAMPLE && (t_ns < last_ns || device < 0 || device >= hn_record_device_count(record))) abort();
            if (kind == HN_RECORD_SAMPLE) last_ns = t_ns;
        }
        hn_record_close(record);
    }
    hn_probe *probe;
    if (hn_probe_open(NULL, source, &probe) == HONE_OK) {
        for (int i = 0; i < 40; i++)
            (void)!hn_probe_sample(NULL, probe, i % hn_probe_device_count(probe), &sample);
        (void)!hn_probe_wait_event(NULL, probe, 0, &event);
        hn_probe_close(probe);
    }
    close(fd);
    return 0;
}
