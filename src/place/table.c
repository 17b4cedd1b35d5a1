// SPDX-License-Identifier: Apache-2.0
// The machine as a table for terminals.
#include "place/machine.h"
#include <stdio.h>

static void sentences(hn_str *out, const char *title, const hn_place_texts *texts) {
    if (!texts->count) return;
    hn_str_printf(out, "\n%s\n", title);
    for (size_t i = 0; i < texts->count; i++) {
        // Wrapped at 96 columns, by hand since a terminal would break words.
        const char *at = texts->data[i];
        const char *lead = "  - ";
        while (*at) {
            size_t length = strlen(at), cut = length;
            if (length > 92) {
                cut = 92;
                while (cut > 40 && at[cut] != ' ') cut--;
            }
            hn_str_printf(out, "%s%.*s\n", lead, (int)cut, at);
            at += cut;
            while (*at == ' ') at++;
            lead = "    ";
        }
    }
}

static void bytes_gib(hn_str *out, int64_t bytes) {
    if (bytes < 0) hn_str_append(out, "        ?");
    else hn_str_printf(out, "%5.1f GiB", (double)bytes / (1 << 30));
}

static void cards(const hn_place_machine *machine, hn_str *out) {
    hn_str_append(out, "\ncard   NUMA  CPUs                     memory     NVLinks  nearest NIC\n");
    for (int g = 0; g < (int)machine->gpus.count; g++) {
        const hn_place_gpu *gpu = &machine->gpus.data[g];
        char label[16], code[8];
        hn_str cpus = {0};
        if (gpu->cpus_known) hn_place_cpuset_append(&cpus, &gpu->cpus);
        hn_str_printf(out, "%-6s ", hn_place_device_label(machine, g, label, sizeof label));
        if (gpu->numa < 0) hn_str_append(out, "   ?  ");
        else hn_str_printf(out, "%4d%s ", gpu->numa, gpu->numa_origin == HN_ORIGIN_CPU_LIST ? "*" : " ");
        hn_str_printf(out, "%-22.22s%s ", gpu->cpus_known ? hn_str_get(&cpus) : "?",
                      cpus.length > 22 ? ".." : "  ");
        bytes_gib(out, gpu->memory_bytes);
        int links = hn_place_gpu_nvlinks(machine, g);
        if (links < 0) hn_str_append(out, "        ?  ");
        else hn_str_printf(out, "  %7d  ", links);
        int best = 99, nearest = -1;
        for (int k = 0; k < (int)machine->nics.count; k++) {
            int rank = hn_place_link_rank(
                hn_place_link_between(machine, g, hn_place_nic_device(machine, k)));
            if (rank < best && rank < 7) best = rank, nearest = k;
        }
        if (nearest < 0) {
            hn_str_append(out, machine->nics.count ? "?" : "-");
        } else {
            const hn_place_nic *nic = &machine->nics.data[nearest];
            hn_place_link link =
                hn_place_link_between(machine, g, hn_place_nic_device(machine, nearest));
            hn_str_printf(out, "%s%s%s%s %s", nic->label,
                          nic->name && nic->name != nic->label ? " (" : "",
                          nic->name && nic->name != nic->label ? nic->name : "",
                          nic->name && nic->name != nic->label ? ")" : "",
                          hn_place_link_code(machine, link, code, sizeof code));
        }
        if (gpu->mig == 1) hn_str_append(out, "  MIG");
        if (gpu->busy == 1) hn_str_append(out, "  busy");
        if (gpu->name) hn_str_printf(out, "  %s", gpu->name);
        hn_str_append(out, "\n");
        hn_str_free(&cpus);
    }
    for (size_t g = 0; g < machine->gpus.count; g++) {
        if (machine->gpus.data[g].numa_origin != HN_ORIGIN_CPU_LIST) continue;
        hn_str_append(out, "* the source names no node: counted by the CPU lists, which cut the machine "
                           "into equal parts\n");
        break;
    }
}

static void matrix(const hn_place_machine *machine, hn_str *out) {
    int count = machine->device_count, width = 5;
    char label[16], code[8];
    for (int d = 0; d < count; d++) {
        int length = (int)strlen(hn_place_device_label(machine, d, label, sizeof label));
        if (length > width) width = length;
    }
    hn_str_printf(out, "\n%-*s", width, "");
    for (int d = 0; d < count; d++)
        hn_str_printf(out, " %*s", d < (int)machine->gpus.count ? 5 : width,
                      hn_place_device_label(machine, d, label, sizeof label));
    hn_str_append(out, "\n");
    for (int a = 0; a < count; a++) {
        hn_str_printf(out, "%-*s", width, hn_place_device_label(machine, a, label, sizeof label));
        for (int b = 0; b < count; b++) {
            const char *text =
                hn_place_link_code(machine, hn_place_cell(machine, a, b), code, sizeof code);
            hn_str_printf(out, " %*s", b < (int)machine->gpus.count ? 5 : width, text ? text : "?");
        }
        hn_str_append(out, "\n");
    }
}

void hn_place_machine_table(const hn_place_machine *machine, hn_str *out) {
    hn_str_printf(out, "%zu card%s, %zu NIC%s; from %s; %s\n", machine->gpus.count,
                  machine->gpus.count == 1 ? "" : "s", machine->nics.count,
                  machine->nics.count == 1 ? "" : "s", machine->source ? machine->source : "?",
                  machine->complete ? "complete" : "INCOMPLETE");
    if (machine->gpus.count) cards(machine, out);
    if (machine->device_count) matrix(machine, out);
    sentences(out, "damage", &machine->damage);
    sentences(out, "advice", &machine->advice);
}
