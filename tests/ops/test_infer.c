// SPDX-License-Identifier: Apache-2.0
// Inference over symbolic dims: shape arithmetic as exporters write it must end in exact dims, and
// what cannot be known must stay unknown.
#include "support/test.h"
#include "ops/ops.h"

typedef struct infer_case {
    const char *name;
    const char *body;  // of the main graph in text form; %y is looked at
    const char *wants; // type of %y; "?" any unnamed dim. NULL: the sentence below
    const char *fails; // part of the error's sentence
} infer_case;

// The type as text, unnamed symbols as "?".
static char *type_text(const hn_module *module, const hn_value *value) {
    hn_str out = {0};
    const hn_type *type = &value->type;
    hn_str_printf(&out, "%s[", type->dtype ? hn_dtype_name(type->dtype) : "?");
    if (type->rank < 0) hn_str_append(&out, "*");
    for (int d = 0; d < type->rank; d++) {
        if (d) hn_str_append(&out, ", ");
        hn_str dim = {0};
        hn_dim_print(&dim, module->dims, type->dims[d]);
        const char *text = hn_str_get(&dim);
        bool unnamed = text[0] == '?' && strspn(text + 1, "0123456789") == strlen(text + 1);
        hn_str_append(&out, unnamed ? "?" : text);
        hn_str_free(&dim);
    }
    hn_str_append(&out, "]");
    return out.data;
}

static bool run(const infer_case *c) {
    hn_str text = {0};
    hn_str_printf(&text, "hone-ir 1\nopset \"\" 24\ndim S from 2 to 4096\ngraph \"main\" {\n"
                         "input %%x : f32[N, S, 12]\ninput %%u : i64[]\n"
                         "input %%flag : bool[]\n");
    for (const char *at = c->body; *at; at++) { // every node is of the canonical opset
        if (*at == '(') hn_str_append(&text, "@24");
        hn_str_append_n(&text, at, 1);
    }
    hn_str_append(&text, "\noutput %y\n}\n");
    hone_error err = {0};
    hn_module *module = NULL;
    hone_status status = hn_module_parse(&err, hn_str_get(&text), &module);
    if (status != HONE_OK) fail_msg("%s: %s", c->name, err.text);
    status = hn_ops_resolve(&err, module);
    if (status == HONE_OK) status = hn_infer_module(&err, module);
    // A second time nothing may change: plans compare types.
    char *first = status == HONE_OK ? type_text(module, module->main->outputs.data[0]) : NULL;
    hn_dim before = first && module->main->outputs.data[0]->type.rank > 0
                        ? module->main->outputs.data[0]->type.dims[0] : 0;
    if (status == HONE_OK) status = hn_infer_module(&err, module);
    bool good;
    if (c->wants) {
        good = status == HONE_OK && strcmp(first, c->wants) == 0;
        if (!good) print_error("%s: %s, not %s %s\n", c->name, first ? first : "-", c->wants, err.text);
        if (good && module->main->outputs.data[0]->type.rank > 0 &&
            module->main->outputs.data[0]->type.dims[0] != before) {
            print_error("%s: inferring again changes the dims\n", c->name);
            good = false;
        }
    } else {
        good = status != HONE_OK && strstr(err.text, c->fails);
        if (!good) print_error("%s: '%s' lacks '%s'\n", c->name, err.text, c->fails);
    }
    hn_free(first);
    hn_str_free(&text);
    hn_module_free(module);
    return good;
}

static void run_all(const infer_case *cases, size_t count) {
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += !run(&cases[i]);
    if (failed) fail_msg("%d of %zu cases failed", failed, count);
}

#define SHAPE "%s = Shape(%x)\n"
#define I64(name, list) "const %" name " : i64[] = {" list "}\n"
#define VEC(name, n, list) "const %" name " : i64[" n "] = {" list "}\n"

