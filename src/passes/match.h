// SPDX-License-Identifier: Apache-2.0
// The pattern matcher: a rewrite is one row (name, pattern, function).
//
// A pattern is the expression that ends at a node, as text:
//   Add(MatMul(x, w!), b!)      value variables are lower-case; '!' asks for built-in content
//   Relu|LeakyRelu:act(x)       alternatives; ':' names the node (and its first output)
//   Clip(x, lo?, hi?)           '?': the input may be absent
//   Mul(x, 0.5)                 a scalar constant of that value (one element, any shape)
//   Div(Sub:d(x, ReduceMean(x, ...)), s)   '...': further inputs are not looked at
//   Sub:d(x, m) ... d           a variable that occurs again must be the same value
//   com.microsoft.Gelu(x)       operators of other domains
// Two-input operators that commute are tried both ways, with full backtracking. Attributes are the
// function's to check.
//
// Legality, in one place: every value inside the match is used by nodes of the match only, is no
// graph output and not pinned, and all nodes are in one graph. '~Op(...)' lifts this for one node,
// which then stays.
#ifndef HN_PASS_MATCH_H
#define HN_PASS_MATCH_H
#include "passes/pass_int.h"

#define HN_MATCH_NODES 48
#define HN_MATCH_VARS  32

typedef struct hn_match {
    hn_pass_ctx *ctx;
    hn_node *root;
    hn_node *nodes[HN_MATCH_NODES]; // root first
    bool shared[HN_MATCH_NODES];    // '~'
    int node_count;
    const char *names[HN_MATCH_VARS]; // of the pattern's variables, not terminated
    int name_lengths[HN_MATCH_VARS];
    hn_value *values[HN_MATCH_VARS];
    bool bound[HN_MATCH_VARS];
    int var_count;
} hn_match;

hn_value *hn_match_value(const hn_match *m, const char *name); // NULL: absent input
hn_node *hn_match_node(const hn_match *m, const char *name);   // the node that makes that value
// Content of a '!' variable; NULL: absent.
const hn_tensor *hn_match_tensor(const hn_match *m, const char *name);

// Sets *out_done when it rewrote something. New nodes go before m->root; hn_pass_replace then takes
// care of the old ones.
typedef hone_status (*hn_rule_fn)(hone_error *err, hn_match *m, bool *out_done);
typedef struct hn_rule {
    const char *name, *pattern;
    hn_rule_fn apply;
} hn_rule;

// Applies the rules to every graph of the module until none fits.
hn_status hn_rules_run(hone_error *err, hn_pass_ctx *ctx, const hn_rule *rules, size_t count);
// Does one pattern end at this node? For tests and for passes with loops of their own.
// Tells the caller of the passes about a rewrite; rewrites without a pattern call it themselves.
void hn_rule_note(const hn_pass_ctx *ctx, const char *name, bool fired);
bool hn_match_at(hn_pass_ctx *ctx, const char *pattern, hn_node *node, hn_match *out_match);
#endif
