// SPDX-License-Identifier: Apache-2.0
// The machine as a picture: NUMA nodes side by side, their PCIe switches with adapters and cards, NVLink
// below, the matrix as a heat map with the classes of path and their bandwidths. One SVG without
// scripts or outside references; every text that comes from a file is escaped.
#include <math.h>
#include <stdio.h>
#include "place/machine.h"

#define CARD_W   96
#define CARD_H   88
#define CHIP_H   22
#define GAP      12
#define MARGIN   28
#define CHIPS_MAX 4 // rows of adapters in a group before they are drawn as one

typedef struct style {
    const char *fill, *ink, *name;
} style;
// Told apart by lightness as well as by hue.
static const style k_styles[HN_LINK_KINDS] = {
    [HN_LINK_UNKNOWN] = {"#d9dce1", "#5b6270", "unknown"},
    [HN_LINK_SELF] = {"#eef0f3", "#9aa1ad", "X"},
    [HN_LINK_NVLINK] = {"#1f7a4d", "#ffffff", "NVLink"},
    [HN_LINK_PIX] = {"#1d5fa8", "#ffffff", "PIX"},
    [HN_LINK_PXB] = {"#5b9bd5", "#ffffff", "PXB"},
    [HN_LINK_PHB] = {"#a9a4dc", "#26235c", "PHB"},
    [HN_LINK_NODE] = {"#f2b84b", "#4a3200", "NODE"},
    [HN_LINK_SYS] = {"#d9553f", "#ffffff", "SYS"},
    [HN_LINK_SOC] = {"#d9553f", "#ffffff", "SOC"},
    [HN_LINK_FOREIGN] = {"#8a6d9e", "#ffffff", "other"},
};

typedef struct group {
    int node;         // NUMA, HN_PLACE_UNKNOWN
    int switch_index; // or -1: a card or adapters on a root port of their own
    int gpus[HN_PLACE_GPUS_MAX], gpu_count;
    int nics[HN_PLACE_DEVICES_MAX], nic_count;
    double x, width;
} group;

typedef struct picture {
    const hn_place_machine *m;
    hn_str *out;
    group *groups;
    int group_count;
    double card_x[HN_PLACE_GPUS_MAX]; // centre
    double width, bus_y, chips_y, cards_y, cards_end, height;
    int chip_rows;
} picture;

static void escape(hn_str *out, const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<') hn_str_append(out, "&lt;");
        else if (c == '>') hn_str_append(out, "&gt;");
        else if (c == '&') hn_str_append(out, "&amp;");
        else if (c == '"') hn_str_append(out, "&quot;");
        else if (c < 0x20) hn_str_append(out, " ");
        else hn_str_append_n(out, text, 1);
    }
}

static void text_at(picture *p, double x, double y, const char *class, const char *anchor,
                    const char *text) {
    hn_str_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
    escape(p->out, text);
    hn_str_append(p->out, "</text>\n");
}

static void box(picture *p, double x, double y, double w, double h, double r, const char *style_text) {
    hn_str_printf(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" %s/>\n", x, y,
                  w, h, r, style_text);
}

// A pill with a class's colours.
static void pill(picture *p, double cx, double y, double w, hn_place_link link, const char *text) {
    const style *s = &k_styles[link.kind];
    char attributes[64];
    snprintf(attributes, sizeof attributes, "fill=\"%s\"", s->fill);
    box(p, cx - w / 2, y, w, 17, 8.5, attributes);
    hn_str_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"s\" text-anchor=\"middle\" style=\"fill:%s\">", cx,
                  y + 12.4, s->ink);
    escape(p->out, text);
    hn_str_append(p->out, "</text>\n");
}

// ---- groups -----------------------------------------------------------------------------------

static group *group_for(picture *p, int node, int switch_index, bool own) {
    for (int i = 0; i < p->group_count && !own; i++)
        if (p->groups[i].switch_index == switch_index && (switch_index >= 0 || !p->groups[i].gpu_count) &&
            p->groups[i].node == node)
            return &p->groups[i];
    group *made = &p->groups[p->group_count++];
    *made = (group){.node = node, .switch_index = switch_index};
    return made;
}

static int node_order(int node) { return node < 0 ? 1 << 20 : node; }

