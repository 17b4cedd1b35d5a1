// SPDX-License-Identifier: Apache-2.0
// Any bytes as an ONNX file: a module that the verifier accepts, or a sentence. What was accepted
// is written and read again now and then: our own files must always be accepted.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "onnx/onnx.h"

static void stop(const char *what, const hone_error *err) {
    char text[2048];
    fprintf(stderr, "%s: %s\n", what, hone_error_format(err, text, sizeof text));
    abort();
}

static void write_and_read(hn_module *module, const hn_onnx_options *options) {
    char path[64];
    hone_error err = {0};
    snprintf(path, sizeof path, "/tmp/fuzz-onnx-%d.onnx", (int)getpid());
    hone_status status = hn_onnx_save(&err, module, path);
    // Versions that no one opset can express together are refused on writing only.
    if (status == HONE_ERR_UNSUPPORTED) return;
    if (status != HONE_OK) stop("an imported model cannot be written", &err);
    hn_module *again = NULL;
    if (hn_onnx_load(&err, path, options, &again) != HONE_OK)
        stop("a written model cannot be read", &err);
    hn_module_free(again);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const hn_onnx_options options = {.keep_unknown = (size & 1) != 0, .no_raise = (size & 6) == 6};
    hone_error err = {0};
    hn_module *module = NULL;
    hn_buffer *buffer = hn_buffer_wrap(data, size, NULL, NULL);
    if (!buffer) return 0;
    hone_status status = hn_onnx_parse(&err, buffer, NULL, &options, &module);
    hn_buffer_unref(buffer);
    if (status == HONE_ERR_INTERNAL) stop("import", &err);
    if (status != HONE_OK) {
        if (!err.text[0]) abort();
        return 0;
    }
    if (hn_module_verify(&err, module) != HONE_OK) stop("verifier", &err);
    if (size % 16 == 1) write_and_read(module, &options);
    hn_module_free(module);
    return 0;
}
