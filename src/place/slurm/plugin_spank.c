// SPDX-License-Identifier: Apache-2.0
// SPANK plug-in (hone_spank.so): binds a step's tasks near their cards and has its energy recorded.
//
// It is thin on purpose. Everything that can go wrong runs in another process, the `hone` command:
// `hone slurm plan` answers within two seconds or is killed, `hone slurm record` runs beside the
// step as the job's user, detached from slurmstepd, and is told by a closed pipe that the step is
// over. Whatever fails is one line in slurmd's log; every hook returns 0, so no job is ever harmed.
//
// plugstack.conf:
//   optional hone_spank.so hone=/usr/bin/hone log=/var/log/hone-steps.log [topo=FILE]
//            [source=SOURCE] [interval-ms=N] [bind=no] [energy=no]
// The user's switch: srun --hone=off|bind|energy|all (default all).
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <slurm/spank.h>

SPANK_PLUGIN(hone, 1)

#define PLAN_MS          2000 // what a plan may take; reading a topology file takes 10 ms
#define FINISH_MS        3000 // what the recorder may take for its last sample and its line
#define EXTERN_STEP      4294967292u
#define BATCH_STEP       4294967291u
#define INTERACTIVE_STEP 4294967290u

static struct {
    char hone[512], topo[512], source[512], log[512], interval[24];
    bool bind, energy;
    bool user_bind, user_energy; // from --hone
} g_settings = {.hone = "hone",
                .interval = "1000",
                .bind = true,
                .energy = true,
                .user_bind = true,
                .user_energy = true};

static struct {
    bool planned, has_mems;
    cpu_set_t cpus;
    unsigned long mems[16]; // 1,024 NUMA nodes
    char reason[200];
    int log;           // opened as root, so that the log need not be writable by users; -1 none
    int control, done; // pipes to and from the recorder, -1 none
    pid_t recorder;
} g_step = {.log = -1, .control = -1, .done = -1, .recorder = -1};

static int on_option(int value, const char *argument, int remote) {
    (void)value;
    (void)remote;
    if (!argument) return 0;
    g_settings.user_bind = strcmp(argument, "bind") == 0 || strcmp(argument, "all") == 0;
    g_settings.user_energy = strcmp(argument, "energy") == 0 || strcmp(argument, "all") == 0;
    return 0;
}

static struct spank_option g_option = {
    "hone",
    "off|bind|energy|all",
    "hone: bind tasks near their cards, record the step's energy",
    2,
    0,
    on_option};

static void read_setting(const char *argument) {
    const struct {
        const char *key;
        char *to;
        size_t size;
    } k_rows[] = {{"hone=", g_settings.hone, sizeof g_settings.hone},
                  {"topo=", g_settings.topo, sizeof g_settings.topo},
                  {"source=", g_settings.source, sizeof g_settings.source},
                  {"log=", g_settings.log, sizeof g_settings.log},
                  {"interval-ms=", g_settings.interval, sizeof g_settings.interval}};
    for (size_t i = 0; i < sizeof k_rows / sizeof *k_rows; i++) {
        size_t n = strlen(k_rows[i].key);
        if (strncmp(argument, k_rows[i].key, n) != 0) continue;
        if (strlen(argument + n) >= k_rows[i].size)
            slurm_error("hone: setting '%.40s...' is too long and is ignored", argument);
        else
            strcpy(k_rows[i].to, argument + n);
        return;
    }
    if (strcmp(argument, "bind=no") == 0)
        g_settings.bind = false;
    else if (strcmp(argument, "energy=no") == 0)
        g_settings.energy = false;
    else
        slurm_error("hone: unknown setting '%s' in plugstack.conf is ignored", argument);
}

