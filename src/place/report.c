// SPDX-License-Identifier: Apache-2.0
// A placement as text and as JSON.
#include "place/place_int.h"

static void list_cards(const hn_place_machine *m, uint64_t cards, hn_str *out) {
    const char *comma = "";
    for (; cards; cards &= cards - 1) {
        hn_str_printf(out, "%s%d", comma, m->gpus.data[__builtin_ctzll(cards)].index);
        comma = ",";
    }
}

// A path that is not in the source ranks last, as 0; it is not shown as a speed.
static void speed(hn_str *out, const char *what, int hundredths) {
    if (hundredths > 0) hn_str_printf(out, "%s %g GB/s", what, hundredths / 100.0);
    else hn_str_printf(out, "%s unknown", what);
}

static bool nodes_known(const hn_place_machine *m, uint64_t cards) {
    for (; cards; cards &= cards - 1)
        if (m->gpus.data[__builtin_ctzll(cards)].numa < 0) return false;
    return true;
}

static json_t *speed_json(const hn_place_request *q, int hundredths) {
    return q->cards > 1 && hundredths > 0 ? json_real(hundredths / 100.0) : json_null();
}

static void choice_line(const hn_place_machine *m, const hn_place_request *q, const hn_place_choice *c,
                        hn_str *out) {
    hn_str cards = {0};
    list_cards(m, c->cards, &cards);
    hn_str_printf(out, "{%s}", hn_str_get(&cards));
    hn_str_free(&cards);
    if (q->cards > 1) {
        if (q->tp != 1) speed(out, "  slowest path", c->score.worst_link);
        speed(out, q->tp != 1 ? ", ring" : "  ring", c->score.ring);
    }
    if (q->nics) hn_str_printf(out, ", adapters at distance %d", c->score.nic_distance);
    if (nodes_known(m, c->cards))
        hn_str_printf(out, ", %d NUMA node%s", c->score.nodes, c->score.nodes == 1 ? "" : "s");
    else
        hn_str_append(out, ", NUMA nodes unknown");
    if (c->score.busy) hn_str_printf(out, ", %d in use", c->score.busy);
    if (c->score.cpu_shortage) hn_str_printf(out, ", %d CPUs short", c->score.cpu_shortage);
    hn_str_append(out, "\n");
}

static void ranks_table(const hn_place_machine *m, const hn_place_request *q, const hn_place_result *r,
                        hn_str *out) {
    bool shape = q->tp || q->pp || q->dp;
    hn_str_printf(out, "\nrank  card%s  NUMA  adapter           CPUs\n", shape ? "   tp dp pp" : "");
    for (int i = 0; i < r->count; i++) {
        const hn_place_rank *rank = &r->ranks[i];
        char label[16], numa[12] = "?";
        hn_str cpus = {0};
        if (rank->cpus_known) hn_place_cpuset_append(&cpus, &rank->cpus);
        if (rank->numa >= 0) snprintf(numa, sizeof numa, "%d", rank->numa);
        hn_str_printf(out, "%4d  %-5s", i, hn_place_device_label(m, rank->gpu, label, sizeof label));
        if (shape) hn_str_printf(out, "  %2d %2d %2d", rank->tp, rank->dp, rank->pp);
        const hn_place_nic *nic = rank->nic < 0 ? NULL : &m->nics.data[rank->nic];
        hn_str_printf(out, "  %4s  %-16s  %s\n", numa, nic ? (nic->name ? nic->name : nic->label) : "-",
                      rank->cpus_known ? hn_str_get(&cpus) : "(left as they are)");
        hn_str_free(&cpus);
    }
    if (r->count > 2) {
        hn_str_append(out, "\nring  ");
        for (int i = 0; i < r->count; i++) hn_str_printf(out, "%d - ", m->gpus.data[r->ring[i]].index);
        hn_str_printf(out, "%d\ntree  ", m->gpus.data[r->ring[0]].index);
        const char *comma = "";
        for (int i = 0; i < r->count; i++) {
            if (r->tree_parent[i] < 0) continue;
            hn_str_printf(out, "%s%d under %d", comma, m->gpus.data[r->ranks[i].gpu].index,
                          m->gpus.data[r->ranks[r->tree_parent[i]].gpu].index);
            comma = ", ";
        }
        hn_str_append(out, "  (card numbers)\n");
    }
}

void hn_place_result_text(const hn_place_machine *machine, const hn_place_request *request,
                          const hn_place_result *result, bool explain, hn_str *out) {
    hn_str_append(out, "best  ");
    choice_line(machine, request, &result->choices[0], out);
    for (int i = 1; i < result->choice_count; i++) {
        char reason[160];
        hn_str_append(out, "next  ");
        choice_line(machine, request, &result->choices[i], out);
        if (explain)
            hn_str_printf(out, "      behind the best by %s\n",
                          hn_place_choice_reason(request, &result->choices[0], &result->choices[i], reason,
                                                 sizeof reason));
    }
    ranks_table(machine, request, result, out);
    hn_str_append(out, "\n");
    for (size_t i = 0; i < result->hints.count; i++) {
        const hn_place_hint *hint = &result->hints.data[i];
        hn_str_printf(out, "%s=%s\n", hint->name, hint->value);
        if (explain) hn_str_printf(out, "    %s\n", hint->reason);
    }
    hn_str cpus = {0}, nodes = {0};
    hn_place_cpuset_append(&cpus, &result->cpus);
    hn_place_cpuset_append(&nodes, &result->numa);
    if (cpus.length) hn_str_printf(out, "CPUs   %s\n", hn_str_get(&cpus));
    if (nodes.length) hn_str_printf(out, "memory of NUMA node%s %s\n", strpbrk(nodes.data, ",-") ? "s" : "",
                                    hn_str_get(&nodes));
    hn_str_free(&cpus);
    hn_str_free(&nodes);
    for (size_t i = 0; i < result->notes.count; i++)
        hn_str_printf(out, "note   %s\n", result->notes.data[i]);
    if (explain)
        hn_str_printf(out, "looked at %lld sets%s\n", (long long)result->looked_at,
                      result->exact ? ", all others are ruled out" : " and stopped at the budget");
}

