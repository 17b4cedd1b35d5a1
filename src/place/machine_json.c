// SPDX-License-Identifier: Apache-2.0
// The machine model as JSON, both ways. A field that is unknown is null in the output and may be null
// or absent in the input; anything of a wrong type or out of range is refused by name.
#include "place/machine.h"
#include <math.h>

// ---- writing ----------------------------------------------------------------------------------

static json_t *int_or_null(int64_t value) {
    return value == HN_PLACE_UNKNOWN ? json_null() : json_integer(value);
}

static json_t *bool_or_null(int value) {
    return value == HN_PLACE_UNKNOWN ? json_null() : json_boolean(value);
}

static json_t *text_or_null(const char *text) {
    json_t *value = text ? json_string(text) : NULL; // NULL also where the text is not UTF-8
    return value ? value : json_null();
}

static json_t *cpus_or_null(bool known, const hn_place_cpuset *cpus) {
    if (!known) return json_null();
    hn_str text = {0};
    hn_place_cpuset_append(&text, cpus);
    json_t *value = json_string(hn_str_get(&text));
    hn_str_free(&text);
    return value;
}

static json_t *gpu_json(const hn_place_gpu *gpu) {
    static const char *const k_origins[] = {NULL, "source", "cpu lists"};
    json_t *out = json_object();
    json_object_set_new(out, "index", json_integer(gpu->index));
    json_object_set_new(out, "name", text_or_null(gpu->name));
    json_object_set_new(out, "uuid", text_or_null(gpu->uuid));
    json_object_set_new(out, "pci", text_or_null(gpu->pci));
    json_object_set_new(out, "numa", int_or_null(gpu->numa));
    json_object_set_new(out, "numa_from", text_or_null(k_origins[gpu->numa_origin]));
    json_object_set_new(out, "memory_numa", int_or_null(gpu->memory_numa));
    json_object_set_new(out, "cpus", cpus_or_null(gpu->cpus_known, &gpu->cpus));
    json_object_set_new(out, "memory_bytes", int_or_null(gpu->memory_bytes));
    json_object_set_new(out, "memory_used_bytes", int_or_null(gpu->memory_used_bytes));
    json_object_set_new(out, "compute_major", int_or_null(gpu->compute_major));
    json_object_set_new(out, "compute_minor", int_or_null(gpu->compute_minor));
    json_object_set_new(out, "mig", bool_or_null(gpu->mig));
    json_object_set_new(out, "mig_instances", int_or_null(gpu->mig_instances));
    json_object_set_new(out, "busy", bool_or_null(gpu->busy));
    json_object_set_new(out, "nvlinks_active", int_or_null(gpu->nvlinks_active));
    json_object_set_new(out, "nvlinks_total", int_or_null(gpu->nvlinks_total));
    json_object_set_new(out, "nvlink_version", int_or_null(gpu->nvlink_version));
    json_object_set_new(out, "pcie_generation", int_or_null(gpu->pcie_generation));
    json_object_set_new(out, "pcie_width", int_or_null(gpu->pcie_width));
    json_object_set_new(out, "switch", int_or_null(gpu->switch_index));
    return out;
}

static json_t *nic_json(const hn_place_nic *nic) {
    json_t *out = json_object();
    json_object_set_new(out, "label", text_or_null(nic->label));
    json_object_set_new(out, "name", text_or_null(nic->name));
    json_object_set_new(out, "pci", text_or_null(nic->pci));
    json_object_set_new(out, "numa", int_or_null(nic->numa));
    json_object_set_new(out, "gbit_per_s",
                        nic->gbit_per_s < 0 ? json_null() : json_real(nic->gbit_per_s));
    json_object_set_new(out, "switch", int_or_null(nic->switch_index));
    return out;
}

