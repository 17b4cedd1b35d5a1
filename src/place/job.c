// SPDX-License-Identifier: Apache-2.0
// Jobs and their claims: see job.h.
#include "place/job.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "config/config.h"

// Beyond what shells and launchers use by number.
#define CLAIM_FD_LEAST 100
#define FOLDER_BYTES 256

// ---- the folder of claims ---------------------------------------------------------------------

// One folder a machine: jobs of different users must see each other where that is possible.
static hn_status claims_folder(hone_error *err, char out[FOLDER_BYTES]) {
    const char *given = hn_config_env("HONE_CLAIMS"), *runtime = hn_config_env("XDG_RUNTIME_DIR");
    if (given && *given) snprintf(out, FOLDER_BYTES, "%s", given);
    else if (geteuid() == 0) snprintf(out, FOLDER_BYTES, "/run/hone-claims");
    else if (access("/run/hone-claims", W_OK) == 0) snprintf(out, FOLDER_BYTES, "/run/hone-claims");
    else if (runtime && *runtime) snprintf(out, FOLDER_BYTES, "%.200s/hone-claims", runtime);
    else snprintf(out, FOLDER_BYTES, "/tmp/hone-claims-%u", (unsigned)geteuid());
    if (mkdir(out, 0755) == 0 || errno == EEXIST) {
        struct stat info;
        // A folder in /tmp that somebody else made is none of ours.
        if (lstat(out, &info) == 0 && S_ISDIR(info.st_mode) &&
            (info.st_uid == geteuid() || info.st_uid == 0 || given))
            return HONE_OK;
        HN_FAIL(err, HONE_ERR_IO, "the folder of claims '%s' belongs to somebody else", out);
    }
    HN_FAIL_VENDOR(err, HONE_ERR_IO, errno, "the folder of claims '%s' cannot be made: %s", out,
                   strerror(errno));
}

static hn_status lock_folder(hone_error *err, const char *folder, int *out_fd) {
    char path[FOLDER_BYTES + 16];
    snprintf(path, sizeof path, "%s/lock", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) HN_FAIL_VENDOR(err, HONE_ERR_IO, errno, "'%s' cannot be opened: %s", path, strerror(errno));
    // The lock is held for milliseconds; a holder that hangs must not hang us.
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == 500) {
            close(fd);
            HN_FAIL(err, HONE_ERR_IO, "'%s' has been locked by another process for 5 seconds", path);
        }
        hn_sleep_ns(10000000);
    }
    *out_fd = fd;
    return HONE_OK;
}

static int card_by_name(const hn_place_machine *m, hn_slice name) {
    int64_t index;
    for (size_t g = 0; g < m->gpus.count; g++)
        if (m->gpus.data[g].pci && hn_slice_eq(name, m->gpus.data[g].pci)) return (int)g;
    if (hn_parse_i64(name, &index) && index >= 0 && index < 4096)
        return hn_place_gpu_find(m, (int)index);
    return -1;
}

// "cpus 0-3" and "card 0000:3b:00.0", a line each.
static void read_claim(const char *text, const hn_place_machine *m, hn_place_cpuset *cpus, uint64_t *cards) {
    hn_slice rest = {text, strlen(text)}, line;
    while (hn_slice_line(&rest, &line)) {
        if (line.length < 6) continue;
        hn_slice value = {line.data + 5, line.length - 5};
        hn_place_cpuset set;
        int card;
        if (hn_slice_starts(line, "cpus ") && hn_place_cpuset_parse(value, &set)) hn_place_cpuset_or(cpus, &set);
        if (hn_slice_starts(line, "card ") && (card = card_by_name(m, value)) >= 0)
            *cards |= UINT64_C(1) << card;
    }
}

// Whether a process is one that this one descends from: its job contains this one.
static bool is_ancestor(long pid) {
    long at = (long)getppid();
    for (int depth = 0; at > 1 && depth < 64; depth++) {
        char path[64], text[512];
        if (at == pid) return true;
        snprintf(path, sizeof path, "/proc/%ld/stat", at);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return false;
        ssize_t got = read(fd, text, sizeof text - 1);
        close(fd);
        text[got > 0 ? got : 0] = '\0';
        const char *name_end = strrchr(text, ')'); // "7 (a name) S 1 ..."
        if (!name_end || sscanf(name_end + 1, " %*c %ld", &at) != 1) return false;
    }
    return false;
}

// Whether this process has the claim's open file from the job that it belongs to: true also after the
// process that made the claim was killed.
static bool inherited(int fd) {
    struct stat claim, other;
    DIR *dir = fstat(fd, &claim) == 0 ? opendir("/proc/self/fd") : NULL;
    bool found = false;
    if (!dir) return false;
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        int at = (int)strtol(entry->d_name, NULL, 10);
        found = at >= CLAIM_FD_LEAST && at != fd && fstat(at, &other) == 0 && other.st_ino == claim.st_ino &&
                other.st_dev == claim.st_dev;
    }
    closedir(dir);
    return found;
}

