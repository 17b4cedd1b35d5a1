// SPDX-License-Identifier: Apache-2.0
// From records to facts: who the ranks are, what path each pair uses, what is set, which network
// was chosen. Judgement is nccl_cause.c's.
#include "place/nccl_int.h"
#include <ctype.h>
#include <strings.h>

#define EVIDENCE_MAX 1024 // bytes of a line that are kept as evidence

// ---- marks ------------------------------------------------------------------------------------
// A trimmed copy that is valid UTF-8: other bytes become '?'.
static const char *keep_text(hn_nccl_state *state, hn_slice text) {
    text = hn_slice_trim(text);
    if (text.length > EVIDENCE_MAX) text.length = EVIDENCE_MAX;
    char *copy = hn_arena_strndup(state->arena, text.data ? text.data : "", text.length);
    if (!copy) {
        state->failed = true;
        return "";
    }
    size_t length = strlen(copy);
    for (size_t i = 0; i < length;) {
        size_t n = hn_utf8_length(copy + i, length - i);
        if (!n) copy[i] = '?';
        i += n ? n : 1;
    }
    return copy;
}

hn_nccl_mark hn_nccl_mark_keep(hn_nccl_state *state, const hn_nccl_mark *mark) {
    hn_nccl_mark kept = *mark;
    if (mark->text) kept.text = keep_text(state, (hn_slice){mark->text, strlen(mark->text)});
    const char *said = keep_text(state, mark->said);
    kept.said = (hn_slice){said, strlen(said)};
    return kept;
}

// ---- hash tables over vectors -----------------------------------------------------------------
static bool table_grow(hn_nccl_table *table, size_t count, const uint64_t *hashes) {
    size_t capacity = table->capacity ? table->capacity * 2 : 64;
    uint32_t *slots = hn_calloc(capacity, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < count; i++) {
        size_t at = hashes[i] & (capacity - 1);
        while (slots[at])
            at = (at + 1) & (capacity - 1);
        slots[at] = (uint32_t)i + 1;
    }
    hn_free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return true;
}

static uint64_t proc_hash(hn_slice host, int64_t pid, int device) {
    int64_t key[2] = {pid, device};
    return hn_hash_bytes(key, sizeof key, hn_hash_bytes(host.data, host.length, HN_HASH_SEED));
}

static uint64_t path_hash(int from, int to, hn_slice via, int nic) {
    int key[3] = {from, to, nic};
    return hn_hash_bytes(key, sizeof key, hn_hash_bytes(via.data, via.length, HN_HASH_SEED));
}

int hn_nccl_host(hn_nccl_state *state, hn_slice host) {
    if (!host.length) return -1;
    for (size_t i = state->hosts.count; i-- > 0;)
        if (hn_slice_eq(host, state->hosts.data[i])) return (int)i;
    const char *copy = keep_text(state, host);
    if (!hn_vec_push(&state->hosts, copy)) state->failed = true;
    return (int)state->hosts.count - 1;
}

// Grows `table` so that one more item fits at half load. `hash_of` gives an item's hash.
static bool table_reserve(hn_nccl_state *state, hn_nccl_table *table, size_t count,
                          uint64_t (*hash_of)(const hn_nccl_state *, size_t)) {
    if (table->capacity > 2 * (count + 1)) return true;
    if (count >= UINT32_MAX / 4) return false;
    uint64_t *hashes = hn_malloc((count + 1) * sizeof *hashes);
    if (!hashes) return false;
    for (size_t i = 0; i < count; i++)
        hashes[i] = hash_of(state, i);
    bool grown = table_grow(table, count, hashes);
    hn_free(hashes);
    return grown;
}

static uint64_t hash_of_proc(const hn_nccl_state *state, size_t i) {
    const hn_nccl_proc *p = &state->procs.data[i];
    return proc_hash((hn_slice){p->host, strlen(p->host)}, p->pid, p->device);
}

static uint64_t hash_of_path(const hn_nccl_state *state, size_t i) {
    const hn_nccl_path *p = &state->paths.data[i];
    return path_hash(p->from, p->to, (hn_slice){p->via, strlen(p->via)}, p->nic);
}

