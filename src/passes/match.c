// SPDX-License-Identifier: Apache-2.0
// The pattern matcher: see match.h. Patterns are compiled once a run, then solved as goals with
// backtracking: a goal is (sub-pattern, value), the rest of the goals hang behind it on the C
// stack.
#include "passes/match.h"
#include <math.h>

#define MAX_TERMS  64
#define MAX_ARGS   8
#define MAX_ROUNDS 64

typedef enum term_kind { TERM_VALUE, TERM_CONST, TERM_NUMBER, TERM_OP } term_kind;

typedef struct term {
    term_kind kind;
    bool optional, shared, rest;
    int var; // -1: none
    double number;
    hn_slice ops; // "Relu|Clip"
    int args[MAX_ARGS], arg_count;
} term;

typedef struct program {
    term terms[MAX_TERMS];
    int count;
    const char *names[HN_MATCH_VARS];
    int name_lengths[HN_MATCH_VARS];
    int var_count;
} program;

// ---- compiling ----------------------------------------------------------------------------------

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '|';
}

static void blanks(const char **at) {
    while (**at == ' ' || **at == '\n')
        ++*at;
}

static int variable(program *p, hn_slice name) {
    for (int i = 0; i < p->var_count; i++)
        if ((size_t)p->name_lengths[i] == name.length &&
            memcmp(p->names[i], name.data, name.length) == 0)
            return i;
    if (p->var_count == HN_MATCH_VARS) return -1;
    p->names[p->var_count] = name.data;
    p->name_lengths[p->var_count] = (int)name.length;
    return p->var_count++;
}

static hn_slice word(const char **at) {
    const char *begin = *at;
    while (word_char(**at))
        ++*at;
    return (hn_slice){begin, (size_t)(*at - begin)};
}

// Index of the compiled term, -1 where the pattern is malformed (a bug: the tests compile all
// rows).
static int compile_term(program *p, const char **at) {
    blanks(at);
    if (p->count == MAX_TERMS) return -1;
    int index = p->count++;
    term t = {.var = -1};
    if (**at == '~') {
        t.shared = true;
        ++*at;
    }
    bool negative = **at == '-';
    if (negative) ++*at;
    hn_slice name = word(at);
    if (!name.length) return -1;
    bool number = name.data[0] >= '0' && name.data[0] <= '9';
    if (number) {
        t.kind = TERM_NUMBER;
        if (!hn_parse_f64(name, &t.number)) return -1;
        if (negative) t.number = -t.number;
        p->terms[index] = t;
        return index;
    }
    hn_slice var = name;
    if (**at == ':') {
        ++*at;
        var = word(at);
    }
    if (**at == '(') {
        t.kind = TERM_OP;
        t.ops = name;
        t.var = var.data == name.data ? -1 : variable(p, var);
        ++*at;
        blanks(at);
        while (**at && **at != ')') {
            if (strncmp(*at, "...", 3) == 0) {
                t.rest = true;
                *at += 3;
            } else {
                int arg = compile_term(p, at);
                if (arg < 0 || t.arg_count == MAX_ARGS) return -1;
                t.args[t.arg_count++] = arg;
            }
            blanks(at);
            if (**at == ',') ++*at;
            blanks(at);
        }
        if (**at != ')') return -1;
        ++*at;
    } else {
        t.kind = TERM_VALUE;
        t.var = variable(p, var);
        if (**at == '!') {
            t.kind = TERM_CONST;
            ++*at;
        }
        if (**at == '?') {
            t.optional = true;
            ++*at;
        }
    }
    p->terms[index] = t;
    return index;
}

static bool compile(const char *pattern, program *out) {
    *out = (program){0};
    const char *at = pattern;
    if (compile_term(out, &at) != 0) return false;
    blanks(&at);
    return !*at && out->terms[0].kind == TERM_OP;
}

// ---- solving ------------------------------------------------------------------------------------

typedef struct goal {
    int term;
    hn_value *value;
    hn_node *node; // instead of a value: the root
    const struct goal *next;
} goal;