// All claims whose owner lives, but for those that this process runs inside of; those of the dead are removed. The folder is locked.
static void read_claims(const char *folder, const hn_place_machine *m, hn_place_cpuset *cpus,
                        uint64_t *cards) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[FOLDER_BYTES + 280], text[8192];
        if (strncmp(entry->d_name, "job-", 4) != 0) continue;
        long maker = strtol(entry->d_name + 4, NULL, 10);
        if (is_ancestor(maker)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
            unlink(path); // the owner is gone, and all of its job
        } else if (maker == (long)getpid() || !inherited(fd)) {
            ssize_t got = read(fd, text, sizeof text - 1);
            text[got > 0 ? got : 0] = '\0';
            read_claim(text, m, cpus, cards);
        }
        close(fd);
    }
    closedir(dir);
}

hn_status hn_place_claims_held(hone_error *err, const hn_place_machine *machine, hn_place_cpuset *out_cpus,
                               uint64_t *out_cards) {
    char folder[FOLDER_BYTES];
    hn_place_cpuset cpus = {{0}};
    uint64_t cards = 0;
    int lock;
    HN_TRY(claims_folder(err, folder));
    HN_TRY(lock_folder(err, folder, &lock));
    read_claims(folder, machine, &cpus, &cards);
    close(lock);
    *out_cpus = cpus;
    *out_cards = cards;
    return HONE_OK;
}

