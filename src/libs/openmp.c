// SPDX-License-Identifier: Apache-2.0
// OpenMP of one library on our executor: see openmp.h.
#include "libs/openmp.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/check.h"
#include "base/parallel.h"
#include "base/team.h"

// ---- the functions, as libgomp defines them -----------------------------------------------------
static void gomp_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags) {
    (void)flags; // proc_bind wishes
    int parts = threads ? (int)hn_min_i64(threads, INT32_MAX) : hn_parallel_threads();
    hn_team_run(fn, data, parts);
}
static void gomp_barrier(void) { hn_team_barrier(); }
// What is made for n threads may have barriers among its n parts.
static int omp_max_threads(void) { return hn_team_limit(hn_parallel_threads()); }
static int omp_num_threads(void) { return hn_team_parts(); }
static int omp_thread_num(void) { return hn_team_part(); }
static int omp_in_parallel(void) { return hn_team_active(); }

typedef void (*any_fn)(void);
static const struct row {
    const char *name;
    any_fn fn;
} k_rows[] = {
    {"GOMP_parallel", (any_fn)gomp_parallel},         {"GOMP_barrier", gomp_barrier},
    {"omp_get_max_threads", (any_fn)omp_max_threads}, {"omp_get_num_threads", (any_fn)omp_num_threads},
    {"omp_get_thread_num", (any_fn)omp_thread_num},   {"omp_in_parallel", (any_fn)omp_in_parallel},
};

#if defined(__x86_64__) && defined(__GLIBC__)
#define ROW_NONE (-1)  // no OpenMP function
#define ROW_OTHER (-2) // one that we have not

static int row_of(const char *name) {
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++)
        if (!strcmp(name, k_rows[i].name)) return (int)i;
    bool openmp = !strncmp(name, "GOMP_", 5) || !strncmp(name, "omp_", 4) || !strncmp(name, "__kmp", 5) ||
                  !strncmp(name, "kmp_", 4);
    return openmp ? ROW_OTHER : ROW_NONE;
}

typedef struct image {
    uintptr_t base;
    const Elf64_Sym *symbols;
    const char *strings;
    const Elf64_Rela *tables[2]; // data and calls
    size_t counts[2];
} image;

// glibc has made addresses of the pointers among the entries; other loaders leave offsets.
static const void *address(const image *m, uintptr_t value) {
    return (const void *)(value < m->base ? value + m->base : value);
}

static bool read_image(void *handle, image *out) {
    struct link_map *map;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return false;
    *out = (image){.base = map->l_addr};
    for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_SYMTAB: out->symbols = address(out, d->d_un.d_ptr); break;
        case DT_STRTAB: out->strings = address(out, d->d_un.d_ptr); break;
        case DT_RELA: out->tables[0] = address(out, d->d_un.d_ptr); break;
        case DT_RELASZ: out->counts[0] = d->d_un.d_val / sizeof(Elf64_Rela); break;
        case DT_JMPREL: out->tables[1] = address(out, d->d_un.d_ptr); break;
        case DT_PLTRELSZ: out->counts[1] = d->d_un.d_val / sizeof(Elf64_Rela); break;
        default: break;
        }
    }
    return out->symbols && out->strings;
}

typedef struct relro {
    uintptr_t base, begin, end;
} relro;

static int find_relro(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    relro *r = arg;
    if (info->dlpi_addr != r->base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            r->begin = r->base + info->dlpi_phdr[i].p_vaddr;
            r->end = r->begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

// Walks the slots of OpenMP functions: counts them by row, or (with `write`) fills them.
static bool walk(const image *m, bool write, int *found) {
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; m->tables[t] && i < m->counts[t]; i++) {
            const Elf64_Rela *r = &m->tables[t][i];
            uint32_t type = ELF64_R_TYPE(r->r_info), symbol = ELF64_R_SYM(r->r_info);
            if (!symbol) continue;
            int row = row_of(m->strings + m->symbols[symbol].st_name);
            if (row == ROW_NONE) continue;
            bool slot = type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
                        (type == R_X86_64_64 && !r->r_addend);
            if (row == ROW_OTHER || !slot) return false;
            found[row]++;
            if (write) memcpy((void *)(m->base + r->r_offset), &k_rows[row].fn, sizeof(any_fn));
        }
    return true;
}

bool hn_openmp_bind(void *handle) {
    image m;
    int found[HN_COUNT_OF(k_rows)] = {0};
    if (!read_image(handle, &m) || !walk(&m, false, found)) return false;
    if (!found[0]) return false; // no GOMP_parallel: another OpenMP, or none
    relro closed = {.base = m.base};
    dl_iterate_phdr(find_relro, &closed);
    // The loader closes whole pages only. Opened as one range: either all slots can be written or none.
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = closed.begin & ~(page - 1), end = closed.end & ~(page - 1);
    if (end > begin && mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
    walk(&m, true, found);
    if (end > begin) mprotect((void *)begin, end - begin, PROT_READ);
    return true;
}
#else
bool hn_openmp_bind(void *handle) {
    (void)handle;
    (void)k_rows;
    return false;
}
#endif
