// SPDX-License-Identifier: Apache-2.0
// Host code of the CUDA backend on scripted libraries (tests/fakes): what is said when something is
// missing, plans over two memories, recording, faults. Each case runs in a process of its own, since
// the driver is opened once a process.
#include "support/test.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "backends/cuda/cuda_int.h"
#include "config/config.h"
#include "plan/plan.h"
#include "store/keeper.h"
#include "tune/joules.h"

typedef void (*case_fn)(void);

// A failed assertion ends the child with 1.
static void in_child(case_fn fn) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fn();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void *symbol(const char *library, const char *name) {
    void *lib = dlopen(getenv(library), RTLD_NOW);
    return lib ? dlsym(lib, name) : NULL;
}
static int count_in(const char *library, const char *function, const char *what) {
    int (*get)(const char *) = NULL;
    *(void **)&get = symbol(library, function);
    return get(what);
}
static int count(const char *what) { return count_in("HONE_CUDA_LIB", "fake_cuda_count", what); }
static int dnn_count(const char *what) { return count_in("HONE_CUDNN_LIB", "fake_dnn_count", what); }
static int count_plain(const char *library, const char *function) {
    int (*get)(void) = NULL;
    *(void **)&get = symbol(library, function);
    return get();
}
static int compiled(void) { return count_plain("HONE_NVRTC_LIB", "fake_nvrtc_programs"); }
static int products_run(void) { return count_plain("HONE_CUBLASLT_LIB", "fake_lt_calls"); }

static void expect_open(hone_status status, const char *text) {
    hone_error err = {0};
    hn_backend *backend;
    CHECK(hn_backend_open(&err, "cuda", 0, &backend) == status);
    if (text && !strstr(err.text, text)) {
        fprintf(stderr, "'%s' lacks '%s'\n", err.text, text);
        _exit(1);
    }
}

static void no_driver(void) {
    setenv("HONE_CUDA_LIB", "/nonexistent/libcuda.so", 1);
    expect_open(HONE_ERR_UNSUPPORTED, "does not load");
}
static void no_card(void) {
    setenv("FAKE_CUDA_INIT", "100", 1);
    expect_open(HONE_ERR_UNSUPPORTED, "no card is visible");
}
static void old_driver(void) {
    setenv("FAKE_CUDA_DRIVER", "10020", 1);
    expect_open(HONE_ERR_UNSUPPORTED, "450.80");
}
static void zero_cards(void) {
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    expect_open(HONE_ERR_UNSUPPORTED, "there is no cuda:0: the driver shows 0 cards");
}
static void no_compiler(void) {
    setenv("FAKE_CUDA_TEXT", "1", 1); // whatever architectures the build was made for
    setenv("HONE_NVRTC_LIB", "/nonexistent/libnvrtc.so", 1);
    if (!cuda_embedded_count()) {
        expect_open(HONE_ERR_UNSUPPORTED, "NVRTC");
        return;
    }
    hone_error err = {0};
    hn_backend *backend;
    hn_backend_info info;
    CHECK(hn_backend_open(&err, "cuda", 0, &backend) == HONE_OK && !*err.text);
    backend->info(backend, &info);
    CHECK(strstr(info.library, "embedded kernels"));
}
static void compiler_asked_for(void) { // by the setting: then there is no other way
    setenv("HONE_NVRTC_LIB", "/nonexistent/libnvrtc.so", 1);
    setenv("HONE_CUDA_CODE", "nvrtc", 1);
    CHECK(hn_config_init(NULL) == HONE_OK);
    expect_open(HONE_ERR_UNSUPPORTED, "NVRTC");
}
static void unknown_code(void) {
    setenv("HONE_CUDA_CODE", "ptx", 1);
    CHECK(hn_config_init(NULL) == HONE_OK);
    expect_open(HONE_ERR_USAGE, "cuda_code is 'ptx'; it may be");
}
static void other_names(void) {
    hone_error err = {0};
    hn_backend *backend;
    hn_backend_info info;
    CHECK(hn_backend_open(&err, "cuda:3", 0, &backend) == HONE_OK);
    backend->info(backend, &info);
    CHECK(!strcmp(info.isa, "sm_90") && strstr(info.device, "Fake H200"));
    CHECK(hn_backend_open(&err, "cuda:4", 0, &backend) == HONE_ERR_UNSUPPORTED);
    CHECK(hn_backend_open(&err, "cuda:x", 0, &backend) == HONE_ERR_UNSUPPORTED);
    CHECK(hn_backend_open(&err, "cuda:-1", 0, &backend) == HONE_ERR_UNSUPPORTED);
    CHECK(hn_backend_open(&err, "cud", 0, &backend) == HONE_ERR_UNSUPPORTED);
}
static void what_is_missing_is_said(void **state) {
    (void)state;
    in_child(no_driver);
    in_child(no_card);
    in_child(old_driver);
    in_child(zero_cards);
    in_child(no_compiler);
    in_child(compiler_asked_for);
    in_child(unknown_code);
    in_child(other_names);
}