static void make_groups(picture *p) {
    for (int g = 0; g < (int)p->m->gpus.count; g++) {
        const hn_place_gpu *gpu = &p->m->gpus.data[g];
        group *to = group_for(p, gpu->numa, gpu->switch_index, gpu->switch_index < 0);
        to->gpus[to->gpu_count++] = g;
    }
    for (int k = 0; k < (int)p->m->nics.count; k++) {
        const hn_place_nic *nic = &p->m->nics.data[k];
        int node = nic->numa;
        // An adapter on a card's switch belongs there even if the card's node is not known to be its own.
        for (int i = 0; i < p->group_count && nic->switch_index >= 0; i++)
            if (p->groups[i].switch_index == nic->switch_index) node = p->groups[i].node;
        group *to = group_for(p, node, nic->switch_index, false);
        to->nics[to->nic_count++] = k;
    }
    // By node; the groups of a node stay in the order of their first device.
    for (int i = 1; i < p->group_count; i++) {
        group moved = p->groups[i];
        int at = i;
        for (; at > 0 && node_order(p->groups[at - 1].node) > node_order(moved.node); at--)
            p->groups[at] = p->groups[at - 1];
        p->groups[at] = moved;
    }
}

static int columns_of(const group *g) { return g->gpu_count ? g->gpu_count : g->nic_count > 3 ? 2 : 1; }

static int rows_of(const group *g) {
    int rows = (g->nic_count + columns_of(g) - 1) / columns_of(g);
    return rows > CHIPS_MAX ? 1 : rows;
}

static void lay_out(picture *p) {
    double x = MARGIN;
    for (int i = 0; i < p->group_count; i++) {
        group *g = &p->groups[i];
        bool first = i == 0 || p->groups[i - 1].node != g->node;
        if (first) x += i ? GAP * 3 : GAP;
        g->x = x;
        g->width = columns_of(g) * (CARD_W + GAP) + GAP;
        for (int k = 0; k < g->gpu_count; k++)
            p->card_x[g->gpus[k]] = x + GAP + k * (CARD_W + GAP) + CARD_W / 2.0;
        x += g->width + GAP;
        if (rows_of(g) > p->chip_rows) p->chip_rows = rows_of(g);
    }
    p->width = x + GAP + MARGIN;
    if (p->width < 760) p->width = 760;
    p->bus_y = 176;
    p->chips_y = p->bus_y + 44;
    p->cards_y = p->chips_y + p->chip_rows * (CHIP_H + 6) + (p->chip_rows ? 8 : 0);
    p->cards_end = p->cards_y + CARD_H;
}

// ---- nodes ------------------------------------------------------------------------------------

// The classes of path between the groups of one node, nearest first: "PHB 18, NODE 14 GB/s".
static void between_groups(picture *p, int first, int last, bool *kinds) {
    for (int a = first; a <= last; a++)
        for (int b = a + 1; b <= last; b++) {
            int left[HN_PLACE_DEVICES_MAX], right[HN_PLACE_DEVICES_MAX], n = 0, m = 0;
            for (int i = 0; i < p->groups[a].gpu_count; i++) left[n++] = p->groups[a].gpus[i];
            for (int i = 0; i < p->groups[a].nic_count; i++)
                left[n++] = hn_place_nic_device(p->m, p->groups[a].nics[i]);
            for (int i = 0; i < p->groups[b].gpu_count; i++) right[m++] = p->groups[b].gpus[i];
            for (int i = 0; i < p->groups[b].nic_count; i++)
                right[m++] = hn_place_nic_device(p->m, p->groups[b].nics[i]);
            for (int i = 0; i < n; i++)
                for (int k = 0; k < m; k++) kinds[hn_place_link_between(p->m, left[i], right[k]).kind] = true;
        }
}

static double class_gbs(const hn_place_machine *m, int kind) {
    static const double k_gbs[HN_LINK_KINDS] = {
#define HN_LINK(kind, code, rank, gbs, doc) [HN_LINK_##kind] = gbs,
#include "place/links.def"
#undef HN_LINK
    };
    return kind == HN_LINK_NVLINK && m->link_gbs > 0 ? m->link_gbs : k_gbs[kind];
}