static bool named(hn_slice ops, const hn_node *node) {
    while (ops.length) {
        const char *bar = memchr(ops.data, '|', ops.length);
        hn_slice one = {ops.data, bar ? (size_t)(bar - ops.data) : ops.length};
        ops.data += one.length + (bar != NULL);
        ops.length -= one.length + (bar != NULL);
        size_t domain = strlen(node->domain);
        if (domain) { // "domain.Op"
            if (one.length <= domain + 1 || memcmp(one.data, node->domain, domain) != 0 ||
                one.data[domain] != '.')
                continue;
            one.data += domain + 1;
            one.length -= domain + 1;
        }
        if (hn_slice_eq(one, node->op_type)) return true;
    }
    return false;
}

static bool is_number(const hn_match *m, const hn_value *value, double number) {
    const hn_tensor *tensor = hn_pass_constant(m->ctx, value);
    if (!tensor || hn_tensor_count(tensor) != 1 || tensor->dtype == HN_STRING) return false;
    double got = hn_tensor_get_f64(tensor, 0);
    // Exporters write 1.4142135 and 0.044715 to a few digits; half-precision files to three.
    double slack = hn_dtype_bits(tensor->dtype) < 32 ? 2e-3 : 2e-6;
    return fabs(got - number) <= slack * fabs(number);
}

// All of a match's inner values are used inside it only.
static bool closed(const hn_match *m) {
    for (int i = 1; i < m->node_count; i++) {
        if (m->shared[i]) continue;
        const hn_node *node = m->nodes[i];
        for (int o = 0; o < node->output_count; o++) {
            const hn_value *out = node->outputs[o];
            if (!out) continue;
            if (out->graph_output_uses || hn_pass_pinned(m->ctx, out)) return false;
            for (size_t u = 0; u < out->uses.count; u++) {
                bool inside = false;
                for (int j = 0; j < m->node_count && !inside; j++)
                    inside = m->nodes[j] == out->uses.data[u].node;
                if (!inside) return false;
            }
        }
    }
    return true;
}

static bool solve(const program *p, hn_match *m, const goal *g);

static bool solve_args(const program *p, hn_match *m, const goal *g, const term *t,
                       const hn_node *node, bool swap) {
    goal goals[MAX_ARGS];
    int base = node->post_count ? node->base_input_count : node->input_count;
    for (int i = 0; i < t->arg_count; i++) {
        int from = swap ? 1 - i : i;
        goals[i] = (goal){t->args[i], from < base ? node->inputs[from] : NULL, NULL,
                          i + 1 < t->arg_count ? &goals[i + 1] : g->next};
    }
    return solve(p, m, t->arg_count ? &goals[0] : g->next);
}

static bool solve_op(const program *p, hn_match *m, const goal *g, const term *t) {
    hn_node *node = g->node ? g->node : g->value ? g->value->producer : NULL;
    if (!node || !named(t->ops, node) || node->graph != m->root->graph || node->post_count)
        return false;
    if (!g->node && g->value->output_index != 0) return false;
    if (!t->rest && node->input_count > t->arg_count) return false;
    if (m->node_count == HN_MATCH_NODES) return false;
    int known = 0;
    while (known < m->node_count && m->nodes[known] != node)
        known++;
    bool added = known == m->node_count;
    if (added) {
        m->nodes[m->node_count] = node;
        m->shared[m->node_count++] = t->shared;
    }
    int count = m->node_count;
    bool commutes = t->arg_count == 2 && hn_op_has(node->op, HN_T_COMMUTATIVE);
    if (solve_args(p, m, g, t, node, false)) return true;
    m->node_count = count;
    if (commutes && solve_args(p, m, g, t, node, true)) return true;
    m->node_count = added ? known : count;
    return false;
}