// ---- plans --------------------------------------------------------------------------------------
static hn_value *append(hn_graph *g, const char *name, hn_value *a, hn_value *b) {
    hn_value *in[] = {a, b};
    hn_value *out = hn_build(g, NULL, hn_op_find("", name), in, b ? 2 : 1);
    CHECK(out);
    return out;
}

// Element-wise nodes and a Softmax; between them, if wanted, a node that has no kernel on the card.
static hn_module *chain(bool with_host_node) {
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type;
    hn_shape shape = {2, {8, 256}};
    hn_type_set_shape(&type, HN_F32, &shape);
    hn_value *x = hn_graph_add_input(g, "x", &type);
    hn_value *y = append(g, "Softmax", append(g, "Relu", append(g, "Exp", x, NULL), NULL), NULL);
    if (with_host_node) y = append(g, "GlobalLpPool", y, NULL);
    y = append(g, "Tanh", y, NULL);
    y->name = "y";
    CHECK(hn_graph_add_output(g, y) && hn_infer_module(NULL, module) == HONE_OK);
    return module;
}

typedef struct rig {
    hn_module *module;
    hn_backend *backend;
    hn_session *session;
    hn_tensor in, out;
} rig;

static rig rig_new(hn_module *module, int resident) {
    rig r = {.module = module};
    hone_error err = {0};
    hn_shape shape = {2, {8, 256}};
    if (hn_backend_open(&err, "cuda", 0, &r.backend) != HONE_OK) fprintf(stderr, "%s\n", err.text);
    CHECK(r.backend);
    hn_session_options options = {.backend = r.backend, .resident = resident};
    CHECK(hn_session_new(&err, module, &options, &r.session) == HONE_OK);
    CHECK(hn_tensor_new(&err, HN_F32, &shape, &r.in) == HONE_OK);
    return r;
}
static hone_status rig_run(rig *r, hone_error *err) { return hn_session_run(err, r->session, &r->in, 1, &r->out, 1); }
static void rig_free(rig *r) {
    hn_session_free(r->session);
    hn_tensor_free(&r->in);
    r->backend->close(r->backend);
    hn_module_free(r->module);
}

static void plan_is_recorded(void) {
    hone_error err = {0};
    rig r = rig_new(chain(false), false);
    CHECK(rig_run(&r, &err) == HONE_OK);
    int launches = count("launch"), syncs = count("sync");
    CHECK(!strcmp(hn_joules_source(r.session), "nvml")); // the card's, not the host's
    CHECK(launches == 3 && count("graph") == 0); // Exp with Relu behind; Softmax; Tanh
    CHECK(rig_run(&r, &err) == HONE_OK);
    CHECK(count("graph") == 1 && count("replay") == 1 && count("recorded") == 3 + 2);
    launches = count("launch");
    uint64_t allocations = hn_alloc_calls();
    CHECK(rig_run(&r, &err) == HONE_OK && rig_run(&r, &err) == HONE_OK);
    CHECK(hn_alloc_calls() == allocations);
    CHECK(count("launch") == launches && count("replay") == 3 && count("graph") == 1);
    CHECK(count("sync") > syncs);
    hn_session_stats stats;
    hn_session_get_stats(r.session, &stats);
    CHECK(stats.device_steps == 5 && stats.host_steps == 0 && stats.transfer_steps == 2 && stats.recorded_segments == 1);
    CHECK(r.out.shape.dims[1] == 256 && r.out.data);
    rig_free(&r);
}