static void draw_bus(picture *p, double x, double end, int first, int last) {
    bool kinds[HN_LINK_KINDS] = {false};
    between_groups(p, first, last, kinds);
    double at = x + 14, y = p->bus_y;
    int shown = 0;
    for (int kind = HN_LINK_PIX; kind < HN_LINK_FOREIGN; kind++) shown += kinds[kind];
    if (!shown) return;
    hn_str_printf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"bus\"/>\n", x + 14, y,
                  end - 14, y);
    for (int i = first; i <= last; i++) {
        double middle = p->groups[i].x + p->groups[i].width / 2;
        hn_str_printf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"bus\"/>\n", middle, y,
                      middle, p->chips_y - 22);
    }
    for (int kind = HN_LINK_PIX; kind < HN_LINK_FOREIGN; kind++) {
        char label[32];
        if (!kinds[kind]) continue;
        snprintf(label, sizeof label, "%s %.0f", k_styles[kind].name, class_gbs(p->m, kind));
        pill(p, at + 34, y - 8.5, 66, (hn_place_link){.kind = (uint8_t)kind}, label);
        at += 72;
        if (at + 66 > end) break;
    }
}

static void node_words(const picture *p, const group *g, char *title, size_t size, hn_str *cpus) {
    if (g->node < 0) snprintf(title, size, g->gpu_count ? "NUMA node unknown" : "near no card");
    else snprintf(title, size, "NUMA node %d", g->node);
    for (size_t i = 0; i < p->m->nodes.count && g->node >= 0; i++)
        if (p->m->nodes.data[i].node == g->node && p->m->nodes.data[i].cpus_known && !cpus->length)
            hn_place_cpuset_append(cpus, &p->m->nodes.data[i].cpus);
    for (int i = 0; i < p->group_count && !cpus->length; i++)
        for (int k = 0; k < p->groups[i].gpu_count && !cpus->length; k++) {
            const hn_place_gpu *gpu = &p->m->gpus.data[p->groups[i].gpus[k]];
            if (gpu->numa == g->node && gpu->cpus_known) hn_place_cpuset_append(cpus, &gpu->cpus);
        }
}

static void draw_node(picture *p, int first, int last) {
    double x = p->groups[first].x - GAP, end = p->groups[last].x + p->groups[last].width + GAP;
    char title[48], line[96];
    hn_str cpus = {0};
    box(p, x, 112, end - x, p->cards_end + 20 - 112, 14, "class=\"node\"");
    node_words(p, &p->groups[first], title, sizeof title, &cpus);
    text_at(p, x + 14, 136, "h", "start", title);
    int room = (int)((end - x - 28) / 6.1);
    if (cpus.length) {
        bool fits = (int)cpus.length + 5 <= room;
        snprintf(line, sizeof line, "CPUs %.*s%s", fits ? (int)cpus.length : room > 12 ? room - 8 : 4,
                 hn_str_get(&cpus), fits ? "" : "...");
        text_at(p, x + 14, 153, "t", "start", line);
    } else if (p->groups[first].node >= 0 || p->groups[first].gpu_count) {
        text_at(p, x + 14, 153, "t", "start", "CPUs unknown");
    }
    hn_str_free(&cpus);
    draw_bus(p, x, end, first, last);
}

// ---- devices ----------------------------------------------------------------------------------

static bool nic_near_any(const hn_place_machine *m, int nic) {
    int known = 0, near = 0;
    for (int g = 0; g < (int)m->gpus.count; g++) {
        int rank = hn_place_link_rank(hn_place_link_between(m, g, hn_place_nic_device(m, nic)));
        known += rank < 7;
        near += rank < 6;
    }
    return near || !known;
}

static void draw_chips(picture *p, const group *g) {
    int columns = columns_of(g), rows = (g->nic_count + columns - 1) / columns;
    double base = p->chips_y + (p->chip_rows - rows_of(g)) * (CHIP_H + 6);
    char label[64];
    if (rows > CHIPS_MAX) {
        box(p, g->x + GAP + 3, base - 3, g->width - 2 * GAP, CHIP_H, 6, "class=\"nic back\"");
        box(p, g->x + GAP, base, g->width - 2 * GAP, CHIP_H, 6, "class=\"nic\"");
        const char *name = p->m->nics.data[g->nics[0]].label;
        if (g->width > 130) snprintf(label, sizeof label, "%d adapters: %s, ...", g->nic_count, name);
        else snprintf(label, sizeof label, "%d adapters", g->nic_count);
        text_at(p, g->x + g->width / 2, base + 15, "s", "middle", label);
        return;
    }
    for (int i = 0; i < g->nic_count; i++) {
        const hn_place_nic *nic = &p->m->nics.data[g->nics[i]];
        int in_row = i / columns == rows - 1 ? g->nic_count - (rows - 1) * columns : columns;
        double wide = (g->width - 2 * GAP - (in_row - 1) * 6) / in_row;
        if (wide > CARD_W + 40) wide = CARD_W + 40;
        double start = g->x + (g->width - in_row * wide - (in_row - 1) * 6) / 2;
        double x = start + i % columns * (wide + 6), y = base + i / columns * (CHIP_H + 6);
        box(p, x, y, wide, CHIP_H, 6, nic_near_any(p->m, g->nics[i]) ? "class=\"nic\"" : "class=\"nic far\"");
        snprintf(label, sizeof label, "%.15s", nic->name ? nic->name : nic->label);
        if (nic->gbit_per_s > 0 && wide > 90)
            snprintf(label, sizeof label, "%.12s %.0fG", nic->name ? nic->name : nic->label, nic->gbit_per_s);
        text_at(p, x + wide / 2, y + 15, "s", "middle", label);
    }
}