static const infer_case k_arithmetic[] = {
    {"heads of attention", SHAPE I64("i0", "0") I64("i1", "1") VEC("a0", "1", "0") VEC("h", "2", "4, 3")
     "%n = Gather(%s, %i0)\n%m = Gather(%s, %i1)\n%nu = Unsqueeze(%n, %a0)\n%mu = Unsqueeze(%m, %a0)\n"
     "%t = Concat(%nu, %mu, %h) {axis = 0}\n%r = Reshape(%x, %t)\n%y = Transpose(%r) {perm = [0, 2, 1, 3]}", "f32[N, 4, S, 3]"},
    {"-1 cancels symbols", SHAPE VEC("st", "1", "0") VEC("en", "1", "2") VEC("hole", "2", "3, -1")
     "%p = Slice(%s, %st, %en)\n%t = Concat(%p, %hole) {axis = 0}\n%y = Reshape(%x, %t)", "f32[N, S, 3, 4]"},
    {"-1 as a product", VEC("t", "2", "-1, 6") "%y = Reshape(%x, %t)", "f32[2*N*S, 6]"},
    {"flattened and sized", SHAPE "%p = ReduceProd(%s)\n%y = Reshape(%x, %p)", "f32[12*N*S]"},
    {"size of the tensor", VEC("a0", "1", "0") "%z = Size(%x)\n%p = Unsqueeze(%z, %a0)\n%y = Reshape(%x, %p)", "f32[12*N*S]"},
    {"pads of the old exporter", VEC("short", "2", "1, 2") VEC("four", "1", "4") VEC("pair", "2", "-1, 2") VEC("m1", "1", "-1")
     VEC("low", "1", "-9223372036854775807") VEC("a0", "1", "0")
     "%zeros = ConstantOfShape(%four) {value = tensor : i64[1] {0}}\n%all = Concat(%short, %zeros) {axis = 0}\n%two = Reshape(%all, %pair)\n"
     "%back = Slice(%two, %m1, %low, %a0, %m1)\n%turned = Transpose(%back) {perm = [1, 0]}\n%flat = Reshape(%turned, %m1)\n"
     "%pads = Cast(%flat) {to = 7}\n%y = Pad(%x, %pads)", "f32[N, S, 15]"},
    {"twice by a float", SHAPE "const %f : f32[] = {2}\n%c = Cast(%s) {to = 1}\n%m = Mul(%c, %f)\n%fl = Floor(%m)\n%t = Cast(%fl) {to = 7}\n%y = ConstantOfShape(%t)", "f32[2*N, 2*S, 24]"},
    {"half by a float", SHAPE "const %f : f32[] = {0.5}\n%c = Cast(%s) {to = 1}\n%m = Mul(%c, %f)\n%fl = Floor(%m)\n%t = Cast(%fl) {to = 7}\n%y = ConstantOfShape(%t)", "f32[(N)//2, (S)//2, 6]"},
    {"a third, rounded up", SHAPE "const %f : f32[] = {3}\n%c = Cast(%s) {to = 1}\n%m = Div(%c, %f)\n%fl = Ceil(%m)\n%t = Cast(%fl) {to = 7}\n%y = ConstantOfShape(%t)", "f32[(N+2)//3, (S+2)//3, 4]"},
    {"integer arithmetic", SHAPE VEC("two", "1", "2") VEC("k", "3", "1, 2, 3")
     "%a = Div(%s, %two)\n%b = Mul(%a, %two)\n%c = Sub(%s, %b)\n%d = Add(%c, %k)\n%y = ConstantOfShape(%d)", "f32[-2*((N)//2)+N+1, -2*((S)//2)+S+2, 3]"},
    {"remainder", SHAPE VEC("two", "1", "2") "%a = Mod(%s, %two)\n%y = ConstantOfShape(%a)", "f32[(N)%2, (S)%2, 0]"},
    {"least and most", SHAPE VEC("c", "3", "1, 9999, 5") "%a = Max(%s, %c)\n%y = ConstantOfShape(%a)", "f32[max(1,N), 9999, 12]"},
    {"where a shape is -1", SHAPE VEC("m1", "1", "-1") VEC("ones", "3", "1, 1, 1") "const %w : f32[1, 1, 1] = {7}\n"
     "%e = Equal(%s, %m1)\n%t = Where(%e, %ones, %s)\n%y = Expand(%w, %t)", "f32[N, S, 12]"},
    {"range of a dim", SHAPE I64("i0", "0") I64("one", "1") I64("i1", "1") "%n = Gather(%s, %i1)\n%y = Range(%i0, %n, %one)", "i64[S]"},
    {"range in steps", SHAPE I64("i0", "0") I64("two", "2") "%n = Gather(%s, %i0)\n%m = Mul(%n, %two)\n%y = Range(%i0, %m, %two)", "i64[N]"},
    {"a dim written over", SHAPE "const %at : i64[1, 1] = {1}\n" VEC("v", "1", "5") "%t = ScatterND(%s, %at, %v)\n%y = ConstantOfShape(%t)", "f32[N, 5, 12]"},
    {"one element is not known", SHAPE I64("i0", "0") VEC("a0", "1", "0")
     "%n = Gather(%s, %i0)\n%nu = Unsqueeze(%n, %a0)\n%uu = Unsqueeze(%u, %a0)\n%t = Concat(%nu, %uu) {axis = 0}\n%y = ConstantOfShape(%t)", "f32[N, ?]"},
    {"an overridable shape says nothing", "overridable %t : i64[2] = {3, 4}\n%y = ConstantOfShape(%t)", "f32[?, ?]"},
    {"repeats by shape", SHAPE "const %w : f32[2, 1, 1] = {1, 2}\n%y = Tile(%w, %s)", "f32[2*N, S, 12]"},
    {"a shape from the back", "%s = Shape(%x) {start = -2}\n%y = ConstantOfShape(%s)", "f32[S, 12]"},
};