static json_t *matrix_json(const hn_place_machine *machine) {
    json_t *rows = json_array();
    char code[8];
    for (int a = 0; a < machine->device_count; a++) {
        json_t *row = json_array();
        for (int b = 0; b < machine->device_count; b++)
            json_array_append_new(row, text_or_null(hn_place_link_code(
                                           machine, hn_place_cell(machine, a, b), code, sizeof code)));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *measured_json(const hn_place_machine *machine) {
    if (!machine->measured_gbs) return json_null();
    json_t *rows = json_array();
    for (int a = 0; a < machine->device_count; a++) {
        json_t *row = json_array();
        for (int b = 0; b < machine->device_count; b++) {
            double gbs = machine->measured_gbs[a * machine->device_count + b];
            json_array_append_new(row, gbs < 0 ? json_null() : json_real(gbs));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *texts_json(const hn_place_texts *texts) {
    json_t *out = json_array();
    for (size_t i = 0; i < texts->count; i++)
        json_array_append_new(out, text_or_null(texts->data[i]));
    return out;
}

json_t *hn_place_machine_json(const hn_place_machine *machine) {
    json_t *out = json_object();
    json_t *gpus = json_array(), *nics = json_array(), *switches = json_array(),
           *nodes = json_array();
    for (size_t i = 0; i < machine->gpus.count; i++)
        json_array_append_new(gpus, gpu_json(&machine->gpus.data[i]));
    for (size_t i = 0; i < machine->nics.count; i++)
        json_array_append_new(nics, nic_json(&machine->nics.data[i]));
    for (size_t i = 0; i < machine->switches.count; i++) {
        json_t *item = json_object();
        json_object_set_new(item, "pci", text_or_null(machine->switches.data[i].pci));
        json_object_set_new(item, "numa", int_or_null(machine->switches.data[i].numa));
        json_array_append_new(switches, item);
    }
    for (size_t i = 0; i < machine->nodes.count; i++) {
        const hn_place_numa *node = &machine->nodes.data[i];
        json_t *item = json_object();
        json_object_set_new(item, "node", json_integer(node->node));
        json_object_set_new(item, "cpus", cpus_or_null(node->cpus_known, &node->cpus));
        json_object_set_new(item, "memory_bytes", int_or_null(node->memory_bytes));
        json_array_append_new(nodes, item);
    }
    json_object_set_new(out, "source", text_or_null(machine->source));
    json_object_set_new(out, "gpus", gpus);
    json_object_set_new(out, "nics", nics);
    json_object_set_new(out, "switches", switches);
    json_object_set_new(out, "nodes", nodes);
    json_object_set_new(out, "matrix", matrix_json(machine));
    json_object_set_new(out, "measured_gbs", measured_json(machine));
    json_object_set_new(out, "link_gbs", json_real(machine->link_gbs));
    json_object_set_new(out, "virtual_machine", json_boolean(machine->virtual_machine));
    json_object_set_new(out, "complete", json_boolean(machine->complete));
    json_object_set_new(out, "damage", texts_json(&machine->damage));
    json_object_set_new(out, "advice", texts_json(&machine->advice));
    return out;
}

static int append_piece(const char *buffer, size_t size, void *data) {
    hn_str_append_n(data, buffer, size);
    return 0;
}

void hn_place_json_append(const json_t *root, hn_str *out) {
    if (!root || json_dump_callback(root, append_piece, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12)))
        out->failed = true;
    hn_str_append(out, "\n");
}

// ---- reading ----------------------------------------------------------------------------------

static bool absent(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value);
}

static hn_status take_i64(hone_error *err, const json_t *object, const char *key, int64_t max,
                          int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (absent(object, key)) return HONE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s' is no whole number from 0 to %lld", key, (long long)max);
    *out = json_integer_value(value);
    return HONE_OK;
}

static hn_status take_int(hone_error *err, const json_t *object, const char *key, int max, int *out) {
    int64_t value = *out;
    HN_TRY(take_i64(err, object, key, max, &value));
    *out = (int)value;
    return HONE_OK;
}

static hn_status take_bool(hone_error *err, const json_t *object, const char *key, int *out) {
    if (absent(object, key)) return HONE_OK;
    if (!json_is_boolean(json_object_get(object, key)))
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s' is neither true nor false", key);
    *out = json_is_true(json_object_get(object, key));
    return HONE_OK;
}

static hn_status take_text(hone_error *err, hn_place_machine *machine, const json_t *object,
                           const char *key, const char **out) {
    if (absent(object, key)) return HONE_OK;
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || json_string_length(value) > 512)
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s' is no text of at most 512 bytes", key);
    *out = hn_arena_strdup(&machine->arena, json_string_value(value));
    if (!*out) HN_NOMEM(err, "machine model");
    return HONE_OK;
}

static hn_status take_cpus(hone_error *err, const json_t *object, bool *out_known,
                           hn_place_cpuset *out_cpus) {
    if (absent(object, "cpus")) return HONE_OK;
    const char *text = json_string_value(json_object_get(object, "cpus"));
    if (!text) HN_FAIL(err, HONE_ERR_FORMAT, "'cpus' is no text");
    if (*text && !hn_place_cpuset_parse((hn_slice){text, strlen(text)}, out_cpus))
        HN_FAIL(err, HONE_ERR_FORMAT, "'cpus' is no CPU list: '%.60s'", text);
    *out_known = true;
    return HONE_OK;
}

static hn_status take_real(hone_error *err, const json_t *object, const char *key, double *out) {
    if (absent(object, key)) return HONE_OK;
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || !(json_number_value(value) > 0) ||
        !(json_number_value(value) < 1e6))
        HN_FAIL(err, HONE_ERR_FORMAT, "'%s' is no number between 0 and a million", key);
    *out = json_number_value(value);
    return HONE_OK;
}

static hn_status read_gpu(hone_error *err, hn_place_machine *machine, const json_t *from) {
    hn_place_gpu gpu = hn_place_gpu_unknown((int)machine->gpus.count);
    HN_TRY(take_int(err, from, "index", 9999, &gpu.index));
    HN_TRY(take_text(err, machine, from, "name", &gpu.name));
    HN_TRY(take_text(err, machine, from, "uuid", &gpu.uuid));
    HN_TRY(take_text(err, machine, from, "pci", &gpu.pci));
    HN_TRY(take_int(err, from, "numa", HN_PLACE_CPUS_MAX - 1, &gpu.numa));
    const char *origin = json_string_value(json_object_get(from, "numa_from"));
    if (gpu.numa != HN_PLACE_UNKNOWN)
        gpu.numa_origin =
            origin && strcmp(origin, "cpu lists") == 0 ? HN_ORIGIN_CPU_LIST : HN_ORIGIN_SOURCE;
    HN_TRY(take_int(err, from, "memory_numa", HN_PLACE_CPUS_MAX - 1, &gpu.memory_numa));
    HN_TRY(take_cpus(err, from, &gpu.cpus_known, &gpu.cpus));
    HN_TRY(take_i64(err, from, "memory_bytes", INT64_MAX, &gpu.memory_bytes));
    HN_TRY(take_i64(err, from, "memory_used_bytes", INT64_MAX, &gpu.memory_used_bytes));
    HN_TRY(take_int(err, from, "compute_major", 999, &gpu.compute_major));
    HN_TRY(take_int(err, from, "compute_minor", 999, &gpu.compute_minor));
    HN_TRY(take_bool(err, from, "mig", &gpu.mig));
    HN_TRY(take_int(err, from, "mig_instances", 999, &gpu.mig_instances));
    HN_TRY(take_bool(err, from, "busy", &gpu.busy));
    HN_TRY(take_int(err, from, "nvlinks_active", 999, &gpu.nvlinks_active));
    HN_TRY(take_int(err, from, "nvlinks_total", 999, &gpu.nvlinks_total));
    HN_TRY(take_int(err, from, "nvlink_version", 999, &gpu.nvlink_version));
    HN_TRY(take_int(err, from, "pcie_generation", 99, &gpu.pcie_generation));
    HN_TRY(take_int(err, from, "pcie_width", 99, &gpu.pcie_width));
    HN_TRY(take_int(err, from, "switch", HN_PLACE_DEVICES_MAX, &gpu.switch_index));
    if (hn_place_gpu_find(machine, gpu.index) >= 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "card %d is listed twice", gpu.index);
    if (!hn_vec_push(&machine->gpus, gpu)) HN_NOMEM(err, "machine model");
    return HONE_OK;
}

static hn_status read_nic(hone_error *err, hn_place_machine *machine, const json_t *from) {
    hn_place_nic nic = hn_place_nic_unknown(NULL);
    HN_TRY(take_text(err, machine, from, "label", &nic.label));
    HN_TRY(take_text(err, machine, from, "name", &nic.name));
    HN_TRY(take_text(err, machine, from, "pci", &nic.pci));
    HN_TRY(take_int(err, from, "numa", HN_PLACE_CPUS_MAX - 1, &nic.numa));
    HN_TRY(take_real(err, from, "gbit_per_s", &nic.gbit_per_s));
    HN_TRY(take_int(err, from, "switch", HN_PLACE_DEVICES_MAX, &nic.switch_index));
    if (!nic.label)
        nic.label = hn_arena_printf(&machine->arena, "NIC%zu", machine->nics.count);
    if (!nic.label || !hn_vec_push(&machine->nics, nic)) HN_NOMEM(err, "machine model");
    return HONE_OK;
}

static hn_status read_places(hone_error *err, hn_place_machine *machine, const json_t *root) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(root, "switches"), i, item) {
        hn_place_switch made = {.numa = HN_PLACE_UNKNOWN};
        if (i >= HN_PLACE_DEVICES_MAX) HN_FAIL(err, HONE_ERR_LIMIT, "more than %zu switches", i);
        HN_TRY_CTX(err, take_text(err, machine, item, "pci", &made.pci), "switches[%zu]", i);
        HN_TRY_CTX(err, take_int(err, item, "numa", HN_PLACE_CPUS_MAX - 1, &made.numa),
                   "switches[%zu]", i);
        if (!hn_vec_push(&machine->switches, made)) HN_NOMEM(err, "machine model");
    }
    json_array_foreach(json_object_get(root, "nodes"), i, item) {
        hn_place_numa node = {.node = (int)i, .memory_bytes = HN_PLACE_UNKNOWN};
        if (i >= 1024) HN_FAIL(err, HONE_ERR_LIMIT, "more than %zu NUMA nodes", i);
        HN_TRY_CTX(err, take_int(err, item, "node", HN_PLACE_CPUS_MAX - 1, &node.node), "nodes[%zu]",
                   i);
        HN_TRY_CTX(err, take_cpus(err, item, &node.cpus_known, &node.cpus), "nodes[%zu]", i);
        HN_TRY_CTX(err, take_i64(err, item, "memory_bytes", INT64_MAX, &node.memory_bytes),
                   "nodes[%zu]", i);
        if (!hn_vec_push(&machine->nodes, node)) HN_NOMEM(err, "machine model");
    }
    for (size_t g = 0; g < machine->gpus.count; g++)
        if (machine->gpus.data[g].switch_index >= (int)machine->switches.count)
            HN_FAIL(err, HONE_ERR_FORMAT, "gpus[%zu] is on a switch that is not listed", g);
    for (size_t n = 0; n < machine->nics.count; n++)
        if (machine->nics.data[n].switch_index >= (int)machine->switches.count)
            HN_FAIL(err, HONE_ERR_FORMAT, "nics[%zu] is on a switch that is not listed", n);
    return HONE_OK;
}