static void draw_nearest(picture *p, int gpu, double y) {
    int best = 99, nearest = -1;
    char text[48];
    for (int k = 0; k < (int)p->m->nics.count; k++) {
        int rank = hn_place_link_rank(hn_place_link_between(p->m, gpu, hn_place_nic_device(p->m, k)));
        if (rank < best && rank < 7) best = rank, nearest = k;
    }
    if (nearest < 0) return;
    const hn_place_nic *nic = &p->m->nics.data[nearest];
    hn_place_link link = hn_place_link_between(p->m, gpu, hn_place_nic_device(p->m, nearest));
    snprintf(text, sizeof text, "%.9s %s", nic->name && strlen(nic->name) < 10 ? nic->name : nic->label,
             k_styles[link.kind].name);
    pill(p, p->card_x[gpu], y, CARD_W - 10, link, text);
}

// "NVIDIA A800-SXM4-80GB" to "A800-SXM4-80GB".
static const char *short_name(const char *name) {
    static const char *const k_drop[] = {"NVIDIA ", "GeForce ", "Tesla "};
    for (size_t i = 0; i < HN_COUNT_OF(k_drop); i++)
        if (strncmp(name, k_drop[i], strlen(k_drop[i])) == 0) name += strlen(k_drop[i]);
    return name;
}

// The model that all cards are, NULL if they differ or it is unknown.
static const char *one_model(const hn_place_machine *m) {
    const char *name = m->gpus.count ? m->gpus.data[0].name : NULL;
    for (size_t g = 1; g < m->gpus.count && name; g++)
        if (!m->gpus.data[g].name || strcmp(m->gpus.data[g].name, name) != 0) name = NULL;
    return name;
}

static void draw_card(picture *p, int gpu) {
    const hn_place_gpu *card = &p->m->gpus.data[gpu];
    double x = p->card_x[gpu] - CARD_W / 2.0, y = p->cards_y;
    char label[32];
    box(p, x, y, CARD_W, CARD_H, 9, card->busy == 1 ? "class=\"card busy\"" : "class=\"card\"");
    snprintf(label, sizeof label, "GPU%d", card->index);
    text_at(p, p->card_x[gpu], y + 26, "g", "middle", label);
    const char *state = card->mig == 1 ? "MIG mode" : card->busy == 1 ? "in use" : NULL;
    if (state) snprintf(label, sizeof label, "%s", state);
    else if (card->name && !one_model(p->m)) snprintf(label, sizeof label, "%.15s", short_name(card->name));
    else if (card->memory_bytes > 0)
        snprintf(label, sizeof label, "%.0f GiB", (double)card->memory_bytes / (1 << 30));
    else label[0] = '\0';
    int links = hn_place_gpu_nvlinks(p->m, gpu);
    if (!label[0] && links > 0) snprintf(label, sizeof label, "%d NVLink%s", links, links == 1 ? "" : "s");
    if (!label[0] && links == 0) snprintf(label, sizeof label, "no NVLink");
    text_at(p, p->card_x[gpu], y + 44, "t", "middle", label);
    draw_nearest(p, gpu, y + CARD_H - 27);
}

static void draw_group(picture *p, const group *g) {
    if (g->switch_index >= 0) {
        double end = g->gpu_count ? p->cards_end + 8 : p->cards_y;
        box(p, g->x, p->chips_y - 22, g->width, end - (p->chips_y - 22), 10, "class=\"switch\"");
        text_at(p, g->x + g->width / 2, p->chips_y - 8, "k", "middle",
                g->gpu_count + g->nic_count > 1 ? "PCIe switch" : "");
    }
    draw_chips(p, g);
    for (int i = 0; i < g->gpu_count; i++) draw_card(p, g->gpus[i]);
}