static const infer_case k_slices[] = {
    {"all but the last", VEC("b", "1", "0") VEC("e", "1", "-1") VEC("a", "1", "1") "%y = Slice(%x, %b, %e, %a)", "f32[N, S-1, 12]"},
    {"all but the last of perhaps none", VEC("b", "1", "0") VEC("e", "1", "-1") VEC("a", "1", "0") "%y = Slice(%x, %b, %e, %a)", "f32[max(0,N-1), S, 12]"},
    {"from two on", VEC("b", "1", "2") VEC("e", "1", "9223372036854775807") VEC("a", "1", "1") "%y = Slice(%x, %b, %e, %a)", "f32[N, S-2, 12]"},
    {"the last two", VEC("b", "1", "-2") VEC("e", "1", "2147483647") VEC("a", "1", "1") "%y = Slice(%x, %b, %e, %a)", "f32[N, 2, 12]"},
    {"at most 128", VEC("b", "1", "0") VEC("e", "1", "128") VEC("a", "1", "1") "%y = Slice(%x, %b, %e, %a)", "f32[N, min(128,S), 12]"},
    {"turned round", VEC("b", "1", "-1") VEC("e", "1", "-9223372036854775808") VEC("a", "1", "1") VEC("m", "1", "-1") "%y = Slice(%x, %b, %e, %a, %m)", "f32[N, S, 12]"},
    {"every second", VEC("b", "1", "0") VEC("e", "1", "9223372036854775807") VEC("a", "1", "1") VEC("m", "1", "2") "%y = Slice(%x, %b, %e, %a, %m)", "f32[N, (S+1)//2, 12]"},
    {"halves of a symbol", "%a, %y = Split(%x) {axis = 1, num_outputs = 2}", "f32[N, -((S+1)//2)+S, 12]"},
    {"bounds of unknown sign", VEC("a0", "1", "0") VEC("e", "1", "9") "%b = Unsqueeze(%u, %a0)\n%y = Slice(%x, %b, %e)", "f32[?, S, 12]"},
    {"part against whole", I64("i0", "0") VEC("b", "1", "0") VEC("e", "1", "128") VEC("a", "1", "1") "%p = Slice(%x, %b, %e, %a)\n%y = Add(%p, %x)", "f32[N, min(128,S), 12]"},
    {"two symbols do not broadcast for sure", "input %z : f32[M, 1, 1]\n%y = Add(%x, %z)", "f32[?, S, 12]"},
    {"as many as k", SHAPE VEC("k", "1", "3") "%v, %y = TopK(%x, %k)", "i64[N, S, 3]"},
    {"found places", "%y = NonZero(%x)", "i64[3, ?]"},
    {"axes that come from outside", VEC("a0", "1", "0") "%a = Unsqueeze(%u, %a0)\n%y = ReduceSum(%x, %a) {keepdims = 0}", "f32[?, ?]"},
};