static int proc_find(hn_nccl_state *state, hn_slice host, int64_t pid, int device) {
    if (!host.length) return -1;
    if (!table_reserve(state, &state->proc_table, state->procs.count, hash_of_proc)) {
        state->failed = true;
        return -1;
    }
    size_t mask = state->proc_table.capacity - 1, at = proc_hash(host, pid, device) & mask;
    for (; state->proc_table.slots[at]; at = (at + 1) & mask) {
        int i = (int)state->proc_table.slots[at] - 1;
        const hn_nccl_proc *p = &state->procs.data[i];
        if (p->pid == pid && p->device == device && hn_slice_eq(host, p->host)) return i;
    }
    int host_index = hn_nccl_host(state, host);
    if (host_index < 0 || state->failed) return -1;
    hn_nccl_proc proc = {.host = state->hosts.data[host_index],
                         .host_index = host_index,
                         .pid = pid,
                         .device = device,
                         .rank = -1,
                         .ranks = -1,
                         .rank_hint = -1};
    // A host name that keep_text had to mend would never be found again by its bytes.
    if (!hn_slice_eq(host, proc.host)) return -1;
    if (!hn_vec_push(&state->procs, proc)) {
        state->failed = true;
        return -1;
    }
    state->proc_table.slots[at] = (uint32_t)state->procs.count;
    return (int)state->procs.count - 1;
}

void hn_nccl_mark_set(hn_nccl_state *state, const hn_nccl_record *record, int proc,
                      hn_nccl_mark *out_mark) {
    if (proc == -2) proc = proc_find(state, record->host, record->pid, record->device);
    *out_mark = (hn_nccl_mark){state->file,  record->whole.data, record->message,
                               record->line, record->time_us,    proc};
}

void hn_nccl_raise(hn_nccl_state *state, hn_nccl_fact fact, const hn_nccl_mark *mark) {
    hn_nccl_hit *hit = &state->facts[fact];
    if (!hit->count++) hit->first = hn_nccl_mark_keep(state, mark);
    if (mark->proc >= 0) {
        int host = state->procs.data[mark->proc].host_index;
        hit->hosts |= 1ull << (host < HN_NCCL_HOSTS_MAX ? host : HN_NCCL_HOSTS_MAX - 1);
    }
}

// ---- words ------------------------------------------------------------------------------------
bool hn_nccl_token(hn_slice *rest, hn_slice *out_token) {
    while (rest->length && (*rest->data == ' ' || *rest->data == '\t'))
        rest->data++, rest->length--;
    if (!rest->length) return false;
    size_t n = 0;
    while (n < rest->length && rest->data[n] != ' ' && rest->data[n] != '\t')
        n++;
    *out_token = (hn_slice){rest->data, n};
    rest->data += n;
    rest->length -= n;
    return true;
}

bool hn_nccl_word_number(hn_slice text, const char *word, int64_t *out) {
    size_t length = strlen(word);
    for (size_t i = 0; i + length < text.length; i++) {
        if (strncasecmp(text.data + i, word, length) != 0) continue;
        if (i && isalnum((unsigned char)text.data[i - 1])) continue;
        size_t at = i + length, start;
        while (at < text.length && (text.data[at] == ' ' || text.data[at] == '\t'))
            at++;
        start = at;
        while (at < text.length && isdigit((unsigned char)text.data[at]))
            at++;
        if (at > start && start > i + length &&
            hn_parse_i64((hn_slice){text.data + start, at - start}, out))
            return true;
    }
    return false;
}

static bool contains(hn_slice text, const char *word) {
    return text.length && memmem(text.data, text.length, word, strlen(word)) != NULL;
}

// ---- channels ---------------------------------------------------------------------------------
// The rank before "->": digits, then perhaps a bracket: "7[1] ->", "15 ->", "0[e000] ->".
static bool rank_before(const char *text, size_t end, int *out) {
    while (end > 0 && text[end - 1] == ' ')
        end--;
    if (end > 0 && text[end - 1] == ']') {
        while (end > 0 && text[end - 1] != '[')
            end--;
        if (!end) return false;
        end--;
    }
    size_t start = end;
    while (start > 0 && isdigit((unsigned char)text[start - 1]))
        start--;
    int64_t value;
    if (start == end || !hn_parse_i64((hn_slice){text + start, end - start}, &value) ||
        value > 10000000)
        return false;
    *out = (int)value;
    return true;
}