// ---- NVLink -----------------------------------------------------------------------------------

static double draw_switched(picture *p) {
    int links = hn_place_gpu_nvlinks(p->m, 0);
    double left = p->width, right = 0, y = p->cards_end + 54;
    char label[128];
    for (int g = 0; g < (int)p->m->gpus.count; g++) {
        double x = p->card_x[g];
        left = x < left ? x : left;
        right = x > right ? x : right;
        for (int k = -1; k <= 1; k++)
            hn_str_printf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"nv\" "
                                  "stroke-width=\"2.4\"/>\n",
                          x + k * 7, p->cards_end, x + k * 7, y);
    }
    left -= CARD_W / 2.0;
    right += CARD_W / 2.0;
    box(p, left, y, right - left, 34, 9, "fill=\"#1f7a4d\"");
    snprintf(label, sizeof label, "NVSwitch: NV%d between every pair, %d links x %.0f GB/s = %.0f GB/s a card", links,
             links, 2 * p->m->link_gbs, 2 * links * p->m->link_gbs);
    if ((right - left) / 7.4 < (double)strlen(label))
        snprintf(label, sizeof label, "NV%d: %.0f GB/s a card", links, 2 * links * p->m->link_gbs);
    hn_str_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"h\" text-anchor=\"middle\" style=\"fill:#fff\">",
                  (left + right) / 2, y + 22);
    escape(p->out, label);
    hn_str_append(p->out, "</text>\n");
    return y + 34;
}

static double draw_direct(picture *p) {
    double deepest = p->cards_end + 20;
    int arcs = 0;
    bool counts[64] = {false};
    for (int a = 0; a < (int)p->m->gpus.count; a++)
        for (int b = a + 1; b < (int)p->m->gpus.count; b++)
            arcs += hn_place_link_between(p->m, a, b).kind == HN_LINK_NVLINK;
    if (!arcs) return p->cards_end + 20;
    for (int a = 0; a < (int)p->m->gpus.count; a++) {
        for (int b = a + 1; b < (int)p->m->gpus.count; b++) {
            hn_place_link link = hn_place_link_between(p->m, a, b);
            if (link.kind != HN_LINK_NVLINK) continue;
            double x1 = p->card_x[a], x2 = p->card_x[b], span = fabs(x2 - x1);
            double depth = 26 + span * 0.19, y = p->cards_end, bottom = y + 20 + depth * 0.75;
            double width = link.detail > 3 ? 6 : 1.4 + 1.4 * link.detail;
            hn_str_printf(p->out,
                          "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" class=\"nv\" fill=\"none\" "
                          "stroke-width=\"%.1f\" stroke-opacity=\"%s\"/>\n",
                          x1, y, x1, y + 20 + depth, x2, y + 20 + depth, x2, y, width,
                          link.detail > 1 ? "0.95" : "0.55");
            if (bottom > deepest) deepest = bottom;
            char label[32];
            snprintf(label, sizeof label, "NV%d %.0f GB/s", link.detail, link.detail * p->m->link_gbs);
            if (arcs <= (int)p->m->gpus.count / 2) pill(p, (x1 + x2) / 2, bottom - 4, 96, link, label);
            counts[link.detail & 63] = true;
        }
    }
    if (arcs > (int)p->m->gpus.count / 2) {
        double x = MARGIN + 4;
        for (int count = 1; count < 64; count++) {
            if (!counts[count]) continue;
            char label[48];
            hn_str_printf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"nv\" "
                                  "stroke-width=\"%.1f\" stroke-opacity=\"%s\"/>\n",
                          x, deepest + 14, x + 34, deepest + 14, count > 3 ? 6 : 1.4 + 1.4 * count,
                          count > 1 ? "0.95" : "0.55");
            snprintf(label, sizeof label, "NV%d: %.0f GB/s each way", count, count * p->m->link_gbs);
            text_at(p, x + 42, deepest + 18, "t", "start", label);
            x += 190;
        }
        return deepest + 30;
    }
    return deepest + 22;
}

// ---- matrix and legend ------------------------------------------------------------------------

static double cell_size(int count) { return count <= 20 ? 30 : count <= 32 ? 18 : 13; }