#define BRANCHES(a, b) "then_branch = graph \"a\" { " a " }, else_branch = graph \"b\" { " b " }"
static const infer_case k_control[] = {
    {"branches that agree", "%y = If(%flag) {" BRANCHES("%a = Relu(%x)\noutput %a", "%b = Neg(%x)\noutput %b") "}", "f32[N, S, 12]"},
    {"branches that differ", "const %w : f32[1, 1, 12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}\n%y = If(%flag) {" BRANCHES("%a = Relu(%x)\noutput %a", "%b = Neg(%w)\noutput %b") "}", "f32[?, ?, 12]"},
    {"a branch that cannot run", VEC("a", "1", "2") "%y = If(%flag) {" BRANCHES("%p = Squeeze(%x, %a)\noutput %p", "%q = Identity(%x)\noutput %q") "}", "f32[N, S, 12]"},
    {"the branch that will run is wrong", "const %yes : bool[] = {1}\n" VEC("a", "1", "2") "%y = If(%yes) {" BRANCHES("%p = Squeeze(%x, %a)\noutput %p", "%q = Identity(%x)\noutput %q") "}", NULL, "cannot be squeezed"},
    {"the taken branch alone counts", "const %no : bool[] = {0}\n" VEC("a", "1", "0") "%y = If(%no) {" BRANCHES("%p = Unsqueeze(%x, %a)\noutput %p", "%q = Identity(%x)\noutput %q") "}", "f32[N, S, 12]"},
    {"branches of two types", "%y = If(%flag) {" BRANCHES("%p = IsNaN(%x)\noutput %p", "%q = Identity(%x)\noutput %q") "}", NULL, "bool and f32"},
    {"a state that stays", I64("m", "5") "%y = Loop(%m, _, %x) {body = graph \"b\" { input %i : i64[] input %c : bool[] input %v : f32[?1, ?2, ?3] "
     "%w = Relu(%v) output %c output %w }}", "f32[N, S, 12]"},
    {"a state that grows", I64("m", "5") "%y = Loop(%m, _, %x) {body = graph \"b\" { input %i : i64[] input %c : bool[] input %v : f32[?1, ?2, ?3] "
     "%w = Concat(%v, %x) {axis = 0} output %c output %w }}", "f32[?, S, 12]"},
    {"what the steps give", I64("m", "5") "%z, %y = Loop(%m, _, %x) {body = graph \"b\" { input %i : i64[] input %c : bool[] input %v : f32[?1, ?2, ?3] "
     "%w = Relu(%v) %t = Shape(%v) output %c output %w output %t }}", "i64[?, 3]"},
    {"a state that changes its type", I64("m", "5") "%y = Loop(%m, _, %x) {body = graph \"b\" { input %i : i64[] input %c : bool[] input %v : f32[?1, ?2, ?3] "
     "%w = Cast(%v) {to = 11} output %c output %w }}", NULL, "becomes f64"},
    {"too few inputs", I64("m", "5") "%y = Loop(%m, _, %x) {body = graph \"b\" { input %i : i64[] input %c : bool[] output %c output %i }}", NULL, "3 and 2 are due"},
    {"scanned along the second axis", "const %h : f32[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}\n%z, %y = Scan(%h, %x) {num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], "
     "body = graph \"b\" { input %s0 : f32[?1] input %e : f32[?2, ?3] %n = Identity(%s0) %o = Relu(%e) output %n output %o }}", "f32[N, S, 12]"},
};

static void test_arithmetic(void **state) { (void)state; run_all(k_arithmetic, HN_COUNT_OF(k_arithmetic)); }
static void test_slices(void **state) { (void)state; run_all(k_slices, HN_COUNT_OF(k_slices)); }
static void test_control(void **state) { (void)state; run_all(k_control, HN_COUNT_OF(k_control)); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