// "P2P/direct pointer/read" -> "P2P/direct pointer", "NET/IBext_v8/5(2)/GDRDMA" -> NIC 5 and
// "NET/IBext_v8/GDRDMA". False for what is no transport (a torn word).
static bool shorten_via(hn_slice via, char *out, size_t size, int *out_nic, int *out_pxn) {
    *out_nic = *out_pxn = -1;
    via = hn_slice_trim(via);
    size_t used = 0, part = 0, at = 0;
    bool net = hn_slice_starts(via, "NET/");
    if (!net && !hn_slice_starts(via, "P2P") && !hn_slice_starts(via, "SHM") &&
        !hn_slice_starts(via, "direct") && !hn_slice_starts(via, "COLLNET") &&
        !hn_slice_starts(via, "NVLS"))
        return false;
    if (via.length > size - 8) via.length = size - 8;
    while (at < via.length) {
        size_t end = at;
        while (end < via.length && via.data[end] != '/')
            end++;
        hn_slice piece = hn_slice_trim((hn_slice){via.data + at, end - at});
        bool skip = !piece.length || hn_slice_eq(piece, "read") ||
                    (!net && part >= 1 && hn_slice_starts(via, "SHM")) || part > 3;
        if (net && part == 2) {
            int64_t nic = 0, pxn = 0;
            size_t d = 0;
            while (d < piece.length && isdigit((unsigned char)piece.data[d]) && d < 6)
                nic = nic * 10 + (piece.data[d++] - '0');
            if (d) *out_nic = (int)nic;
            if (d < piece.length && piece.data[d] == '(') {
                for (d++;
                     d < piece.length && isdigit((unsigned char)piece.data[d]) && pxn < 100000;)
                    pxn = pxn * 10 + (piece.data[d++] - '0');
                *out_pxn = (int)pxn;
            }
            skip = true;
        } else if (net && part > 2 && !hn_slice_starts(piece, "GDRDMA")) {
            skip = true;
        }
        if (!skip) {
            if (used) out[used++] = '/';
            memcpy(out + used, piece.data, piece.length);
            used += piece.length;
        }
        part++;
        at = end + 1;
    }
    out[used] = '\0';
    return used > 2;
}

static void path_add(hn_nccl_state *state, int from, int to, const char *via, int nic, int pxn,
                     bool receive, const hn_nccl_mark *mark) {
    hn_slice via_slice = {via, strlen(via)};
    if (!table_reserve(state, &state->path_table, state->paths.count, hash_of_path)) {
        state->failed = true;
        return;
    }
    size_t mask = state->path_table.capacity - 1, at = path_hash(from, to, via_slice, nic) & mask;
    for (; state->path_table.slots[at]; at = (at + 1) & mask) {
        hn_nccl_path *p = &state->paths.data[state->path_table.slots[at] - 1];
        if (p->from == from && p->to == to && p->nic == nic && strcmp(p->via, via) == 0) {
            p->channels++;
            if (pxn >= 0) p->pxn = pxn;
            p->received |= receive;
            return;
        }
    }
    hn_nccl_path path = {.from = from,
                         .to = to,
                         .channels = 1,
                         .nic = nic,
                         .pxn = pxn,
                         .received = receive,
                         .host = -1};
    path.via = keep_text(state, via_slice);
    path.mark = hn_nccl_mark_keep(state, mark);
    if (mark->proc >= 0) path.host = state->procs.data[mark->proc].host_index;
    if (state->failed || strcmp(path.via, via) != 0) return;
    if (!hn_vec_push(&state->paths, path)) {
        state->failed = true;
        return;
    }
    state->path_table.slots[at] = (uint32_t)state->paths.count;
}

// "Channel 00/0 : 7[1] -> 0[0] [receive] via NET/IBext_v8/1/GDRDMA", "Ring 00 : 3[3] -> 2[2] via
// ...".
static bool scan_channel(hn_nccl_state *state, const hn_nccl_record *record,
                         const hn_nccl_mark *mark) {
    hn_slice text = record->message;
    if (!hn_slice_starts(text, "Channel") && !hn_slice_starts(text, "Ring")) return false;
    const char *arrow = memmem(text.data, text.length, "->", 2);
    if (!arrow) return hn_slice_starts(text, "Channel");
    size_t after = (size_t)(arrow - text.data) + 2;
    const char *word = memmem(text.data + after, text.length - after, "via", 3);
    int from, to, nic, pxn;
    size_t at = after;
    while (at < text.length && text.data[at] == ' ')
        at++;
    size_t digits = at;
    while (digits < text.length && isdigit((unsigned char)text.data[digits]))
        digits++;
    if (!word || digits == at || !rank_before(text.data, (size_t)(arrow - text.data), &from) ||
        !rank_before(text.data, digits, &to))
        return true;
    size_t via_at = (size_t)(word - text.data) + 3;
    char via[160];
    if (!shorten_via((hn_slice){text.data + via_at, text.length - via_at}, via, sizeof via, &nic,
                     &pxn))
        return true;
    // A name that was joined wrongly has a blank inside or lacks one, or ends early.
    hn_slice name = {via, strlen(via)};
    bool blank = contains(name, " ") && !contains(name, "direct pointer");
    state->understood += !blank && !contains(name, "directpointer") &&
                         (hn_slice_starts(name, "SHM") || contains(name, "/"));
    hn_slice kind = {text.data + digits, (size_t)(word - text.data) - digits};
    bool receive = contains(kind, "receive");
    path_add(state, from, to, via, nic, pxn, receive, mark);
    // The speaker of a channel line is its sender, but for [receive].
    if (mark->proc >= 0) {
        hn_nccl_proc *proc = &state->procs.data[mark->proc];
        if (proc->rank < 0 && proc->ranks < 0) proc->rank = receive ? to : from;
    }
    return true;
}