static double draw_matrix(picture *p, double x, double y) {
    int count = p->m->device_count;
    double cell = cell_size(count);
    double left = x + 64, top = y + 46;
    char label[16], code[8];
    text_at(p, x, y + 8, "h", "start", "Paths");
    for (int a = 0; a < count; a++) {
        const char *name = hn_place_device_label(p->m, a, label, sizeof label);
        int nic = a - (int)p->m->gpus.count; // by the name in its box, where there is room for it
        if (nic >= 0 && p->m->nics.data[nic].name && strlen(p->m->nics.data[nic].name) <= 8)
            name = p->m->nics.data[nic].name;
        text_at(p, left - 8, top + a * cell + cell / 2 + 4, cell < 16 ? "x" : "s", "end", name);
        hn_str_printf(p->out, "<text transform=\"translate(%.1f %.1f) rotate(-50)\" class=\"%s\">",
                      left + a * cell + cell / 2 + 3, top - 6, cell < 16 ? "x" : "s");
        escape(p->out, name);
        hn_str_append(p->out, "</text>\n");
        for (int b = 0; b < count; b++) {
            hn_place_link link = hn_place_cell(p->m, a, b);
            const char *text = hn_place_link_code(p->m, link, code, sizeof code);
            char fill[64];
            snprintf(fill, sizeof fill, "fill=\"%s\"", k_styles[link.kind].fill);
            box(p, left + b * cell, top + a * cell, cell - 1.5, cell - 1.5, 3, fill);
            if (cell < 24) continue;
            hn_str_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"x\" text-anchor=\"middle\" style=\"fill:%s\">",
                          left + (b + 0.5) * cell - 0.7, top + (a + 0.5) * cell + 2.8, k_styles[link.kind].ink);
            escape(p->out, text ? text : "?");
            hn_str_append(p->out, "</text>\n");
        }
    }
    return top + count * cell + 12;
}

static double draw_legend(picture *p, double x, double y) {
    static const char *const k_words[HN_LINK_KINDS] = {
        [HN_LINK_NVLINK] = "a link, times the number after NV",
        [HN_LINK_PIX] = "one PCIe switch",
        [HN_LINK_PXB] = "several PCIe switches",
        [HN_LINK_PHB] = "the CPU's host bridge",
        [HN_LINK_NODE] = "between host bridges of a node",
        [HN_LINK_SYS] = "the link between sockets",
        [HN_LINK_SOC] = "the link between sockets",
        [HN_LINK_FOREIGN] = "another maker's link, speed unknown",
        [HN_LINK_UNKNOWN] = "not in the source",
    };
    bool used[HN_LINK_KINDS] = {false};
    char text[96];
    for (int i = 0; i < p->m->device_count * p->m->device_count; i++) used[p->m->matrix[i].kind] = true;
    text_at(p, x, y + 8, "h", "start", p->m->measured_gbs ? "Classes of path" : "Classes, GB/s each way");
    y += 24;
    for (int order = HN_LINK_NVLINK; order <= HN_LINK_KINDS; order++) {
        int kind = order == HN_LINK_KINDS ? HN_LINK_UNKNOWN : order;
        if (!used[kind]) continue;
        pill(p, x + 32, y, 64, (hn_place_link){.kind = (uint8_t)kind}, k_styles[kind].name);
        double gbs = class_gbs(p->m, kind);
        if (gbs > 0) snprintf(text, sizeof text, "%.0f   %s", gbs, k_words[kind]);
        else snprintf(text, sizeof text, "%s", k_words[kind]);
        text_at(p, x + 74, y + 12.5, "t", "start", text);
        y += 25;
    }
    bool far = false;
    for (int k = 0; k < (int)p->m->nics.count; k++) far |= !nic_near_any(p->m, k);
    if (!far) return y;
    box(p, x, y, 64, 17, 5, "class=\"nic far\"");
    text_at(p, x + 74, y + 12.5, "t", "start", "adapter that is far from every card");
    return y + 25;
}