int slurm_spank_init(spank_t spank, int count, char **arguments) {
    for (int i = 0; i < count; i++)
        read_setting(arguments[i]);
    if (spank_context() != S_CTX_SLURMD &&
        spank_option_register(spank, &g_option) != ESPANK_SUCCESS)
        slurm_error("hone: --hone cannot be registered");
    return 0;
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void put_fd(int from, int to) {
    if (from == to)
        fcntl(to, F_SETFD, 0);
    else
        dup2(from, to);
}

// In the child of a fork: the job's user for good, the three or four descriptors named here and no
// others, default signals, then the command.
static _Noreturn void become(char *const *arguments, int in, int out, int third) {
    gid_t group = getegid();
    uid_t user = geteuid();
    if (setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0) _exit(126);
    int null = fcntl(open("/dev/null", O_RDWR), F_DUPFD, 64);
    // Up and out of the way first: a pipe may have any low number.
    in = in >= 0 ? fcntl(in, F_DUPFD, 64) : null;
    out = fcntl(out, F_DUPFD, 64);
    third = third >= 0 ? fcntl(third, F_DUPFD, 64) : -1;
    put_fd(in, 0);
    put_fd(out, 1);
    put_fd(null, 2);
    if (third >= 0) put_fd(third, 3);
    for (int fd = third >= 0 ? 4 : 3; fd < 1024; fd++)
        close(fd);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(arguments[0], arguments);
    _exit(127);
}

// ---- binding ----------------------------------------------------------------------------------
// "0-3,8" into bits below `limit`; false for anything else.
static bool read_list(const char *text, unsigned long *bits, int limit) {
    while (*text) {
        char *end;
        long from = strtol(text, &end, 10), to = from;
        if (end == text || from < 0) return false;
        if (*end == '-') {
            text = end + 1;
            to = strtol(text, &end, 10);
            if (end == text || to < from) return false;
        }
        if (to >= limit) return false;
        for (long i = from; i <= to; i++)
            bits[i / (8 * (long)sizeof *bits)] |= 1ul << (i % (8 * (long)sizeof *bits));
        if (*end == ',')
            end++;
        else if (*end)
            return false;
        text = end;
    }
    return true;
}

static void read_plan(char *text) {
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "reason ", 7) == 0) {
            snprintf(g_step.reason, sizeof g_step.reason, "%s", line + 7);
        } else if (strncmp(line, "cpus ", 5) == 0) {
            unsigned long bits[CPU_SETSIZE / (8 * sizeof(unsigned long))] = {0};
            CPU_ZERO(&g_step.cpus);
            if (!read_list(line + 5, bits, CPU_SETSIZE)) continue;
            for (int i = 0; i < CPU_SETSIZE; i++)
                if (bits[i / (8 * sizeof *bits)] >> (i % (8 * sizeof *bits)) & 1)
                    CPU_SET(i, &g_step.cpus);
            g_step.planned = CPU_COUNT(&g_step.cpus) > 0;
        } else if (strncmp(line, "mems ", 5) == 0) {
            g_step.has_mems = read_list(line + 5, g_step.mems, 8 * (int)sizeof g_step.mems);
        }
    }
}