// ---- JSON -------------------------------------------------------------------------------------

static json_t *cards_json(const hn_place_machine *m, uint64_t cards) {
    json_t *out = json_array();
    for (; cards; cards &= cards - 1)
        json_array_append_new(out, json_integer(m->gpus.data[__builtin_ctzll(cards)].index));
    return out;
}

static json_t *set_json(const hn_place_cpuset *set) {
    hn_str text = {0};
    hn_place_cpuset_append(&text, set);
    json_t *out = text.length ? json_string(hn_str_get(&text)) : json_null();
    hn_str_free(&text);
    return out;
}

static json_t *choice_json(const hn_place_machine *m, const hn_place_request *q, const hn_place_result *r,
                           int at) {
    const hn_place_choice *c = &r->choices[at];
    char reason[160];
    json_t *out = json_object();
    json_object_set_new(out, "gpus", cards_json(m, c->cards));
    json_object_set_new(out, "worst_link_gbs", speed_json(q, q->tp == 1 ? 0 : c->score.worst_link));
    json_object_set_new(out, "ring_gbs", speed_json(q, c->score.ring));
    json_object_set_new(out, "nic_distance", q->nics ? json_integer(c->score.nic_distance) : json_null());
    json_object_set_new(out, "numa_nodes", nodes_known(m, c->cards) ? json_integer(c->score.nodes) : json_null());
    json_object_set_new(out, "busy", json_integer(c->score.busy));
    json_object_set_new(out, "cpu_shortage", json_integer(c->score.cpu_shortage));
    json_object_set_new(out, "left_gbs", json_real((double)c->score.left_sum / 100));
    if (at)
        json_object_set_new(out, "behind",
                            json_string(hn_place_choice_reason(q, &r->choices[0], c, reason, sizeof reason)));
    return out;
}

static json_t *ranks_json(const hn_place_machine *m, const hn_place_result *r) {
    json_t *out = json_array();
    for (int i = 0; i < r->count; i++) {
        const hn_place_rank *rank = &r->ranks[i];
        json_t *item = json_object();
        json_object_set_new(item, "rank", json_integer(i));
        json_object_set_new(item, "gpu", json_integer(m->gpus.data[rank->gpu].index));
        json_object_set_new(item, "tp", json_integer(rank->tp));
        json_object_set_new(item, "dp", json_integer(rank->dp));
        json_object_set_new(item, "pp", json_integer(rank->pp));
        json_object_set_new(item, "numa", rank->numa < 0 ? json_null() : json_integer(rank->numa));
        const hn_place_nic *nic = rank->nic < 0 ? NULL : &m->nics.data[rank->nic];
        json_object_set_new(item, "nic", nic ? json_string(nic->name ? nic->name : nic->label) : json_null());
        json_object_set_new(item, "cpus", rank->cpus_known ? set_json(&rank->cpus) : json_null());
        json_array_append_new(out, item);
    }
    return out;
}

json_t *hn_place_result_json(const hn_place_machine *machine, const hn_place_request *request,
                             const hn_place_result *result) {
    json_t *out = json_object(), *others = json_array(), *env = json_object(), *hints = json_array(),
           *notes = json_array(), *ring = json_array(), *tree = json_array();
    for (int i = 1; i < result->choice_count; i++)
        json_array_append_new(others, choice_json(machine, request, result, i));
    for (size_t i = 0; i < result->hints.count; i++) {
        const hn_place_hint *hint = &result->hints.data[i];
        json_object_set_new(env, hint->name, json_string(hint->value));
        json_t *item = json_object();
        json_object_set_new(item, "name", json_string(hint->name));
        json_object_set_new(item, "value", json_string(hint->value));
        json_object_set_new(item, "reason", json_string(hint->reason));
        json_array_append_new(hints, item);
    }
    for (size_t i = 0; i < result->notes.count; i++)
        json_array_append_new(notes, json_string(result->notes.data[i]));
    for (int i = 0; i < result->count; i++) {
        json_array_append_new(ring, json_integer(machine->gpus.data[result->ring[i]].index));
        json_array_append_new(tree, result->tree_parent[i] < 0 ? json_null()
                                                               : json_integer(result->tree_parent[i]));
    }
    json_object_set_new(out, "gpus", cards_json(machine, result->choices[0].cards));
    json_object_set_new(out, "score", choice_json(machine, request, result, 0));
    json_object_set_new(out, "cuda_visible_devices", json_string(result->visible));
    json_object_set_new(out, "ranks", ranks_json(machine, result));
    json_object_set_new(out, "ring", ring);
    json_object_set_new(out, "tree_parent", tree);
    json_object_set_new(out, "cpus", set_json(&result->cpus));
    json_object_set_new(out, "memory_nodes", set_json(&result->numa));
    json_object_set_new(out, "env", env);
    json_object_set_new(out, "hints", hints);
    json_object_set_new(out, "notes", notes);
    json_object_set_new(out, "runners_up", others);
    json_object_set_new(out, "exact", json_boolean(result->exact));
    json_object_set_new(out, "sets_looked_at", json_integer(result->looked_at));
    return out;
}