// The first sentences of advice, wrapped into what room there is beside the matrix.
static double draw_advice(picture *p, double x, double y, double width) {
    int most = (int)(width / 6.4); // 11.5 px letters, wide fonts included
    y += 22;
    if (p->m->advice.count) text_at(p, x, y, "h", "start", "Advice");
    y += 22;
    for (size_t i = 0; i < p->m->advice.count && i < 5; i++) {
        const char *at = p->m->advice.data[i];
        hn_str_printf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\" fill=\"#1d5fa8\"/>\n", x + 4, y - 4);
        while (*at) {
            char line[256];
            size_t length = strlen(at), cut = length;
            if (length > (size_t)most) {
                cut = (size_t)most;
                while (cut > 20 && at[cut] != ' ') cut--;
            }
            snprintf(line, sizeof line, "%.*s", (int)cut, at);
            text_at(p, x + 14, y, "t", "start", line);
            at += cut;
            while (*at == ' ') at++;
            y += 16;
        }
        y += 7;
    }
    return y;
}

// ---- all of it --------------------------------------------------------------------------------

static const char k_style_text[] =
    "<style>text{font-family:'Inter','Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;fill:#20262f}"
    ".T{font-size:21px;font-weight:700}.t{font-size:11.5px;fill:#4d5665}.h{font-size:14px;font-weight:600}"
    ".g{font-size:16px;font-weight:700}.s{font-size:10.5px}.k{font-size:10.5px;fill:#4a6b94}.x{font-size:8.5px}"
    ".w{font-size:12px;fill:#a33422;font-weight:600}"
    ".node{fill:#f5f7fa;stroke:#c5ccd6;stroke-width:1.2}.switch{fill:#e6eef8;stroke:#9dbbdd;stroke-width:1.2}"
    ".card{fill:#fff;stroke:#1f7a4d;stroke-width:2}.busy{fill:#fdf0ee;stroke:#d9553f}"
    ".nic{fill:#fff;stroke:#1d5fa8;stroke-width:1.3}.far{stroke:#9aa1ad;stroke-dasharray:4 3;fill:#f7f7f7}"
    ".back{fill:#e6eef8}.bus{stroke:#8a93a2;stroke-width:1.6}.nv{stroke:#1f7a4d}</style>\n";

static void draw_title(picture *p) {
    const hn_place_machine *m = p->m;
    char text[160];
    const char *name = one_model(m);
    snprintf(text, sizeof text, "%zu %s%s%s, %zu network adapter%s", m->gpus.count, name ? "x " : "card",
             name ? "" : m->gpus.count == 1 ? "" : "s", name ? short_name(name) : "", m->nics.count,
             m->nics.count == 1 ? "" : "s");
    text_at(p, MARGIN, 42, "T", "start", text);
    snprintf(text, sizeof text, "from %s%s", m->source ? m->source : "?", m->complete ? "" : "; incomplete:");
    text_at(p, MARGIN, 63, "t", "start", text);
    if (!m->complete && m->damage.count) {
        // What was lost tells more than what was mended.
        const char *worst = m->damage.data[0];
        for (size_t i = m->damage.count; i-- > 0;)
            if (strstr(m->damage.data[i], "unknown")) worst = m->damage.data[i];
        snprintf(text, sizeof text, "%.140s", worst);
        text_at(p, MARGIN, 80, "w", "start", text);
    }
}

// The link between sockets, over the panels that have cards.
static void draw_sockets(picture *p) {
    double left = 0, right = 0;
    int panels = 0, kind = HN_LINK_SYS;
    bool across = false;
    for (int i = 0; i < p->m->device_count * p->m->device_count; i++) {
        across |= p->m->matrix[i].kind == HN_LINK_SYS || p->m->matrix[i].kind == HN_LINK_SOC;
        if (p->m->matrix[i].kind == HN_LINK_SOC) kind = HN_LINK_SOC;
    }
    for (int i = 0, last; i < p->group_count; i = last + 1) {
        last = i;
        while (last + 1 < p->group_count && p->groups[last + 1].node == p->groups[i].node) last++;
        if (p->groups[i].node < 0) continue;
        double middle = (p->groups[i].x + p->groups[last].x + p->groups[last].width) / 2;
        if (!panels++) left = middle;
        right = middle;
        if (across)
            hn_str_printf(p->out, "<line x1=\"%.1f\" y1=\"96\" x2=\"%.1f\" y2=\"112\" stroke=\"#d9553f\" "
                                  "stroke-width=\"3\"/>\n",
                          middle, middle);
    }
    if (panels < 2 || !across) return;
    char label[48];
    hn_str_printf(p->out, "<line x1=\"%.1f\" y1=\"96\" x2=\"%.1f\" y2=\"96\" stroke=\"#d9553f\" stroke-width=\"3\" "
                          "stroke-linecap=\"round\"/>\n",
                  left, right);
    snprintf(label, sizeof label, "%s  %.0f GB/s", k_styles[kind].name, class_gbs(p->m, kind));
    pill(p, (left + right) / 2, 87.5, 96, (hn_place_link){.kind = (uint8_t)kind}, label);
}