static bool solve(const program *p, hn_match *m, const goal *g) {
    if (!g) return closed(m);
    const term *t = &p->terms[g->term];
    bool fresh = t->var >= 0 && !m->bound[t->var];
    if (t->var >= 0 && !fresh) {
        hn_value *here = g->node ? g->node->outputs[0] : g->value;
        if (m->values[t->var] != here) return false;
    }
    if (fresh) {
        m->bound[t->var] = true;
        m->values[t->var] = g->node ? g->node->outputs[0] : g->value;
    }
    bool ok = false;
    switch (t->kind) {
    case TERM_VALUE:
        ok = (g->value || t->optional) && solve(p, m, g->next);
        break;
    case TERM_CONST:
        ok = (g->value ? hn_pass_constant(m->ctx, g->value) != NULL : t->optional) &&
             solve(p, m, g->next);
        break;
    case TERM_NUMBER:
        ok = g->value && is_number(m, g->value, t->number) && solve(p, m, g->next);
        break;
    case TERM_OP:
        ok = solve_op(p, m, g, t);
        break;
    }
    if (!ok && fresh) m->bound[t->var] = false;
    return ok;
}

static bool match_program(hn_pass_ctx *ctx, const program *p, hn_node *node, hn_match *out) {
    if (!named(p->terms[0].ops, node)) return false;
    *out = (hn_match){.ctx = ctx, .root = node, .var_count = p->var_count};
    memcpy(out->names, p->names, sizeof out->names);
    memcpy(out->name_lengths, p->name_lengths, sizeof out->name_lengths);
    goal root = {0, NULL, node, NULL};
    return solve(p, out, &root);
}

bool hn_match_at(hn_pass_ctx *ctx, const char *pattern, hn_node *node, hn_match *out_match) {
    program p;
    return compile(pattern, &p) && match_program(ctx, &p, node, out_match);
}

static int find_var(const hn_match *m, const char *name) {
    for (int i = 0; i < m->var_count; i++)
        if (strlen(name) == (size_t)m->name_lengths[i] &&
            memcmp(name, m->names[i], (size_t)m->name_lengths[i]) == 0)
            return i;
    HN_ASSERT(!"a rule asks for a variable that its pattern lacks");
    return -1;
}

hn_value *hn_match_value(const hn_match *m, const char *name) {
    int var = find_var(m, name);
    return var >= 0 ? m->values[var] : NULL;
}

hn_node *hn_match_node(const hn_match *m, const char *name) {
    hn_value *value = hn_match_value(m, name);
    return value ? value->producer : NULL;
}

const hn_tensor *hn_match_tensor(const hn_match *m, const char *name) {
    hn_value *value = hn_match_value(m, name);
    return value ? value->constant : NULL;
}

// ---- running rules ------------------------------------------------------------------------------

void hn_rule_note(const hn_pass_ctx *ctx, const char *name, bool fired) {
    if (ctx->rule) ctx->rule(ctx->user, name, fired);
}

typedef struct rule_set {
    const hn_rule *rules;
    program *programs;
    size_t count;
} rule_set;

static hn_status run_graph(hone_error *err, hn_pass_ctx *ctx, const rule_set *set,
                           hn_graph *graph) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(run_graph(err, ctx, set, node->attrs[i].graph));
        next = node->next;
        for (size_t r = 0; r < set->count; r++) {
            hn_match m;
            bool done = false;
            if (!match_program(ctx, &set->programs[r], node, &m)) continue;
            HN_TRY_CTX(err, set->rules[r].apply(err, &m, &done), "in rewrite %s",
                       set->rules[r].name);
            if (!done) continue;
            hn_rule_note(ctx, set->rules[r].name, true);
            break; // the node may be gone
        }
    }
    return HONE_OK;
}

hn_status hn_rules_run(hone_error *err, hn_pass_ctx *ctx, const hn_rule *rules, size_t count) {
    rule_set set = {rules, hn_calloc(count, sizeof(program)), count};
    if (!set.programs) HN_NOMEM(err, "rewriting");
    hone_status status = HONE_OK;
    for (size_t r = 0; r < count; r++)
        hn_rule_note(ctx, rules[r].name, false);
    for (size_t r = 0; r < count && status == HONE_OK; r++)
        if (!compile(rules[r].pattern, &set.programs[r]))
            status = HN_SET(err, HONE_ERR_INTERNAL, "the pattern of rewrite %s is malformed",
                            rules[r].name);
    for (int round = 0; round < MAX_ROUNDS && status == HONE_OK; round++) {
        int before = ctx->changes;
        status = run_graph(err, ctx, &set, ctx->module->main);
        if (ctx->changes == before) break;
    }
    hn_free(set.programs);
    return status;
}
