// SPDX-License-Identifier: Apache-2.0
// What the commands that run models share: options, loading, inputs.
#ifndef HN_CLI_LOAD_H
#define HN_CLI_LOAD_H
#include "cli/cli.h"
#include "onnx/dataset.h"
#include "plan/plan.h"

// Rows for a command's option table: device, shapes, data.
typedef struct hn_cli_model {
    const char *device;         // "cpu" unless given
    hn_option_list shapes;      // --shape
    hn_option_list files;       // --input
    const char *data;           // --data
    int64_t batch;              // --batch
    bool reference;             // --reference
    bool resident;              // --resident (bench)
    int sets;                   // out: of inputs that stay on the device
    // out
    hn_backend *backend;
    hn_module *module;
    hn_session *session;
    hn_dataset *dataset;        // NULL: made inputs
    int input_count, output_count;
    hn_tensor inputs[HN_MAX_KERNEL_IO];
    hn_tensor outputs[HN_MAX_KERNEL_IO];
} hn_cli_model;

#define HN_CLI_MODEL_OPTIONS(m)                                                                    \
    {"device", "NAME", HN_OPT_STR, &(m)->device, "cpu (default), cuda, cuda:N"},                            \
        {"shape", "IN=1x3x8x8", HN_OPT_LIST, &(m)->shapes, "bind an input's free dims; repeat it"}, \
        {"input", "NAME=FILE", HN_OPT_LIST, &(m)->files, "an input from a .npy or .pb file; repeat"}, \
        {"data", "PATH", HN_OPT_STR, &(m)->data, ".npz, folder of them, or ONNX test data"},       \
        {"batch", "N", HN_OPT_I64, &(m)->batch, "rows per sample where the first dim is free"},    \
        {"reference", NULL, HN_OPT_FLAG, &(m)->reference, "run the plain C references only"}

// Loads `path`, opens the device, makes a session and the first inputs. On failure everything is
// released.
hn_status hn_cli_model_open(hone_error *err, hn_cli_model *m, const char *path, bool profile);
// Inputs of a sample of the data (the made inputs where there is no data).
hn_status hn_cli_model_sample(hone_error *err, hn_cli_model *m, int64_t sample);
hn_status hn_cli_model_run(hone_error *err, hn_cli_model *m); // inputs -> outputs
void hn_cli_model_close(hn_cli_model *m);
// A number with a thousands unit: "3.1 GiB".
const char *hn_cli_bytes(char *buf, size_t size, double bytes);
#endif
