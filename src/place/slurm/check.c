// SPDX-License-Identifier: Apache-2.0
// slurm.conf and gres.conf against each other and against the machine: what slurmd would drain the
// node for, said before it does. The consequences named were seen with Slurm 22.05.
#include "place/slurm/slurm.h"
#include <jansson.h>
#include <stdarg.h>
#include <strings.h>
#include <unistd.h>

#define PLUGIN_DIR                                                                                 \
    "/usr/lib/x86_64-linux-gnu/slurm-wlm:/usr/lib/slurm:/usr/lib64/slurm:/usr/lib/"                \
    "aarch64-linux-gnu/slurm-wlm"
#define TYPES_MAX 32
#define FILES_MAX 1024

typedef struct type_count { // cards of one type, as one of the files states them
    char type[64];          // "" where none is given
    int64_t configured;     // slurm.conf
    int64_t listed;         // gres.conf, with a file
    int64_t fileless;       // gres.conf, Count= without File=
} type_count;

typedef struct checker {
    hone_error *err;
    const hn_slurm_check_options *options;
    hn_slurm_check *check;
    hn_slurm_conf slurm, gres;
    bool have_gres, failed;
    bool count_lost;           // a number of node_gres cannot be read
    const hn_slurm_line *node; // its NodeName line
    const char *node_gres;     // value of Gres=, from the line or the DEFAULT before it
    type_count types[TYPES_MAX];
    int type_count;
    const char *files[FILES_MAX];
    int file_count;
    int64_t links_rows, links_bad, cores_rows;
} checker;

static void find(checker *c, hn_slurm_severity severity, const char *id, const char *fmt, ...)
    HN_PRINTF(4, 5);