// ---- settings, networks, communicators --------------------------------------------------------
static void env_add(hn_nccl_state *state, hn_slice name, hn_slice value, const hn_nccl_mark *mark) {
    while (value.length && strchr(".,;\"'", value.data[value.length - 1]))
        value.length--;
    while (value.length && strchr("\"'", value.data[0]))
        value.data++, value.length--;
    for (size_t i = 0; i < state->env.count; i++)
        if (hn_slice_eq(name, state->env.data[i].name) &&
            hn_slice_eq(value, state->env.data[i].value))
            return;
    if (state->env.count >= 256) return; // a log has dozens; more is noise
    hn_nccl_env env = {keep_text(state, name), keep_text(state, value),
                       hn_nccl_mark_keep(state, mark)};
    if (!hn_vec_push(&state->env, env)) state->failed = true;
}

// "NCCL_X set by environment to V.", "NCCL_X set to V", "NCCL_X=V" anywhere in a line.
static void scan_settings(hn_nccl_state *state, hn_slice text, const hn_nccl_mark *mark) {
    while (text.length > 6) {
        const char *found = memmem(text.data, text.length, "NCCL_", 5);
        if (!found) return;
        text.length -= (size_t)(found - text.data);
        text.data = found;
        size_t n = 5;
        while (n < text.length && (isupper((unsigned char)text.data[n]) || text.data[n] == '_' ||
                                   isdigit((unsigned char)text.data[n])))
            n++;
        hn_slice name = {text.data, n}, rest = {text.data + n, text.length - n}, value, word;
        text = rest;
        if (n < 7 || !rest.length) continue;
        if (rest.data[0] == '=') {
            rest.data++, rest.length--;
            size_t v = 0;
            while (v < rest.length && rest.data[v] != ' ' && rest.data[v] != '\t' &&
                   !(rest.data[v] == ',' && v + 1 < rest.length && rest.data[v + 1] == ' ') &&
                   rest.data[v] != ';')
                v++;
            state->understood += v > 0;
            // "(run with NCCL_DEBUG=INFO for details)" asks for a setting, it makes none.
            if (v && !hn_slice_eq(name, "NCCL_DEBUG"))
                env_add(state, name, (hn_slice){rest.data, v}, mark);
            continue;
        }
        if (!hn_nccl_token(&rest, &word) || !hn_slice_eq(word, "set")) continue;
        while (hn_nccl_token(&rest, &word) && !hn_slice_eq(word, "to"))
            if (!hn_slice_eq(word, "by") && !hn_slice_eq(word, "environment")) break;
        if (!hn_slice_eq(word, "to") || !hn_nccl_token(&rest, &value)) continue;
        state->understood++;
        // "... to 1." and then, where a line end got lost, the next record: "1.node3".
        size_t v = 0;
        while (v < value.length && isdigit((unsigned char)value.data[v]))
            v++;
        if (v && v + 1 < value.length && value.data[v] == '.' &&
            isalpha((unsigned char)value.data[v + 1]))
            value.length = v;
        env_add(state, name, value, mark);
    }
}

static bool is_bridge(hn_slice name) {
    static const char *const k_names[] = {"docker", "br-", "virbr", "veth",   "cni", "flannel",
                                          "cali",   "lxc", "lxdbr", "podman", "kube"};
    for (size_t i = 0; i < HN_COUNT_OF(k_names); i++)
        if (hn_slice_starts(name, k_names[i])) return true;
    return false;
}