static void make_plan(const char *gpus) {
    int pipes[2];
    char *arguments[] = {g_settings.hone,
                         "slurm",
                         "plan",
                         "--gpus",
                         (char *)(uintptr_t)gpus,
                         g_settings.topo[0] ? "--topo" : NULL,
                         g_settings.topo,
                         NULL};
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        slurm_error("hone: no pipe for a plan: %s", strerror(errno));
        return;
    }
    pid_t child = fork();
    if (child == 0) become(arguments, -1, pipes[1], -1);
    close(pipes[1]);
    char text[4096];
    size_t used = 0;
    int64_t until = now_ms() + PLAN_MS;
    bool late = child < 0;
    while (!late && used < sizeof text - 1) {
        struct pollfd item = {.fd = pipes[0], .events = POLLIN};
        int64_t left = until - now_ms();
        if (left <= 0 || poll(&item, 1, (int)left) == 0) {
            late = true;
            break;
        }
        ssize_t got = read(pipes[0], text + used, sizeof text - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(pipes[0]);
    text[used] = '\0';
    if (child < 0) {
        slurm_error("hone: no process for a plan: %s", strerror(errno));
        return;
    }
    if (late) kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (late)
        slurm_error("hone: no plan within %d ms, the step is left as Slurm bound it", PLAN_MS);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        slurm_error(
            "hone: '%s slurm plan' failed (wait status %d), the step is left as Slurm bound it",
            g_settings.hone, status);
    else
        read_plan(text);
    if (g_step.planned)
        slurm_info("hone: binding to %s", g_step.reason);
    else if (g_step.reason[0])
        slurm_info("hone: no binding: %s", g_step.reason);
}

// ---- energy -----------------------------------------------------------------------------------
// Two forks: the recorder is no child of slurmstepd, which waits for any child of its own.
static void start_recorder(const char *gpus, const char *job, const char *step, const char *node,
                           const char *node_id) {
    int control[2] = {-1, -1}, done[2] = {-1, -1};
    if (pipe2(control, O_CLOEXEC) != 0 || pipe2(done, O_CLOEXEC) != 0) {
        slurm_error("hone: no pipe for the recorder: %s", strerror(errno));
        if (control[0] >= 0) close(control[0]), close(control[1]);
        return;
    }
    char *arguments[] = {g_settings.hone,
                         "slurm",
                         "record",
                         "--gpus",
                         (char *)(uintptr_t)gpus,
                         "--job",
                         (char *)(uintptr_t)job,
                         "--step",
                         (char *)(uintptr_t)step,
                         "--node",
                         (char *)(uintptr_t)node,
                         "--node-id",
                         (char *)(uintptr_t)node_id,
                         "--log",
                         "-",
                         "--interval-ms",
                         g_settings.interval,
                         "--note",
                         g_step.planned ? g_step.reason : "left_as_is",
                         g_settings.source[0] ? "--source" : NULL,
                         g_settings.source,
                         NULL};
    pid_t child = fork();
    if (child == 0) {
        pid_t recorder = setsid() < 0 ? -1 : fork();
        if (recorder == 0) become(arguments, control[0], g_step.log, done[1]);
        _exit(recorder < 0 || write(done[1], &recorder, sizeof recorder) != sizeof recorder);
    }
    close(control[0]);
    close(done[1]);
    int status = 1;
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    if (child < 0 || status != 0) {
        slurm_error("hone: the recorder could not be started, the step runs without it");
        close(control[1]);
        close(done[0]);
        return;
    }
    g_step.control = control[1];
    g_step.done = done[0];
    if (read(done[0], &g_step.recorder, sizeof g_step.recorder) != sizeof g_step.recorder)
        g_step.recorder = -1;
}

static void stop_recorder(void) {
    if (g_step.control < 0) return;
    struct pollfd item = {.fd = g_step.done, .events = POLLIN};
    // Its end of `done` closes when it ends: before we asked means that it died.
    if (poll(&item, 1, 0) > 0) {
        slurm_error("hone: the recorder ended before its step did; the step is unharmed, its "
                    "energy is not known");
    } else {
        close(g_step.control);
        g_step.control = -1;
        if (poll(&item, 1, FINISH_MS) <= 0) {
            slurm_error("hone: the recorder did not finish within %d ms and is ended", FINISH_MS);
            if (g_step.recorder > 1) kill(g_step.recorder, SIGKILL);
        }
    }
    if (g_step.control >= 0) close(g_step.control);
    close(g_step.done);
    g_step.control = g_step.done = -1;
}

// ---- hooks ------------------------------------------------------------------------------------
static void get_env(spank_t spank, const char *name, char *out, int size) {
    if (spank_getenv(spank, name, out, size) != ESPANK_SUCCESS) out[0] = '\0';
}

// Still root here.
int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments) {
    (void)count;
    (void)arguments;
    if (spank_remote(spank) != 1 || spank_context() != S_CTX_REMOTE || !g_settings.log[0]) return 0;
    g_step.log = open(g_settings.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (g_step.log < 0)
        slurm_error("hone: '%s' cannot be opened, no energy is recorded: %s", g_settings.log,
                    strerror(errno));
    return 0;
}

int slurm_spank_user_init(spank_t spank, int count, char **arguments) {
    (void)count;
    (void)arguments;
    if (spank_remote(spank) != 1) return 0;
    char gpus[512], node[1024], job[24] = "", step[24] = "", node_id[24] = "0";
    uint32_t job_id = 0, step_id = 0, place = 0;
    // Global numbers first: CUDA_VISIBLE_DEVICES starts at 0 where devices are constrained.
    get_env(spank, "SLURM_STEP_GPUS", gpus, sizeof gpus);
    if (!gpus[0]) get_env(spank, "SLURM_JOB_GPUS", gpus, sizeof gpus);
    if (!gpus[0]) get_env(spank, "CUDA_VISIBLE_DEVICES", gpus, sizeof gpus);
    // The node's own name is not in the environment yet: the list of nodes and the place in it are.
    get_env(spank, "SLURM_STEP_NODELIST", node, sizeof node);
    if (!node[0]) get_env(spank, "SLURM_JOB_NODELIST", node, sizeof node);
    if (spank_get_item(spank, S_JOB_NODEID, &place) == ESPANK_SUCCESS)
        snprintf(node_id, sizeof node_id, "%u", place);
    if (spank_get_item(spank, S_JOB_ID, &job_id) == ESPANK_SUCCESS)
        snprintf(job, sizeof job, "%u", job_id);
    if (spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS) {
        if (step_id == EXTERN_STEP) return 0; // holds no work
        if (step_id == BATCH_STEP)
            strcpy(step, "batch");
        else if (step_id == INTERACTIVE_STEP)
            strcpy(step, "interactive");
        else
            snprintf(step, sizeof step, "%u", step_id);
    }
    if (g_settings.bind && g_settings.user_bind && gpus[0]) make_plan(gpus);
    if (g_settings.energy && g_settings.user_energy && g_step.log >= 0 && gpus[0])
        start_recorder(gpus, job, step, node, node_id);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **arguments) {
    (void)spank;
    (void)count;
    (void)arguments;
    if (!g_step.planned) return 0;
    // Slurm's own task plug-in has bound the task by now: never widen that.
    cpu_set_t now, both;
    if (sched_getaffinity(0, sizeof now, &now) == 0) {
        CPU_AND(&both, &now, &g_step.cpus);
        if (CPU_COUNT(&both) == 0) {
            slurm_info("hone: Slurm bound this task away from its cards; it is left there");
            return 0;
        }
        g_step.cpus = both;
    }
    if (sched_setaffinity(0, sizeof g_step.cpus, &g_step.cpus) != 0)
        slurm_error("hone: CPUs could not be bound: %s", strerror(errno));
    // Preferred, not bound: a step that outgrows a node's memory goes on instead of being killed.
    if (g_step.has_mems && syscall(SYS_set_mempolicy, 1 /* MPOL_PREFERRED */, g_step.mems,
                                   8 * sizeof g_step.mems) != 0)
        slurm_info("hone: memory is left as it is: %s", strerror(errno));
    return 0;
}

int slurm_spank_exit(spank_t spank, int count, char **arguments) {
    (void)count;
    (void)arguments;
    if (spank_remote(spank) == 1) stop_recorder();
    return 0;
}
