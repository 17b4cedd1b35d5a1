// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: what a kubelet may answer. First byte: 0 a message, else the connection's bytes, cut at that length.
#include <stdlib.h>
#include "fleet/grpc.h"
#include "fleet/podres.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_message(hn_slice message) {
    static hn_podres_item items[16];
    hone_error err = {0};
    hn_podres_item out;
    hn_device_info card;
    int count = 0;
    hn_device_info_init(&card, HN_DEVICE_GPU);
    card.minor = 0;
    if (hn_podres_parse(&err, message, items, 16, &count) != HONE_OK) {
        if (!err.text[0]) abort();
        return;
    }
    if (count < 0 || count > 16) abort();
    (void)hn_podres_match(items, count, &card, &card, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t chunk = data[0];
    data++, size--;
    if (chunk == 0) {
        read_message((hn_slice){(const char *)data, size});
        return 0;
    }
    hone_error err = {0};
    hn_grpc_answer a = {.max_bytes = 4096};
    hone_status status = HONE_OK;
    for (size_t at = 0; at < size && status == HONE_OK; at += chunk)
        status = hn_grpc_take(&err, &a, data + at, size - at < chunk ? size - at : chunk);
    if (a.body.length > a.max_bytes) abort();
    hn_slice message;
    if (status == HONE_OK && a.ended && hn_grpc_message(&err, &a, &message) == HONE_OK) read_message(message);
    else if (status != HONE_OK && !err.text[0]) abort();
    hn_grpc_answer_free(&a);
    return 0;
}