static hn_status read_cell(hone_error *err, hn_place_machine *machine, const json_t *from,
                           hn_place_link *out) {
    if (!from || json_is_null(from)) return HONE_OK;
    const char *text = json_string_value(from);
    if (!text || !*text || strlen(text) > 15)
        HN_FAIL(err, HONE_ERR_FORMAT, "is neither null nor a link code");
    if (hn_place_link_parse((hn_slice){text, strlen(text)}, out)) return HONE_OK;
    size_t at = 0;
    while (at < machine->foreign.count && strcmp(machine->foreign.data[at], text) != 0) at++;
    if (at == machine->foreign.count) {
        const char *copy = hn_arena_strdup(&machine->arena, text);
        if (at >= 64) HN_FAIL(err, HONE_ERR_LIMIT, "more than 64 link codes that hone does not know");
        if (!copy || !hn_vec_push(&machine->foreign, copy)) HN_NOMEM(err, "machine model");
    }
    *out = (hn_place_link){.kind = HN_LINK_FOREIGN, .detail = (uint8_t)at};
    return HONE_OK;
}

static hn_status read_matrix(hone_error *err, hn_place_machine *machine, const json_t *root) {
    const json_t *rows = json_object_get(root, "matrix");
    int count = machine->device_count;
    if (!json_is_array(rows) || json_array_size(rows) != (size_t)count)
        HN_FAIL(err, HONE_ERR_FORMAT, "'matrix' does not have one row for each of the %d devices",
                count);
    for (int a = 0; a < count; a++) {
        const json_t *row = json_array_get(rows, (size_t)a);
        if (!json_is_array(row) || json_array_size(row) != (size_t)count)
            HN_FAIL(err, HONE_ERR_FORMAT, "matrix[%d] does not have %d cells", a, count);
        for (int b = 0; b < count; b++)
            HN_TRY_CTX(err,
                       read_cell(err, machine, json_array_get(row, (size_t)b),
                                 &machine->matrix[a * count + b]),
                       "matrix[%d][%d]", a, b);
    }
    const json_t *measured = json_object_get(root, "measured_gbs");
    if (!measured || json_is_null(measured)) return HONE_OK;
    machine->measured_gbs =
        hn_arena_array(&machine->arena, (size_t)count * (size_t)count + 1, sizeof(double));
    if (!machine->measured_gbs) HN_NOMEM(err, "machine model");
    for (int i = 0; i < count * count; i++) {
        const json_t *cell = json_array_get(json_array_get(measured, (size_t)(i / count)),
                                            (size_t)(i % count));
        double gbs = json_is_number(cell) ? json_number_value(cell) : HN_PLACE_UNKNOWN;
        machine->measured_gbs[i] = gbs > 0 && gbs < 1e6 ? gbs : HN_PLACE_UNKNOWN;
    }
    return HONE_OK;
}

