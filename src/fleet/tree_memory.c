// SPDX-License-Identifier: Apache-2.0
// Memory of a process tree: see tree_memory.h.
#include "fleet/tree_memory.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROCESSES_MAX 4096

typedef struct tree {
    pid_t pids[PROCESSES_MAX];
    int count;
} tree;

// Children are listed by the thread that made them.
static void add_children(tree *t, pid_t pid) {
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        int child;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, entry->d_name);
        FILE *file = fopen(path, "re");
        while (file && t->count < PROCESSES_MAX && fscanf(file, "%d", &child) == 1)
            t->pids[t->count++] = child;
        if (file) fclose(file);
    }
    closedir(dir);
}

int64_t hn_tree_memory_bytes(pid_t root) {
    static _Thread_local tree t; // 16 KiB: not on the stack
    int64_t page_bytes = sysconf(_SC_PAGESIZE), own = 0, largest_shared = 0;
    int seen = 0;
    t.pids[0] = root;
    t.count = 1;
    for (int i = 0; i < t.count; i++) {
        char path[64];
        long long resident, shared;
        snprintf(path, sizeof path, "/proc/%d/statm", (int)t.pids[i]);
        FILE *file = fopen(path, "re");
        if (!file) continue; // it has ended
        if (fscanf(file, "%*d %lld %lld", &resident, &shared) == 2) {
            own += resident - shared;
            if (shared > largest_shared) largest_shared = shared;
            seen++;
        }
        fclose(file);
        add_children(&t, t.pids[i]);
    }
    return seen ? (own + largest_shared) * page_bytes : -1;
}
