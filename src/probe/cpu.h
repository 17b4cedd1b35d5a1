// SPDX-License-Identifier: Apache-2.0
// What this CPU is: instruction sets as levels, caches, cores, NUMA, and what of it this process may
// use (affinity mask, control group quota). Read once; the same answer for the process's life.
#ifndef HN_PROBE_CPU_H
#define HN_PROBE_CPU_H
#include "base/base.h"
#include "probe/sys.h"

// Levels of the kernels' dispatch; each includes those before it.
//   ref     portable C
//   avx2    AVX2, FMA, F16C
//   avx512  AVX-512 F, BW, VL, DQ
//   vnni    AVX-512 VNNI (int8 dot products)
//   amx     AMX tiles for int8 and bf16, with the kernel's permission to use them
typedef enum hn_isa { HN_ISA_REF, HN_ISA_AVX2, HN_ISA_AVX512, HN_ISA_VNNI, HN_ISA_AMX } hn_isa;
const char *hn_isa_name(hn_isa isa);
bool hn_isa_by_name(hn_slice name, hn_isa *out);

typedef struct hn_cpu {
    char vendor[16], model[64];
    int family, model_number, stepping;
    hn_isa isa;           // what CPU and kernel offer
    bool avx_vnni, avx512_vbmi, avx512_bf16, avx512_fp16, amx_bf16, amx_int8; // beyond the levels
    int64_t l1d_bytes, l2_bytes, l3_bytes; // of one instance as CPU 0 sees it, 0 = none
    int l3_instances;     // 0 = unknown
    int logical;          // CPUs of the machine that are online
    int cores;            // physical cores, 0 = unknown
    int sockets;          // 0 = unknown
    int numa_nodes;       // with CPUs, at least 1
    int usable;           // CPUs in this process's affinity mask
    double quota_cpus;    // control group CPU quota, NAN = none
    int64_t memory_bytes; // of the machine
    int64_t memory_limit_bytes; // control group limit, 0 = none
} hn_cpu;
const hn_cpu *hn_cpu_get(void);

// The level kernels may use: the CPU's, capped by the setting `isa`. A name there that is no level
// is HONE_ERR_USAGE in hn_cpu_isa_check and is ignored by hn_cpu_isa.
hn_isa hn_cpu_isa(void);
hn_status hn_cpu_isa_check(hone_error *err);

// Threads that can really run at once: the affinity mask, less where a quota allows less.
int hn_cpu_parallelism(void);

// Folder of this process's control group, under the root of hn_sys_path's names: the unified (v2)
// tree for "", else the v1 controller's.
bool hn_cgroup_path(const char *controller, char out[HN_SYS_PATH_BYTES]);

// Measured memory bandwidth with all threads of hn_parallel, buffers well beyond the last cache.
typedef struct hn_memory_bandwidth {
    double read_bytes_s, write_bytes_s, copy_bytes_s, triad_bytes_s; // copy: 2, triad: 3 streams
    double one_thread_read_bytes_s;
    int64_t buffer_bytes; // one array
    int threads;
} hn_memory_bandwidth;
hn_status hn_cpu_measure_bandwidth(hone_error *err, hn_memory_bandwidth *out_bandwidth);
#endif