static hn_status read_root(hone_error *err, const json_t *root, hn_place_machine *machine) {
    const json_t *gpus = json_object_get(root, "gpus"), *nics = json_object_get(root, "nics");
    size_t i;
    json_t *item;
    if (!json_is_array(gpus)) HN_FAIL(err, HONE_ERR_FORMAT, "it has no list 'gpus'");
    if (json_array_size(gpus) > HN_PLACE_GPUS_MAX ||
        json_array_size(gpus) + json_array_size(nics) > HN_PLACE_DEVICES_MAX)
        HN_FAIL(err, HONE_ERR_LIMIT, "more than %d cards or %d devices", HN_PLACE_GPUS_MAX,
                HN_PLACE_DEVICES_MAX);
    json_array_foreach(gpus, i, item)
        HN_TRY_CTX(err, read_gpu(err, machine, item), "gpus[%zu]", i);
    json_array_foreach(nics, i, item)
        HN_TRY_CTX(err, read_nic(err, machine, item), "nics[%zu]", i);
    HN_TRY(read_places(err, machine, root));
    HN_TRY(take_real(err, root, "link_gbs", &machine->link_gbs));
    HN_TRY(hn_place_machine_alloc_matrix(err, machine));
    HN_TRY(read_matrix(err, machine, root));
    machine->source = "JSON";
    HN_TRY(take_text(err, machine, root, "source", &machine->source));
    int flag = 1;
    HN_TRY(take_bool(err, root, "complete", &flag));
    machine->complete = flag;
    flag = 0;
    HN_TRY(take_bool(err, root, "virtual_machine", &flag));
    machine->virtual_machine = flag;
    json_array_foreach(json_object_get(root, "damage"), i, item)
        if (json_is_string(item)) hn_place_machine_damage(machine, "%s", json_string_value(item));
    return HONE_OK;
}

hn_status hn_place_read_json(hone_error *err, hn_slice text, hn_place_machine *machine) {
    json_error_t why;
    json_t *root = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        HN_FAIL(err, HONE_ERR_FORMAT, "it is no JSON: line %d: %.200s", why.line, why.text);
    hone_status status = read_root(err, root, machine);
    json_decref(root);
    return status;
}