static void find(checker *c, hn_slurm_severity severity, const char *id, const char *fmt, ...) {
    char text[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hn_slurm_finding item = {id, hn_arena_strdup(&c->check->arena, text), severity};
    if (!item.text || !hn_vec_push(&c->check->findings, item)) c->failed = true;
}

// ---- reading the node's entry -----------------------------------------------------------------
static bool is_key(const hn_slurm_line *line, const char *key) {
    return strcasecmp(line->pairs[0].key, key) == 0;
}

// The node's line, and the value of `key` there or in the NodeName=DEFAULT line before it.
static const char *node_value(const checker *c, const char *key) {
    const char *value = NULL;
    for (size_t i = 0; i < c->slurm.lines.count; i++) {
        const hn_slurm_line *line = &c->slurm.lines.data[i];
        if (!is_key(line, "NodeName")) continue;
        if (strcasecmp(line->pairs[0].value, "DEFAULT") == 0) {
            const char *found = hn_slurm_line_get(line, key);
            if (found) value = found;
        } else if (line == c->node) {
            const char *found = hn_slurm_line_get(line, key);
            return found ? found : value;
        }
    }
    return value;
}

static const hn_slurm_line *find_node(checker *c, const char *name) {
    for (size_t i = 0; i < c->slurm.lines.count; i++) {
        const hn_slurm_line *line = &c->slurm.lines.data[i];
        if (!is_key(line, "NodeName")) continue;
        const char *host = hn_slurm_line_get(line, "NodeHostname");
        if (hn_slurm_hostlist_has(line->pairs[0].value, name) ||
            (host && hn_slurm_hostlist_has(host, name)))
            return line;
    }
    return NULL;
}

static type_count *type_of(checker *c, const char *type) {
    for (int i = 0; i < c->type_count; i++)
        if (strcasecmp(c->types[i].type, type) == 0) return &c->types[i];
    if (c->type_count == TYPES_MAX) return NULL;
    type_count *item = &c->types[c->type_count++];
    *item = (type_count){{0}, 0, 0, 0};
    snprintf(item->type, sizeof item->type, "%s", type);
    return item;
}

// "8", "8K"; -1 for junk.
static int64_t parse_count(hn_slice text) {
    int64_t scale = 1, value;
    if (text.length && (text.data[text.length - 1] == 'K' || text.data[text.length - 1] == 'k'))
        scale = 1024, text.length--;
    if (!hn_parse_i64(text, &value) || value < 0 || value > 1000000) return -1;
    return value * scale;
}

// "99999999999", "-3", "2M": meant as a number, and none that parse_count takes.
static bool is_broken_count(hn_slice text) {
    size_t at = text.length && text.data[0] == '-', from = at;
    while (at < text.length && text.data[at] >= '0' && text.data[at] <= '9') at++;
    return at > from && (at == text.length || (at + 1 == text.length && strchr("kKmMgGtTpP", text.data[at])));
}

// "gpu:a100:8(S:0-1),shard:32": the gpu parts into types.
static void read_node_gres(checker *c, const char *text) {
    while (*text) {
        size_t length = strcspn(text, ","), name = strcspn(text, ":,(");
        if (name == 3 && strncasecmp(text, "gpu", 3) == 0) {
            char type[64] = "";
            int64_t count = 1;
            const char *end = text + length, *at = text + name;
            while (at < end && *at == ':') {
                size_t n = strcspn(at + 1, ":,(");
                int64_t number = parse_count((hn_slice){at + 1, n});
                if (number >= 0)
                    count = number;
                else if (is_broken_count((hn_slice){at + 1, n})) {
                    find(c, HN_SLURM_ERROR, "node_count",
                         "slurm.conf gives node %s Gres=gpu with '%.*s', which is no number of cards", c->check->node,
                         n < 40 ? (int)n : 40, at + 1);
                    count = 0;
                    c->count_lost = true;
                } else if (n < sizeof type)
                    snprintf(type, sizeof type, "%.*s", (int)n, at + 1);
                at += n + 1;
            }
            type_count *item = type_of(c, type);
            if (item) item->configured += count;
        }
        text += length;
        if (*text == ',') text++;
    }
}

// ---- gres.conf --------------------------------------------------------------------------------
static bool take_file(void *user, const char *name, int index) {
    (void)index;
    checker *c = user;
    for (int i = 0; i < c->file_count; i++)
        if (strcmp(c->files[i], name) == 0) {
            find(c, HN_SLURM_ERROR, "file_twice",
                 "gres.conf names %s twice: slurmd counts it once or refuses the line", name);
            return true;
        }
    if (c->file_count == FILES_MAX) return false;
    char *copy = hn_arena_strdup(&c->check->arena, name);
    if (!copy) {
        c->failed = true;
        return false;
    }
    c->files[c->file_count++] = copy;
    return true;
}

static void read_links(checker *c, const char *text, int64_t line) {
    int count = 0, self = 0;
    while (*text) {
        size_t n = strcspn(text, ",");
        int64_t value;
        if (!hn_parse_i64((hn_slice){text, n}, &value) || value < -1 || value > 1024)
            c->links_bad = line;
        else if (value == -1)
            self++;
        count++;
        text += n;
        if (*text == ',') text++;
    }
    c->links_rows++;
    if (self != 1 && !c->links_bad) c->links_bad = line;
    if (c->links_bad == line)
        find(c, HN_SLURM_WARN, "links_broken",
             "gres.conf line %lld: Links= wants one number a card and -1 for the card itself, %d "
             "numbers are there",
             (long long)line, count);
}

static void read_gpu_line(checker *c, const hn_slurm_line *line) {
    const char *type = hn_slurm_line_get(line, "Type"), *file = hn_slurm_line_get(line, "File");
    const char *count = hn_slurm_line_get(line, "Count"), *links = hn_slurm_line_get(line, "Links");
    if (!file) file = hn_slurm_line_get(line, "MultipleFiles");
    type_count *item = type_of(c, type ? type : "");
    if (!item) return;
    if (file) {
        int before = c->file_count;
        hone_error err = {0};
        if (hn_slurm_hostlist(&err, file, take_file, c) != HONE_OK)
            find(c, HN_SLURM_ERROR, "file_unreadable",
                 "gres.conf line %lld: File=%s cannot be read as a list", (long long)line->number,
                 file);
        item->listed += c->file_count - before;
        int64_t stated = count ? parse_count((hn_slice){count, strlen(count)}) : -1;
        if (count && stated != c->file_count - before)
            find(c, HN_SLURM_ERROR, "count_not_files",
                 "gres.conf line %lld: Count=%s but File= names %d", (long long)line->number, count,
                 c->file_count - before);
    } else {
        int64_t n = count ? parse_count((hn_slice){count, strlen(count)}) : 1;
        item->fileless += n > 0 ? n : 0;
        find(c, HN_SLURM_ERROR, "file_missing",
             "gres.conf line %lld gives GPUs without File=: slurmd removes file-less GPUs and "
             "counts 0",
             (long long)line->number);
    }
    if (links) read_links(c, links, line->number);
    c->cores_rows +=
        hn_slurm_line_get(line, "Cores") != NULL || hn_slurm_line_get(line, "CPUs") != NULL;
}

static bool plugin_exists(const checker *c, const char *name) {
    const char *dirs = hn_slurm_conf_get(&c->slurm, "PluginDir");
    if (!dirs) dirs = PLUGIN_DIR;
    while (*dirs) {
        size_t n = strcspn(dirs, ":");
        char path[1024];
        snprintf(path, sizeof path, "%.*s/%s", (int)n, dirs, name);
        if (access(path, R_OK) == 0) return true;
        dirs += n;
        if (*dirs == ':') dirs++;
    }
    return false;
}

static void read_gres(checker *c) {
    const char *node = c->check->node;
    for (size_t i = 0; c->have_gres && i < c->gres.lines.count; i++) {
        const hn_slurm_line *line = &c->gres.lines.data[i];
        const char *nodes = hn_slurm_line_get(line, "NodeName");
        if (nodes && !hn_slurm_hostlist_has(nodes, node)) continue;
        const char *detect = hn_slurm_line_get(line, "AutoDetect");
        if (detect && strcasecmp(detect, "nvml") == 0) {
            // Only where Slurm itself is installed can its plug-ins be looked for.
            if (plugin_exists(c, "gres_gpu.so") && !plugin_exists(c, "gpu_nvml.so"))
                find(c, HN_SLURM_ERROR, "autodetect_missing",
                     "gres.conf asks for AutoDetect=nvml, but this Slurm has no gpu_nvml plug-in: "
                     "it finds 0 GPUs and drains the node; write File= lines (hone slurm gres) and "
                     "AutoDetect=off");
        }
        const char *name = hn_slurm_line_get(line, "Name");
        if (name && strcasecmp(name, "gpu") == 0) read_gpu_line(c, line);
    }
}

// ---- comparisons ------------------------------------------------------------------------------
// slurmd gives cards without a type in slurm.conf whatever gres.conf lists and slurm.conf does not name.
static void give_untyped(checker *c) {
    type_count *untyped = NULL;
    for (int i = 0; i < c->type_count; i++)
        if (!c->types[i].type[0] && c->types[i].configured) untyped = &c->types[i];
    for (int i = 0; untyped && i < c->type_count; i++) {
        type_count *t = &c->types[i];
        if (t == untyped || t->configured || !t->listed) continue;
        find(c, HN_SLURM_WARN, "type_unused",
             "gres.conf lists %lld cards of type %s, slurm.conf gives node %s cards without a type: slurmd takes "
             "them, warns of extra GRES, and no job can ask for the type",
             (long long)t->listed, t->type, c->check->node);
        untyped->listed += t->listed;
        t->listed = 0;
    }
}

static void compare_counts(checker *c) {
    int64_t configured = 0, listed = 0;
    give_untyped(c);
    for (int i = 0; i < c->type_count; i++)
        configured += c->types[i].configured, listed += c->types[i].listed;
    for (int i = 0; i < c->type_count; i++) {
        const type_count *t = &c->types[i];
        const char *of = t->type[0] ? " of type " : " without a type";
        if (t->configured == t->listed) continue;
        if (t->listed && !t->configured && configured)
            find(c, HN_SLURM_ERROR, "type_mismatch",
                 "gres.conf lists %lld cards%s%s, slurm.conf none such: slurmd "
                 "ignores them as extra and the node is drained for the missing ones",
                 (long long)t->listed, of, t->type);
        else if (t->listed < t->configured)
            find(c, HN_SLURM_ERROR, "count_lower",
                 "slurm.conf says %lld cards%s%s at node %s, gres.conf gives %lld: slurmd "
                 "will report gres/gpu count reported lower than configured (%lld < %lld) and the "
                 "node becomes INVAL and DRAIN",
                 (long long)t->configured, of, t->type, c->check->node, (long long)t->listed,
                 (long long)t->listed, (long long)t->configured);
        else
            find(c, HN_SLURM_WARN, "count_higher",
                 "gres.conf gives %lld cards%s%s, slurm.conf asks for %lld: the others are "
                 "never used",
                 (long long)t->listed, of, t->type, (long long)t->configured);
    }
    const char *types = hn_slurm_conf_get(&c->slurm, "GresTypes");
    if (configured && (!types || !strcasestr(types, "gpu")))
        find(c, HN_SLURM_ERROR, "grestypes",
             "slurm.conf has gpu at the node but not in GresTypes: Slurm refuses the node's Gres");
    if (!configured && listed && !c->count_lost)
        find(c, HN_SLURM_WARN, "gres_unused",
             "gres.conf lists %lld cards, slurm.conf gives node %s no Gres=gpu: no job can ask for "
             "them",
             (long long)listed, c->check->node);
    const char *tres = hn_slurm_conf_get(&c->slurm, "AccountingStorageTRES");
    if (configured && (!tres || !strcasestr(tres, "gres/gpu")))
        find(c, HN_SLURM_NOTE, "tres",
             "AccountingStorageTRES lacks gres/gpu: accounting and jobcomp lines will not show "
             "cards");
    if (configured && c->have_gres && listed && c->cores_rows == 0)
        find(c, HN_SLURM_WARN, "cores_missing",
             "gres.conf gives no Cores=: Slurm cannot place a job's CPUs near its cards (hone "
             "slurm gres writes them)");
}

static void compare_machine(checker *c) {
    const hn_place_machine *m = c->options->machine;
    if (!m) return;
    int64_t configured = 0, listed = 0;
    for (int i = 0; i < c->type_count; i++)
        configured += c->types[i].configured, listed += c->types[i].listed;
    int64_t cards = (int64_t)m->gpus.count;
    if (configured > cards)
        find(c, HN_SLURM_ERROR, "machine_fewer",
             "slurm.conf promises %lld cards, the machine has %lld", (long long)configured,
             (long long)cards);
    else if (configured < cards && configured)
        find(c, HN_SLURM_WARN, "machine_more", "the machine has %lld cards, slurm.conf offers %lld",
             (long long)cards, (long long)configured);
    if (c->links_rows && listed == cards && c->links_rows != cards && !c->links_bad)
        find(c, HN_SLURM_NOTE, "links_partial", "Links= stands on %lld of %lld cards",
             (long long)c->links_rows, (long long)cards);
    for (size_t i = 0; i < m->gpus.count; i++)
        if (m->gpus.data[i].mig == 1 && m->gpus.data[i].mig_instances > 0) {
            find(c, HN_SLURM_WARN, "mig",
                 "GPU%d is split by MIG: each instance needs its own gres line (MultipleFiles= "
                 "with its /dev/nvidia-caps files)",
                 m->gpus.data[i].index);
            break;
        }
}

// Cores= of each gres.conf line against the card behind its first file.
static void compare_cores(checker *c) {
    const hn_place_machine *m = c->options->machine;
    if (!m || !c->have_gres) return;
    const char *sockets = node_value(c, "Sockets"), *per = node_value(c, "CoresPerSocket");
    int64_t cores_total = -1, a, b;
    if (sockets && per && hn_parse_i64((hn_slice){sockets, strlen(sockets)}, &a) &&
        hn_parse_i64((hn_slice){per, strlen(per)}, &b) && a > 0 && b > 0 && a < 65536 && b < 65536)
        cores_total = a * b;
    for (size_t i = 0; i < c->gres.lines.count; i++) {
        const hn_slurm_line *line = &c->gres.lines.data[i];
        const char *nodes = hn_slurm_line_get(line, "NodeName"),
                   *name = hn_slurm_line_get(line, "Name");
        const char *text = hn_slurm_line_get(line, "Cores"),
                   *file = hn_slurm_line_get(line, "File");
        if (!name || strcasecmp(name, "gpu") != 0 || !text || !file) continue;
        if (nodes && !hn_slurm_hostlist_has(nodes, c->check->node)) continue;
        hn_place_cpuset cores, wanted;
        char why[160];
        if (!hn_place_cpuset_parse((hn_slice){text, strlen(text)}, &cores)) {
            find(c, HN_SLURM_ERROR, "cores_unreadable",
                 "gres.conf line %lld: Cores=%s is no list of numbers", (long long)line->number,
                 text);
            continue;
        }
        int last = -1;
        for (int cpu = hn_place_cpuset_next(&cores, -1); cpu >= 0;
             cpu = hn_place_cpuset_next(&cores, cpu))
            last = cpu;
        if (cores_total > 0 && last >= cores_total) {
            find(c, HN_SLURM_ERROR, "cores_beyond",
                 "gres.conf line %lld: Cores=%s, but slurm.conf gives the node cores 0-%lld (cores "
                 "are counted socket by socket, not CPU threads)",
                 (long long)line->number, text, (long long)cores_total - 1);
            continue;
        }
        const char *digits = file + strlen(file);
        while (digits > file && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        int64_t index;
        if (!hn_parse_i64((hn_slice){digits, strlen(digits)}, &index))
            continue; // a range: no one card
        int position = hn_place_gpu_find(m, (int)index);
        if (position < 0 || !hn_slurm_cores(m, &m->gpus.data[position], c->options->live, 0,
                                            &wanted, why, sizeof why))
            continue;
        if (!hn_place_cpuset_equal(&cores, &wanted)) {
            hn_str right = {0};
            hn_place_cpuset_append(&right, &wanted);
            find(c, HN_SLURM_WARN, "cores_differ",
                 "gres.conf line %lld: Cores=%s, the machine has GPU%lld near cores %s",
                 (long long)line->number, text, (long long)index, hn_str_get(&right));
            hn_str_free(&right);
        }
    }
}

static void compare_host(checker *c) {
    if (!c->options->live) return;
    for (int i = 0; i < c->file_count; i++)
        if (access(c->files[i], F_OK) != 0)
            find(c, HN_SLURM_ERROR, "file_absent",
                 "gres.conf names %s, which is not there: slurmd stops counting the card",
                 c->files[i]);
    const char *parameters = hn_slurm_conf_get(&c->slurm, "SlurmdParameters");
    bool override = parameters && strcasestr(parameters, "config_overrides");
    const char *memory = node_value(c, "RealMemory");
    int64_t mib, pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (memory && hn_parse_i64((hn_slice){memory, strlen(memory)}, &mib) && pages > 0 && page > 0 &&
        mib > pages / 1024 * page / 1024 && !override)
        find(c, HN_SLURM_ERROR, "memory",
             "slurm.conf gives the node RealMemory=%lld MiB, this host has %lld: slurmd drains it "
             "for low RealMemory",
             (long long)mib, (long long)(pages / 1024 * page / 1024));
    const char *cpus = node_value(c, "CPUs");
    int64_t count, here = sysconf(_SC_NPROCESSORS_CONF);
    if (cpus && hn_parse_i64((hn_slice){cpus, strlen(cpus)}, &count) && here > 0 && count > here &&
        !override)
        find(c, HN_SLURM_ERROR, "cpus",
             "slurm.conf gives the node CPUs=%lld, this host has %lld: slurmd drains it for low "
             "CPUs",
             (long long)count, (long long)here);
}

// A plug-in listed as required whose file is missing stops srun, sbatch and slurmd.
static void check_plugstack(checker *c) {
    const char *path = hn_slurm_conf_get(&c->slurm, "PlugStackConfig");
    char beside[1024];
    if (!path) {
        const char *slash = strrchr(c->options->slurm_conf, '/');
        snprintf(beside, sizeof beside, "%.*splugstack.conf",
                 slash ? (int)(slash - c->options->slurm_conf) + 1 : 0, c->options->slurm_conf);
        path = beside;
    }
    char *data;
    size_t bytes;
    hone_error ignored = {0};
    if (access(path, R_OK) != 0 || hn_file_read(&ignored, path, 1 << 20, &data, &bytes) != HONE_OK)
        return;
    hn_slice rest = {data, bytes}, line;
    while (hn_slice_line(&rest, &line)) {
        char kind[32] = "", file[512] = "", text[1024];
        snprintf(text, sizeof text, "%.*s", (int)(line.length < 1000 ? line.length : 1000),
                 line.data);
        if (sscanf(text, "%31s %511s", kind, file) != 2 || strcasecmp(kind, "required") != 0)
            continue;
        if (file[0] == '/' ? access(file, R_OK) == 0 : plugin_exists(c, file)) continue;
        find(c, HN_SLURM_ERROR, "plugin_required",
             "%s requires %s, which is not there: srun, sbatch and slurmd will stop; list it as "
             "optional",
             path, file);
    }
    hn_free(data);
}

static void check_energy(checker *c) {
    const char *energy = hn_slurm_conf_get(&c->slurm, "AcctGatherEnergyType");
    if (!energy || !strcasestr(energy, "gpu")) return;
    if (plugin_exists(c, "gres_gpu.so") && !plugin_exists(c, "gpu_nvml.so"))
        find(c, HN_SLURM_ERROR, "energy_gpu",
             "AcctGatherEnergyType=%s with a Slurm that has no NVML: slurmctld of Debian 12 dies "
             "on it (undefined symbol); leave it at acct_gather_energy/none, hone's SPANK plug-in "
             "records energy",
             energy);
}

// ---- the whole --------------------------------------------------------------------------------
static hone_status run(checker *c, char *host) {
    const hn_slurm_check_options *o = c->options;
    HN_TRY(hn_slurm_conf_read(c->err, o->slurm_conf, &c->slurm));
    char beside[1024];
    const char *gres = o->gres_conf;
    if (!gres) {
        const char *slash = strrchr(o->slurm_conf, '/');
        snprintf(beside, sizeof beside, "%.*sgres.conf",
                 slash ? (int)(slash - o->slurm_conf) + 1 : 0, o->slurm_conf);
        gres = beside;
    }
    c->have_gres = o->gres_conf || access(gres, F_OK) == 0;
    if (c->have_gres) HN_TRY(hn_slurm_conf_read(c->err, gres, &c->gres));
    c->check->node = hn_arena_strdup(&c->check->arena, o->node ? o->node : host);
    if (!c->check->node) HN_NOMEM(c->err, "a name");
    c->node = find_node(c, c->check->node);
    if (!c->node)
        HN_FAIL(c->err, HONE_ERR_INPUT,
                "'%s' has no NodeName line for node '%s' (name it with --node)", o->slurm_conf,
                c->check->node);
    const char *node_gres = node_value(c, "Gres");
    if (node_gres) read_node_gres(c, node_gres);
    if (node_gres && !c->have_gres && strcasestr(node_gres, "gpu"))
        find(c, HN_SLURM_ERROR, "gres_conf_absent",
             "slurm.conf gives node %s cards, but there is no gres.conf at %s: slurmd counts 0",
             c->check->node, gres);
    read_gres(c);
    if (c->have_gres) compare_counts(c);
    compare_machine(c);
    compare_cores(c);
    compare_host(c);
    check_plugstack(c);
    check_energy(c);
    if (c->failed) HN_NOMEM(c->err, "findings");
    return HONE_OK;
}

hn_status hn_slurm_check_run(hone_error *err, const hn_slurm_check_options *options,
                             hn_slurm_check *out_check) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    hn_slurm_check check = {.good = true};
    checker *c = hn_calloc(1, sizeof *c);
    if (!c) HN_NOMEM(err, "checking Slurm's files");
    c->err = err;
    c->options = options;
    c->check = &check;
    hone_status status = run(c, host);
    hn_slurm_conf_free(&c->slurm);
    hn_slurm_conf_free(&c->gres);
    hn_free(c);
    if (status != HONE_OK) {
        hn_slurm_check_free(&check);
        return status;
    }
    for (size_t i = 0; i < check.findings.count; i++)
        check.good = check.good && check.findings.data[i].severity != HN_SLURM_ERROR;
    *out_check = check;
    return HONE_OK;
}

void hn_slurm_check_free(hn_slurm_check *check) {
    hn_vec_free(&check->findings);
    hn_arena_free(&check->arena);
}

static const char *const k_severity[] = {"note", "warning", "error"};

void hn_slurm_check_text(const hn_slurm_check *check, hn_str *out_text) {
    for (int severity = HN_SLURM_ERROR; severity >= HN_SLURM_NOTE; severity--)
        for (size_t i = 0; i < check->findings.count; i++)
            if (check->findings.data[i].severity == (hn_slurm_severity)severity)
                hn_str_printf(out_text, "%-8s %s: %s\n", k_severity[severity],
                              check->findings.data[i].id, check->findings.data[i].text);
    hn_str_printf(out_text, "node %s: %s\n", check->node,
                  check->good ? "slurmd will accept it"
                              : "slurmd will drain it or refuse to start");
}

hn_status hn_slurm_check_json(hone_error *err, const hn_slurm_check *check, hn_str *out_text) {
    json_t *findings = json_array();
    for (size_t i = 0; i < check->findings.count; i++)
        json_array_append_new(findings,
                              json_pack("{s:s, s:s, s:s}", "id", check->findings.data[i].id,
                                        "severity", k_severity[check->findings.data[i].severity],
                                        "text", check->findings.data[i].text));
    json_t *root = json_pack("{s:s, s:b, s:o}", "node", check->node, "good", check->good,
                             "findings", findings);
    hn_place_json_append(root, out_text);
    json_decref(root);
    if (out_text->failed) HN_NOMEM(err, "the findings as JSON");
    return HONE_OK;
}