// The host's node gets copies on both sides and the device is waited for before it.
static void host_node_is_surrounded(void) {
    hone_error err = {0};
    rig r = rig_new(chain(true), false);
    CHECK(rig_run(&r, &err) == HONE_OK && rig_run(&r, &err) == HONE_OK);
    hn_session_stats stats;
    hn_session_get_stats(r.session, &stats);
    CHECK(stats.host_steps == 1 && stats.recorded_segments == 2 && stats.transfer_steps == 2);
    int syncs = count("sync");
    CHECK(rig_run(&r, &err) == HONE_OK);
    CHECK(count("sync") == syncs + 2);
    rig_free(&r);
}

static void resident_runs_do_not_copy(void) {
    hone_error err = {0};
    rig r = rig_new(chain(false), true);
    CHECK(rig_run(&r, &err) == HONE_OK);
    int copies = count("copy"), syncs = count("sync");
    for (int i = 0; i < 5; i++)
        CHECK(rig_run(&r, &err) == HONE_OK);
    CHECK(count("copy") == copies && count("sync") == syncs && count("replay") == 5);
    rig_free(&r);
}

// Three sets of inputs: three runs bring them there, later ones take them in turn, one copy on the card each;
// outputs come when asked for.
static void resident_inputs_take_turns(void) {
    hone_error err = {0};
    rig r = rig_new(chain(false), 3);
    for (int i = 0; i < 3; i++)
        CHECK(rig_run(&r, &err) == HONE_OK);
    CHECK(count("replay") == 0 && count("copy") == 3 * 3); // to the card, kept there, back
    int copies = count("copy"), syncs = count("sync");
    for (int i = 0; i < 4; i++)
        CHECK(rig_run(&r, &err) == HONE_OK);
    CHECK(count("copy") == copies + 4 && count("sync") == syncs && count("replay") == 4);
    CHECK(hn_session_fetch(&err, r.session) == HONE_OK);
    CHECK(count("copy") == copies + 5 && count("sync") == syncs + 1 && r.out.data);
    rig_free(&r);
}

static void memory_is_given_back(void) {
    hone_error err = {0};
    for (int i = 0; i < 3; i++) {
        rig r = rig_new(chain(false), false);
        CHECK(rig_run(&r, &err) == HONE_OK);
        rig_free(&r);
    }
    CHECK(count("alloc") == count("free"));
    CHECK(count("module") == 3); // one a kernel, not one a session
}

// Products: every call has its operands and an aligned workspace, the first proposal that starts is kept.
static hn_module *products(void) {
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type;
    hn_shape shape = {2, {8, 256}}, square = {2, {256, 24}};
    hn_tensor weights;
    hn_type_set_shape(&type, HN_F32, &shape);
    hn_value *x = hn_graph_add_input(g, "x", &type), *y = NULL;
    for (int i = 0; i < 3; i++) { // values of odd sizes between them move the workspaces about
        square.dims[1] = 5 + 9 * i;
        CHECK(hn_tensor_new(NULL, HN_F32, &square, &weights) == HONE_OK);
        hn_value *w = hn_graph_add_constant(g, "", &weights);
        hn_value *sum = append(g, "ReduceSum", append(g, "Softmax", append(g, "MatMul", x, w), NULL), NULL);
        y = y ? append(g, "Add", y, sum) : sum;
    }
    y->name = "y";
    CHECK(hn_graph_add_output(g, y) && hn_infer_module(NULL, module) == HONE_OK);
    return module;
}
static void products_start(void) {
    setenv("FAKE_LT_FAIL", "1", 1);
    hone_error err = {0};
    rig r = rig_new(products(), false);
    if (rig_run(&r, &err) != HONE_OK) fprintf(stderr, "%s\n", err.text);
    CHECK(rig_run(&r, &err) == HONE_OK && rig_run(&r, &err) == HONE_OK);
    hn_session_stats stats;
    hn_session_get_stats(r.session, &stats);
    CHECK(stats.host_steps == 0 && stats.heavy_steps == 3 && stats.recorded_segments == 1);
    rig_free(&r);
}
static void no_proposals(void) { // then ours
    setenv("FAKE_LT_ALGOS", "0", 1);
    hone_error err = {0};
    rig r = rig_new(products(), false);
    CHECK(rig_run(&r, &err) == HONE_OK);
    hn_session_stats stats;
    hn_session_get_stats(r.session, &stats);
    CHECK(stats.host_steps == 0 && stats.heavy_steps == 3 && products_run() == 0);
    rig_free(&r);
}