// Interfaces and their addresses: "[0]eno1:192.0.2.207<0> [1]br-0a:198.51.100.1<0>".
static void scan_addresses(hn_nccl_state *state, hn_slice text, const hn_nccl_mark *mark,
                           bool sockets) {
    hn_slice word;
    int host = mark->proc >= 0 ? state->procs.data[mark->proc].host_index : -1;
    while (hn_nccl_token(&text, &word)) {
        const char *open = memchr(word.data, '<', word.length);
        const char *colon = memchr(word.data, ':', word.length);
        if (!open || !colon || colon > open) continue;
        const char *name = memchr(word.data, ']', (size_t)(colon - word.data));
        name = name ? name + 1 : word.data;
        hn_slice interface = {name, (size_t)(colon - name)};
        hn_slice ip = {colon + 1, (size_t)(open - colon) - 1};
        state->understood++;
        if (sockets && is_bridge(interface)) hn_nccl_raise(state, HN_FACT_BRIDGES, mark);
        if (host < 0 || !ip.length || state->addresses.count >= 65536) continue;
        bool known = false;
        for (size_t i = state->addresses.count; i-- > 0 && !known;)
            known = hn_slice_eq(ip, state->addresses.data[i].ip);
        if (known) continue;
        hn_nccl_address address = {keep_text(state, ip), host};
        if (!hn_vec_push(&state->addresses, address)) state->failed = true;
    }
}

static void scan_communicator(hn_nccl_state *state, const hn_nccl_record *record) {
    int64_t rank, ranks, nodes, local, device;
    hn_slice text = record->message;
    if (!contains(text, "ank ")) return;
    // "[Rank 0] ncclCommInitRank comm ... rank 0 nranks 2": the second one is the fact.
    const char *comm = memmem(text.data, text.length, "comm ", 5);
    if (comm) text = (hn_slice){comm, text.length - (size_t)(comm - text.data)};
    if (!hn_nccl_word_number(text, "rank", &rank) || !hn_nccl_word_number(text, "nranks", &ranks))
        return;
    if (rank < 0 || ranks < 1 || rank >= ranks || ranks > 10000000) return;
    if (ranks > state->ranks) {
        state->ranks = (int)ranks;
        state->nodes = state->local_ranks = -1;
    }
    if (ranks == state->ranks && hn_nccl_word_number(text, "nnodes", &nodes) && nodes >= 1 &&
        nodes <= ranks)
        state->nodes = (int)nodes;
    if (ranks == state->ranks && hn_nccl_word_number(text, "localranks", &local) &&
        local <= ranks && local > state->local_ranks)
        state->local_ranks = (int)local;
    state->understood += 1 + (state->nodes > 0) + (state->local_ranks > 0);
    if (!hn_nccl_word_number(text, "cudadev", &device) || device > 1023) device = record->device;
    int proc = proc_find(state, record->host, record->pid, (int)device);
    if (proc < 0) return;
    hn_nccl_proc *p = &state->procs.data[proc];
    if (ranks >= p->ranks) {
        p->rank = (int)rank;
        p->ranks = (int)ranks;
    }
    if (contains(text, "Init START")) p->started = true;
    if (contains(text, "Init COMPLETE")) p->started = p->completed = true;
}

static void scan_network(hn_nccl_state *state, hn_slice text, const hn_nccl_mark *mark) {
    static const char *const k_before[] = {"Using network ", "Assigned NET plugin "};
    for (size_t i = 0; i < HN_COUNT_OF(k_before); i++) {
        const char *found =
            text.length ? memmem(text.data, text.length, k_before[i], strlen(k_before[i])) : NULL;
        if (!found) continue;
        hn_slice rest = {found + strlen(k_before[i]),
                         text.length - (size_t)(found - text.data) - strlen(k_before[i])},
                 word;
        if (!hn_nccl_token(&rest, &word)) continue;
        if (!state->network) state->network = keep_text(state, word);
        hn_nccl_proc *proc = mark->proc >= 0 ? &state->procs.data[mark->proc] : NULL;
        if (proc && !proc->network) {
            proc->network = keep_text(state, word);
            proc->network_mark = hn_nccl_mark_keep(state, mark);
        }
    }
    if (!state->version && contains(text, "NCCL version ")) {
        hn_slice word, rest = text;
        while (hn_nccl_token(&rest, &word))
            if (hn_slice_eq(word, "version")) break;
        if (hn_nccl_token(&rest, &word) && isdigit((unsigned char)word.data[0]))
            state->version = keep_text(state, word);
    }
}