static hn_status write_claim(hone_error *err, const char *folder, hn_place_job *job) {
    hn_str text = {0};
    if (job->binding.bind_cpus) {
        hn_str_append(&text, "cpus ");
        hn_place_cpuset_append(&text, &job->binding.cpus);
        hn_str_append(&text, "\n");
    }
    for (int i = 0; i < job->result.count; i++) {
        const hn_place_gpu *gpu = &job->machine.gpus.data[job->result.ranks[i].gpu];
        if (gpu->pci) hn_str_printf(&text, "card %s\n", gpu->pci);
        else hn_str_printf(&text, "card %d\n", gpu->index);
    }
    snprintf(job->claim_path, sizeof job->claim_path, "%s/job-%ld-%llx", folder, (long)getpid(),
             (unsigned long long)hn_clock_ns());
    int fd = open(job->claim_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = !text.failed && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                write(fd, hn_str_get(&text), text.length) == (ssize_t)text.length;
    int error = errno;
    hn_str_free(&text);
    if (!good) {
        if (fd >= 0) {
            unlink(job->claim_path);
            close(fd);
        }
        HN_FAIL_VENDOR(err, HONE_ERR_IO, error, "the claim '%s' cannot be written: %s", job->claim_path,
                       strerror(error));
    }
    // The command inherits the lock: killed alone, this process leaves it running, and its cards taken.
    int kept = fcntl(fd, F_DUPFD, CLAIM_FD_LEAST);
    if (kept >= 0) close(fd);
    job->claim_fd = kept >= 0 ? kept : fd;
    return HONE_OK;
}

// ---- jobs -------------------------------------------------------------------------------------

// A result of CPUs alone: what binding needs of it.
static hn_status place_cpus(hone_error *err, hn_place_job *job) {
    hn_place_cpuset chosen = {{0}};
    HN_TRY(hn_place_choose_cpus(err, &job->request.allowed, job->request.cpus, &chosen));
    job->result.cpus = chosen;
    job->result.cpus_known = true;
    for (size_t i = 0; i < job->machine.nodes.count; i++) {
        const hn_place_numa *node = &job->machine.nodes.data[i];
        if (node->cpus_known && hn_place_cpuset_meet(&node->cpus, &chosen))
            hn_place_cpuset_add(&job->result.numa, node->node);
    }
    return HONE_OK;
}

// A launcher's binding stays, also where it puts a rank far from its card: that is said.
static void note_crosswise(hn_place_job *job) {
    int rank = job->launcher.local_rank;
    if (!job->launcher.binds_cpus || rank < 0 || rank >= job->result.count) return;
    const hn_place_gpu *gpu = &job->machine.gpus.data[job->result.ranks[rank].gpu];
    if (!gpu->cpus_known || hn_place_cpuset_meet(&gpu->cpus, &job->request.allowed)) return;
    hn_str here = {0}, near = {0};
    hn_place_cpuset_append(&here, &job->request.allowed);
    hn_place_cpuset_append(&near, &gpu->cpus);
    const char *text = hn_arena_printf(&job->binding.arena,
                                       "%s has bound this rank to CPUs %s, which are not local to its card GPU%d (those are %s)",
                                       job->launcher.name, hn_str_get(&here), gpu->index, hn_str_get(&near));
    if (text) (void)!hn_vec_push(&job->binding.notes, text); // a note is not worth a failure
    hn_str_free(&here);
    hn_str_free(&near);
}

static hn_status place_job(hone_error *err, hn_place_job *job) {
    uint64_t held = 0;
    HN_TRY(hn_place_machine_live(err, &job->machine));
    hn_place_launcher_detect(&job->launcher);
    HN_TRY(hn_place_allowed_cpus(err, &job->request.allowed));
    // Ranks that their launcher bound see different CPUs; they must all choose the same cards.
    job->request.allowed_known = !(job->launcher.binds_cpus && job->launcher.local_rank >= 0 && job->request.cards > 0);
    if (job->request.cards > 0) HN_TRY(hn_place_visible_cards(err, &job->machine, &job->request.only));
    char folder[FOLDER_BYTES];
    int lock = -1;
    bool claims = job->launcher.local_rank < 0;
    if (claims) {
        HN_TRY(claims_folder(err, folder));
        HN_TRY(lock_folder(err, folder, &lock));
        read_claims(folder, &job->machine, &job->others_cpus, &held);
        job->others_cards = __builtin_popcountll(held);
        job->request.busy |= held;
        hn_place_cpuset_remove(&job->request.allowed, &job->others_cpus);
    }
    hone_status status = job->request.cards > 0
                             ? hn_place_search(err, &job->machine, &job->request, &job->result)
                             : place_cpus(err, job);
    if (status == HONE_OK)
        status = hn_place_binding_make(err, &job->result, &job->launcher, &job->binding);
    if (status == HONE_OK) note_crosswise(job);
    if (status == HONE_OK && claims) status = write_claim(err, folder, job);
    if (lock >= 0) close(lock);
    return status;
}

hn_status hn_place_job_open(hone_error *err, const hn_place_request *request, hn_place_job *out_job) {
    hn_place_job *job = hn_calloc(1, sizeof *job);
    if (!job) HN_NOMEM(err, "job");
    job->request = *request;
    job->claim_fd = -1;
    hone_status status = place_job(err, job);
    if (status == HONE_OK) *out_job = *job;
    else hn_place_job_close(job);
    hn_free(job);
    return status;
}

void hn_place_job_close(hn_place_job *job) {
    if (job->claim_fd >= 0) {
        unlink(job->claim_path);
        close(job->claim_fd);
    }
    hn_place_binding_free(&job->binding);
    hn_place_result_free(&job->result);
    hn_place_machine_free(&job->machine);
    job->claim_fd = -1;
}

void hn_place_job_text(const hn_place_job *job, hn_str *out) {
    hn_str cpus = {0}, nodes = {0};
    if (job->result.count) hn_str_printf(out, "cards %s", job->result.visible);
    if (job->binding.bind_cpus) {
        hn_place_cpuset_append(&cpus, &job->binding.cpus);
        hn_str_printf(out, "%sCPUs %s", out->length ? ", " : "", hn_str_get(&cpus));
    }
    if (job->binding.bind_memory) {
        hn_place_cpuset_append(&nodes, &job->binding.nodes);
        hn_str_printf(out, ", memory of node %s", hn_str_get(&nodes));
    }
    if (job->launcher.kind != HN_LAUNCHER_NONE) hn_str_printf(out, " (under %s)", job->launcher.name);
    for (size_t i = 0; i < job->binding.notes.count; i++)
        hn_str_printf(out, "\n%s", job->binding.notes.data[i]);
    for (size_t i = 0; i < job->result.notes.count; i++)
        hn_str_printf(out, "\n%s", job->result.notes.data[i]);
    hn_str_append(out, "\n");
    hn_str_free(&cpus);
    hn_str_free(&nodes);
}

static json_t *set_json(bool known, const hn_place_cpuset *set) {
    hn_str text = {0};
    hn_place_cpuset_append(&text, set);
    json_t *out = known ? json_string(hn_str_get(&text)) : json_null();
    hn_str_free(&text);
    return out;
}

json_t *hn_place_job_json(const hn_place_job *job) {
    json_t *out = json_object(), *env = json_object(), *notes = json_array();
    for (size_t i = 0; i < job->binding.env.count; i++)
        json_object_set_new(env, job->binding.env.data[i].name, json_string(job->binding.env.data[i].value));
    for (size_t i = 0; i < job->binding.notes.count; i++)
        json_array_append_new(notes, json_string(job->binding.notes.data[i]));
    json_object_set_new(out, "launcher", json_string(job->launcher.name));
    json_object_set_new(out, "local_rank",
                        job->launcher.local_rank < 0 ? json_null() : json_integer(job->launcher.local_rank));
    json_object_set_new(out, "cpus", set_json(job->binding.bind_cpus, &job->binding.cpus));
    json_object_set_new(out, "memory_nodes", set_json(job->binding.bind_memory, &job->binding.nodes));
    json_object_set_new(out, "env", env);
    json_object_set_new(out, "notes", notes);
    json_object_set_new(out, "placement",
                        job->result.choice_count
                            ? hn_place_result_json(&job->machine, &job->request, &job->result)
                            : json_null());
    return out;
}