// The products do not wait for each other: recorded twice, behind each other and on lanes, timed in turn, and the
// faster recording stays. The driver holds the lanes to their rules (fakes/cuda_run.c).
static void branches_go_side_by_side(void) {
    hone_error err = {0};
    rig r = rig_new(products(), false);
    for (int i = 0; i < 30; i++)
        if (rig_run(&r, &err) != HONE_OK) {
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
    CHECK(count("graph") == 2 && count("replay") == 29 && count("lanes") == 3 && count("outside") == 0);
    int syncs = count("sync");
    CHECK(rig_run(&r, &err) == HONE_OK && count("sync") == syncs + 1); // no more timing
    rig_free(&r);
    CHECK(count("alloc") == count("free"));
}
static void faster_lanes_stay(void) {
    setenv("FAKE_CUDA_FAST_LANES", "1", 1);
    branches_go_side_by_side();
}
static void one_stream(void) {
    setenv("HONE_CUDA_STREAMS", "1", 1);
    CHECK(hn_config_init(NULL) == HONE_OK);
    hone_error err = {0};
    rig r = rig_new(products(), false);
    for (int i = 0; i < 3; i++)
        CHECK(rig_run(&r, &err) == HONE_OK);
    CHECK(count("graph") == 1 && count("lanes") == 1);
    rig_free(&r);
}

static void plans_span_two_memories(void **state) {
    (void)state;
    in_child(plan_is_recorded);
    in_child(host_node_is_surrounded);
    in_child(resident_runs_do_not_copy);
    in_child(resident_inputs_take_turns);
    in_child(memory_is_given_back);
    in_child(products_start);
    in_child(no_proposals);
    in_child(branches_go_side_by_side);
    in_child(faster_lanes_stay);
    in_child(one_stream);
}

// ---- precision ----------------------------------------------------------------------------------
static hone_status count_values(void *user, const hn_node *node, int output, const hn_tensor *tensor) {
    CHECK(node->outputs[output] && tensor->data && tensor->bytes == 8 * 256 * 4);
    ++*(int *)user;
    return HONE_OK;
}

// Every value comes to the host once, those of steps that ran there too.
static void values_are_observed(void) {
    hone_error err = {0};
    hn_module *module = chain(true);
    rig r = {.module = module};
    hn_shape shape = {2, {8, 256}};
    CHECK(hn_backend_open(&err, "cuda", 0, &r.backend) == HONE_OK);
    hn_session_options options = {.backend = r.backend, .no_device_passes = true};
    CHECK(hn_session_new(&err, module, &options, &r.session) == HONE_OK && hn_tensor_new(&err, HN_F32, &shape, &r.in) == HONE_OK);
    int values = 0;
    CHECK(hn_session_observe(&err, r.session, &r.in, 1, count_values, &values) == HONE_OK);
    CHECK(values == 5);
    CHECK(hn_session_observe(&err, r.session, &r.in, 1, count_values, &values) == HONE_OK && values == 10);
    rig_free(&r);
}

static hn_value *constant(hn_graph *g, hn_dtype dtype, int rank, int64_t a, int64_t b, double value) {
    hn_shape shape = {rank, {a, b}};
    hn_tensor tensor;
    CHECK(hn_tensor_new(NULL, dtype, &shape, &tensor) == HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++)
        hn_tensor_set_f64(&tensor, i, value);
    return hn_graph_add_constant(g, "", &tensor);
}

static hn_value *quant(hn_graph *g, const char *op, hn_value *x, double scale, hn_dtype dtype, double zero) {
    hn_value *in[] = {x, constant(g, HN_F32, 0, 0, 0, scale), constant(g, dtype, 0, 0, 0, zero)};
    hn_value *out = hn_build(g, NULL, hn_op_find("", op), in, 3);
    CHECK(out);
    return out;
}

// x -> quantised by (dtype, zero) -> product with 8-bit weights -> Relu -> quantised -> back
static hn_module *quantised(hn_dtype dtype, double zero, int columns) {
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type;
    hn_shape shape = {2, {8, 256}};
    hn_type_set_shape(&type, HN_F32, &shape);
    hn_value *x = hn_graph_add_input(g, "x", &type);
    hn_value *q = quant(g, "DequantizeLinear", quant(g, "QuantizeLinear", x, 0.1, dtype, zero), 0.1, dtype, zero);
    hn_value *w = quant(g, "DequantizeLinear", constant(g, HN_I8, 2, 256, columns, 3), 0.01, HN_I8, 0);
    hn_value *y = quant(g, "QuantizeLinear", append(g, "Relu", append(g, "MatMul", q, w), NULL), 0.2, dtype, zero);
    y = quant(g, "DequantizeLinear", y, 0.2, dtype, zero);
    y->name = "y";
    CHECK(hn_graph_add_output(g, y) && hn_infer_module(NULL, module) == HONE_OK);
    return module;
}

static int steps_named(const rig *r, const char *variant, hn_dtype dtype) {
    hn_step_info steps[32];
    int count = hn_session_steps(r->session, steps, 32), found = 0;
    for (int i = 0; i < count && i < 32; i++)
        found += !strncmp(steps[i].variant, variant, strlen(variant)) &&
                 (dtype == HN_NONE || (steps[i].node && steps[i].node->outputs[0]->type.dtype == dtype));
    return found;
}

static void run_rig(rig *r) {
    hone_error err = {0};
    hone_status status = rig_run(r, &err);
    if (status == HONE_OK) status = rig_run(r, &err);
    if (status != HONE_OK) fprintf(stderr, "%s\n", err.text);
    CHECK(status == HONE_OK);
    hn_session_stats stats;
    hn_session_get_stats(r->session, &stats);
    CHECK(stats.host_steps == 0);
}

static void signed_layers_are_integers(void) {
    rig r = rig_new(quantised(HN_I8, 0, 48), false);
    run_rig(&r);
    CHECK(steps_named(&r, "cuda:q_gemm", HN_I8) == 1 && steps_named(&r, "cublaslt", HN_NONE) == 0);
    CHECK(products_run() == 0);
    rig_free(&r);
}
static void other_layers_are_floats(void) {
    rig r = rig_new(quantised(HN_U8, 128, 48), false);
    run_rig(&r);
    CHECK(steps_named(&r, "cuda:q_gemm", HN_NONE) == 0 && steps_named(&r, "cublaslt", HN_F32) == 1);
    rig_free(&r);
}

static void marked_layers_are_narrow(void) {
    hn_module *module = products();
    for (hn_node *node = module->main->first; node; node = node->next)
        if (!strcmp(node->op_type, "MatMul")) node->compute = HN_BF16;
    rig r = rig_new(module, false);
    run_rig(&r);
    CHECK(steps_named(&r, "cublaslt", HN_BF16) == 3 && steps_named(&r, "cublaslt", HN_F32) == 0);
    rig_free(&r);
}

// The module's own hint counts like the setting.
static void tf32_is_a_hint(void) {
    for (int on = 0; on < 2; on++) {
        hn_module *module = products();
        CHECK(!on || hn_module_set_meta(module, HN_HINT_TF32, "1"));
        rig r = rig_new(module, false);
        run_rig(&r);
        rig_free(&r);
        CHECK(count_in("HONE_CUBLASLT_LIB", "fake_lt_compute", "tf32") == (on ? 3 : 0));
    }
}

static void precisions_have_plans(void **state) {
    (void)state;
    in_child(values_are_observed);
    in_child(signed_layers_are_integers);
    in_child(other_layers_are_floats);
    in_child(marked_layers_are_narrow);
    in_child(tf32_is_a_hint);
}

// ---- faults -------------------------------------------------------------------------------------
static void sticky_fault(void) {
    setenv("FAKE_CUDA_SYNC", "700@1", 1);
    hone_error err = {0};
    rig r = rig_new(chain(false), false);
    CHECK(rig_run(&r, &err) == HONE_ERR_DEVICE);
    CHECK(strstr(err.text, "cuda:0 is lost") && strstr(err.text, "touched memory that is not its own"));
    CHECK(strstr(err.text, "copy:to_host")); // started last
    CHECK(rig_run(&r, &err) == HONE_ERR_DEVICE);
    CHECK(strstr(err.text, "is lost"));
    rig_free(&r); // a lost card is let go of quietly
}
static void no_room(void) {
    setenv("FAKE_CUDA_MEMORY", "1000", 1);
    hone_error err = {0};
    rig r = rig_new(chain(false), false);
    CHECK(rig_run(&r, &err) == HONE_ERR_NOMEM);
    CHECK(strstr(err.text, "do not fit") && strstr(err.text, "of its 1000"));
    rig_free(&r);
}
static void broken_kernel(void) {
    setenv("FAKE_NVRTC_ERROR", "hn_k_softmax", 1);
    hone_error err = {0};
    rig r = rig_new(chain(false), false);
    CHECK(rig_run(&r, &err) == HONE_ERR_INTERNAL);
    CHECK(strstr(err.text, "does not compile for sm_80") && strstr(err.text, "a scripted error"));
    rig_free(&r);
}
static void launch_fault(void) {
    setenv("FAKE_CUDA_LAUNCH", "719@2", 1);
    hone_error err = {0};
    rig r = rig_new(chain(false), false);
    CHECK(rig_run(&r, &err) == HONE_ERR_DEVICE);
    CHECK(strstr(err.text, "cuda:0 is lost") && strstr(err.text, "a kernel failed") && strstr(err.text, "softmax"));
    CHECK(rig_run(&r, &err) == HONE_ERR_DEVICE && strstr(err.text, "softmax"));
    rig_free(&r);
}
static void faults_are_told(void **state) {
    (void)state;
    in_child(launch_fault);
    in_child(sticky_fault);
    in_child(no_room);
    in_child(broken_kernel);
}

// ---- the store ----------------------------------------------------------------------------------
static char g_store[64];

// A convolution with bias, a residual and Relu.
static hn_module *convolution(void) {
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type;
    hn_shape flat = {2, {8, 256}}, image = {4, {1, 8, 16, 16}}, kernel = {4, {8, 8, 1, 1}}, channels = {1, {8}};
    hn_shape four = {1, {4}};
    hn_tensor w, b, to;
    hn_type_set_shape(&type, HN_F32, &flat);
    CHECK(hn_tensor_new(NULL, HN_F32, &kernel, &w) == HONE_OK && hn_tensor_new(NULL, HN_F32, &channels, &b) == HONE_OK &&
          hn_tensor_new(NULL, HN_I64, &four, &to) == HONE_OK);
    for (int i = 0; i < 4; i++)
        ((int64_t *)to.data)[i] = image.dims[i];
    for (int i = 0; i < 8; i++)
        ((float *)b.data)[i] = (float)i;
    hn_value *x = hn_graph_add_input(g, "x", &type);
    hn_value *y = append(g, "Reshape", append(g, "Tanh", x, NULL), hn_graph_add_constant(g, "", &to));
    hn_value *in[] = {y, hn_graph_add_constant(g, "", &w), hn_graph_add_constant(g, "", &b)};
    hn_value *c = hn_build(g, NULL, hn_op_find("", "Conv"), in, 3);
    CHECK(c);
    y = append(g, "Relu", append(g, "Add", c, y), NULL);
    y->name = "y";
    CHECK(hn_graph_add_output(g, y) && hn_infer_module(NULL, module) == HONE_OK);
    return module;
}

static void run_twice(hn_module *module) {
    hone_error err = {0};
    rig r = rig_new(module, false);
    if (rig_run(&r, &err) != HONE_OK || rig_run(&r, &err) != HONE_OK) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    rig_free(&r);
    hn_keeper_wait();
}

static void code_made(void) {
    run_twice(chain(false));
    CHECK(compiled() == 3);
}
static void code_found(void) {
    run_twice(chain(false));
    CHECK(compiled() == 0 && count("module") == 3);
}
static void code_of_another_compiler(void) {
    setenv("FAKE_NVRTC_MINOR", "8", 1);
    code_made();
}
static void code_refused(void) { // by the driver: made again
    setenv("FAKE_CUDA_REFUSE", "1", 1);
    run_twice(chain(false));
    CHECK(compiled() == 1 && count("module") == 3);
}
static void damage_blobs(void) {
    char path[512];
    snprintf(path, sizeof path, "%s/v1/blobs", g_store);
    DIR *folder = opendir(path);
    CHECK(folder);
    int damaged = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/v1/blobs/%s", g_store, e->d_name);
        FILE *f = fopen(path, "r+b");
        CHECK(f && fseek(f, -1, SEEK_END) == 0 && fputc('!', f) == '!' && fclose(f) == 0);
        damaged++;
    }
    closedir(folder);
    CHECK(damaged >= 3);
}