// "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB": ports, as ":digit/".
static void scan_ports(hn_nccl_state *state, hn_slice text, const hn_nccl_mark *mark) {
    if (mark->proc < 0 || !hn_slice_starts(text, "NET/IB") || !contains(text, "Using")) return;
    int ports = 0;
    for (size_t i = 2; i < text.length; i++)
        ports += text.data[i] == '/' && isdigit((unsigned char)text.data[i - 1]) &&
                 text.data[i - 2] == ':';
    hn_nccl_proc *proc = &state->procs.data[mark->proc];
    if (ports <= proc->nics) return;
    proc->nics = ports;
    proc->nics_mark = hn_nccl_mark_keep(state, mark);
}

// "Pattern 4, crossNic 0, nChannels 12, bw 20.0/20.0, type NVL/PIX": what NCCL itself expects of
// its rings (pattern 4) inside a node, in GB/s.
static void scan_graph(hn_nccl_state *state, hn_slice text) {
    int64_t pattern, channels;
    if (!hn_slice_starts(text, "Pattern") || !hn_nccl_word_number(text, "pattern", &pattern) ||
        pattern != 4 || !hn_nccl_word_number(text, "nchannels", &channels) || channels > 128)
        return;
    const char *at = memmem(text.data, text.length, "bw ", 3);
    if (!at) at = memmem(text.data, text.length, "speed ", 6);
    if (!at) return;
    at += *at == 'b' ? 3 : 6;
    size_t left = text.length - (size_t)(at - text.data), n = 0;
    while (n < left && (isdigit((unsigned char)at[n]) || at[n] == '.'))
        n++;
    double gbs;
    if (hn_parse_f64((hn_slice){at, n}, &gbs) && gbs > 0 && gbs < 1000 &&
        gbs * (double)channels > state->graph_gbs)
        state->graph_gbs = gbs * (double)channels;
}

// "init.cc:872 -> 1": the way a failure takes through NCCL. Plug-in probing ends in such lines too.
static bool is_trail(hn_slice text) {
    const char *arrow = text.length ? memmem(text.data, text.length, " -> ", 4) : NULL;
    if (!arrow || contains(text, "->0->") || contains(text, "[")) return false;
    hn_slice head = {text.data, (size_t)(arrow - text.data)};
    if (!contains(head, ".cc:") && !contains(head, ".cu:") && !contains(head, ".c:")) return false;
    if (hn_slice_starts(head, "net.cc") || hn_slice_starts(head, "plugin/")) return false;
    size_t at = head.length + 4;
    return at < text.length && text.data[at] >= '1' && text.data[at] <= '9';
}

int hn_nccl_scan(hn_nccl_state *state, const hn_nccl_record *record) {
    hn_nccl_mark mark;
    hn_nccl_mark_set(state, record, -2, &mark);
    if (mark.proc >= 0) {
        hn_nccl_proc *proc = &state->procs.data[mark.proc];
        proc->last_line = record->line;
        if (proc->rank_hint < 0 && record->rank_hint >= 0) proc->rank_hint = record->rank_hint;
    }
    if (record->level != HN_NCCL_PLAIN && record->channel_read) return 0;
    if (record->level != HN_NCCL_PLAIN && scan_channel(state, record, &mark)) return 0;
    scan_settings(state, record->message, &mark);
    if (record->level != HN_NCCL_PLAIN) {
        scan_communicator(state, record);
        if (contains(record->message, "Using") || contains(record->message, "OOB"))
            scan_addresses(state, record->message, &mark, contains(record->message, "Socket"));
    }
    scan_network(state, record->message, &mark);
    if (record->level != HN_NCCL_PLAIN) {
        scan_ports(state, record->message, &mark);
        scan_graph(state, record->message);
    }
    if (is_trail(record->message) && !state->trail.text)
        state->trail = hn_nccl_mark_keep(state, &mark);
    char squeezed[2048];
    size_t length = hn_nccl_squeeze(record->source, squeezed, sizeof squeezed);
    length += hn_nccl_squeeze(record->message, squeezed + length, sizeof squeezed - length);
    bool warn = record->level == HN_NCCL_WARN || record->level == HN_NCCL_PLAIN;
    int found = hn_nccl_match(state, squeezed, length, &mark, warn, state->sequence);
    bool again = state->warning_record == state->sequence;
    state->warning_open = record->level == HN_NCCL_WARN && !found;
    if (state->warning_open && !again) {
        if (!state->warning_count++) state->warning = hn_nccl_mark_keep(state, &mark);
        state->warning_record = state->sequence;
    }
    return found;
}
