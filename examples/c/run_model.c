// SPDX-License-Identifier: Apache-2.0
// Runs a model of one float32 input once, on zeros, and prints its first output; free dims
// become 1.
//   cc run_model.c -lhone -o run_model && ./run_model model.onnx
#include <hone/model.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    hone_error err = {0};
    hone_model *model = NULL;
    hone_session *session = NULL;
    hone_value_info info = {0};
    hone_tensor in = {.bytes = sizeof(float)}, out = {0};
    char text[1024];
    if (argc != 2) return fprintf(stderr, "usage: run_model MODEL\n"), 2;
    if (hone_model_load(argv[1], &model, &err)) goto done;
    if (hone_model_input(model, 0, &info)) goto done;
    in.dtype = info.dtype;
    in.rank = info.rank;
    for (int i = 0; i < in.rank; i++)
        in.bytes *= (size_t)(in.dims[i] = info.dims[i] > 0 ? info.dims[i] : 1);
    in.data = calloc(1, in.bytes);
    if (hone_session_new(model, NULL, &session, &err)) goto done;
    if (hone_session_run(session, &in, 1, &out, 1, &err)) goto done;
    for (size_t i = 0; i < out.bytes / sizeof(float); i++)
        printf("%g\n", ((float *)out.data)[i]);
done:
    if (err.status) fprintf(stderr, "%s\n", hone_error_format(&err, text, sizeof text));
    free(in.data);
    hone_session_free(session);
    hone_model_free(model);
    return hone_status_exit_code(err.status);
}