static void products_measured(void) {
    run_twice(products());
    CHECK(products_run() == 3 * (2 * (1 + 3 * 4) + 1) + 2 * 3); // both proposals tried, then run; recorded, also on lanes
}
static void products_known(void) {
    run_twice(products());
    CHECK(products_run() == 3 + 2 * 3);
}
static void products_of_another_library(void) { // proposes three: what was kept does not count
    setenv("FAKE_LT_ALGOS", "3", 1);
    run_twice(products());
    CHECK(products_run() == 3 * (3 * (1 + 3 * 4) + 1) + 2 * 3);
}

static void plans_built(void) {
    run_twice(convolution());
    CHECK(dnn_count("built") >= 2 && dnn_count("loaded") == 0 && dnn_count("run") > 10);
    CHECK(dnn_count("alive") == 0);
}
static void plans_found(void) {
    run_twice(convolution());
    CHECK(dnn_count("built") == 0 && dnn_count("heuristics") == 0 && dnn_count("loaded") == 1);
    CHECK(dnn_count("run") == 2 && dnn_count("alive") == 0);
}
static void plans_refused(void) {
    setenv("FAKE_DNN_JSON", "0", 1);
    plans_built();
}
static void plans_of_another_version(void) {
    setenv("FAKE_DNN_VERSION", "91400", 1);
    plans_built();
}
static void no_plan(void) { // then ours
    setenv("FAKE_DNN_VERSION", "91500", 1);
    setenv("FAKE_DNN_PLANS", "0", 1);
    hone_error err = {0};
    rig r = rig_new(convolution(), false);
    CHECK(rig_run(&r, &err) == HONE_OK);
    hn_session_stats stats;
    hn_session_get_stats(r.session, &stats);
    CHECK(stats.host_steps == 0 && dnn_count("run") == 0);
    rig_free(&r);
    CHECK(dnn_count("alive") == 0);
}
static void engines_fail(void) {
    setenv("FAKE_DNN_VERSION", "91600", 1);
    setenv("FAKE_DNN_FAIL", "9", 1);
    hone_error err = {0};
    rig r = rig_new(convolution(), false);
    CHECK(rig_run(&r, &err) == HONE_ERR_DEVICE && strstr(err.text, "cuDNN runs none of the engines"));
    rig_free(&r);
}
static void fewer_steps_fused(void) { // the graph takes two operations: the rest runs behind
    setenv("FAKE_DNN_VERSION", "91700", 1);
    setenv("FAKE_DNN_OPS", "2", 1);
    plans_built();
    CHECK(count("launch") >= 2);
}