static void draw(picture *p) {
    hn_str head = {0}, *final = p->out;
    p->out = &head;
    draw_title(p);
    draw_sockets(p);
    for (int i = 0, last; i < p->group_count; i = last + 1) {
        last = i;
        while (last + 1 < p->group_count && p->groups[last + 1].node == p->groups[i].node) last++;
        draw_node(p, i, last);
        for (int k = i; k <= last; k++) draw_group(p, &p->groups[k]);
    }
    double y = p->group_count ? p->cards_end + 20 : 100;
    if (p->m->gpus.count > 1) y = hn_place_machine_nvswitch(p->m) ? draw_switched(p) : draw_direct(p);
    y += 34;
    double end = y;
    if (p->m->device_count) {
        int count = p->m->device_count;
        double cell = cell_size(count);
        double matrix_width = 64 + count * cell + 56;
        end = draw_matrix(p, MARGIN, y);
        if (p->width < MARGIN + matrix_width + 330) p->width = MARGIN + matrix_width + 330;
        double side = MARGIN + matrix_width, room = p->width - side - MARGIN;
        double legend = draw_legend(p, side, y), advice;
        // Beside the classes where there is room for two columns, else below them.
        if (room > 700) advice = draw_advice(p, side + 310, y - 14, room - 310);
        else advice = draw_advice(p, side, legend, room < 230 ? 230 : room);
        end = legend > end ? legend : end;
        end = advice > end ? advice : end;
    }
    p->height = end + MARGIN;
    p->out = final;
    hn_str_printf(final, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                         "height=\"%.0f\" role=\"img\">\n<title>Topology of one machine</title>\n%s",
                  p->width, p->height, p->width, p->height, k_style_text);
    box(p, 0.5, 0.5, p->width - 1, p->height - 1, 12, "fill=\"#ffffff\" stroke=\"#dfe3e8\"");
    hn_str_append_n(final, hn_str_get(&head), head.length);
    if (head.failed) final->failed = true;
    hn_str_append(final, "</svg>\n");
    hn_str_free(&head);
}

void hn_place_machine_svg(const hn_place_machine *machine, hn_str *out) {
    picture p = {.m = machine, .out = out};
    p.groups = hn_calloc((size_t)machine->device_count + 1, sizeof *p.groups);
    if (!p.groups) {
        out->failed = true;
        return;
    }
    make_groups(&p);
    lay_out(&p);
    draw(&p);
    hn_free(p.groups);
}

static void html_list(const char *title, const hn_place_texts *texts, hn_str *out) {
    if (!texts->count) return;
    hn_str_printf(out, "<h2>%s</h2>\n<ul>\n", title);
    for (size_t i = 0; i < texts->count; i++) {
        hn_str_append(out, "<li>");
        escape(out, texts->data[i]);
        hn_str_append(out, "</li>\n");
    }
    hn_str_append(out, "</ul>\n");
}

void hn_place_machine_html(const hn_place_machine *machine, hn_str *out) {
    hn_str table = {0};
    hn_str_append(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Topology</title>\n"
                       "<style>body{font:15px/1.5 'Inter','Segoe UI','DejaVu Sans',sans-serif;margin:24px auto;"
                       "max-width:1400px;padding:0 20px;color:#20262f}svg{max-width:100%;height:auto}"
                       "pre{overflow-x:auto;background:#f5f7fa;padding:14px;border-radius:8px;font-size:12.5px}"
                       "li{margin:6px 0}</style></head><body>\n");
    hn_place_machine_svg(machine, out);
    html_list("Damage", &machine->damage, out);
    html_list("Advice", &machine->advice, out);
    hn_str_append(out, "<h2>Table</h2>\n<pre>");
    hn_place_machine_table(machine, &table);
    char *end = table.data ? strstr(table.data, "\ndamage\n") : NULL;
    if (!end && table.data) end = strstr(table.data, "\nadvice\n");
    if (end) *end = '\0'; // both are above already
    escape(out, hn_str_get(&table));
    hn_str_append(out, "</pre>\n</body></html>\n");
    if (table.failed) out->failed = true;
    hn_str_free(&table);
}