static void choices_are_kept(void **state) {
    (void)state;
    snprintf(g_store, sizeof g_store, "/tmp/hone-test-cuda-XXXXXX");
    assert_non_null(mkdtemp(g_store));
    setenv("HONE_STORE", g_store, 1);
    in_child(code_made);
    in_child(code_found);
    in_child(code_of_another_compiler);
    in_child(code_refused);
    in_child(damage_blobs);
    in_child(code_made); // what is damaged is dropped
    in_child(code_found);
    in_child(products_measured);
    in_child(products_known);
    in_child(products_of_another_library);
    in_child(plans_built);
    in_child(plans_found);
    in_child(plans_refused);
    in_child(plans_of_another_version);
    in_child(no_plan);
    in_child(engines_fail);
    in_child(fewer_steps_fused);
    setenv("HONE_STORE", "off", 1);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", g_store);
    assert_int_equal(system(command), 0);
}

int main(void) {
    char path[4096];
    setenv("HONE_STORE", "off", 1);
    const char *build = getenv("HONE_BUILD_DIR");
    snprintf(path, sizeof path, "%s/fakes/libcuda_run.so", build ? build : ".");
    setenv("HONE_CUDA_LIB", path, 1);
    snprintf(path, sizeof path, "%s/fakes/libnvrtc.so", build ? build : ".");
    setenv("HONE_NVRTC_LIB", path, 1);
    snprintf(path, sizeof path, "%s/fakes/libcublasLt.so", build ? build : ".");
    setenv("HONE_CUBLASLT_LIB", path, 1);
    snprintf(path, sizeof path, "%s/fakes/libcudnn.so", build ? build : ".");
    setenv("HONE_CUDNN_LIB", path, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(plans_span_two_memories),
        cmocka_unit_test(precisions_have_plans),
        cmocka_unit_test(faults_are_told),
        cmocka_unit_test(choices_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
